"""Forms of their own that operations have in MLIR's text.

Most are operands, words and ``name = value`` in some order, then attributes in braces and types
behind a colon.  The table `FIELDS` has the attribute for each word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from alpenglow.frontends.stablehlo.module import DotDims
from alpenglow.frontends.stablehlo.text.forms import Form, Items, Reading, read_items, read_types
from alpenglow.frontends.stablehlo.text.lexer import Lexer
from alpenglow.frontends.stablehlo.text.pretty_regions import OWN

DIALECTS = ("stablehlo.", "chlo.", "check.", "func.")

DIMS = "broadcast_dimensions"
FIELDS: Mapping[str, Mapping[str, str]] = {
    "stablehlo.broadcast_in_dim": {"dims": DIMS},
    "stablehlo.dynamic_broadcast_in_dim": {"dims": DIMS},
    "stablehlo.broadcast": {"sizes": "broadcast_sizes"},
    "stablehlo.concatenate": {"dim": "dimension"},
    "stablehlo.dynamic_slice": {"sizes": "slice_sizes"},
    "stablehlo.iota": {"dim": "iota_dimension"},
    "stablehlo.dynamic_iota": {"dim": "iota_dimension"},
    "stablehlo.transpose": {"dims": "permutation"},
    "stablehlo.reverse": {"dims": "dimensions"},
    "stablehlo.pad": {
        "low": "edge_padding_low", "high": "edge_padding_high", "interior": "interior_padding",
    },
    "stablehlo.get_dimension_size": {"dim": "dimension"},
    "stablehlo.set_dimension_size": {"dim": "dimension"},
    "stablehlo.rng_bit_generator": {"algorithm": "rng_algorithm"},
    "stablehlo.rng": {"distribution": "rng_distribution"},
    "stablehlo.fft": {"type": "fft_type", "length": "fft_length"},
    "stablehlo.cholesky": {"lower": "lower"},
    "stablehlo.einsum": {"config": "einsum_config"},
    "stablehlo.dot": {"precision": "precision_config"},
    "chlo.top_k": {"k": "k", "largest": "largest"},
    "chlo.is_inf": {},
    "check.expect_close": {
        "max_ulp_difference": "max_ulp_difference", "min_ulp_difference": "min_ulp_difference",
    },
    "check.expect_almost_eq": {"tolerance": "tolerance"},
    "check.expect_almost_eq_const": {"tolerance": "tolerance"},
    "check.expect_serialized_eq": {"probe_id": "probe_id"},
}  # fmt: skip
"""Attributes by the words before an equals sign; no other words are allowed."""

_FORMAT = re.compile(r"e([0-9]+)m([0-9]+)")


def pretty(r: Reading, name: str) -> Form:
    """Return the operation whose name was read before."""
    if name in ("return", "call"):
        name = f"func.{name}"
    if name in OWN:
        return OWN[name](r, Form(name))
    if not name.startswith(DIALECTS):
        known = ", ".join(dialect[:-1] for dialect in DIALECTS)
        text = f"the dialect of '{name}' is not supported; supported: {known}"
        raise r.lexer.error(text, "export the program as StableHLO")
    form = Form(name)
    items = Items()
    read_items(r, form, items, ())
    read_types(r, form, items)
    _named(r, form, items)
    return form


def _named(r: Reading, form: Form, items: Items) -> None:
    """Make attributes of words and values."""
    name, x = form.name, r.lexer
    if name.startswith("check."):
        items.keyed.pop("", None)
    items.keyed.pop("", None)
    if name == "stablehlo.slice":
        form.attributes["start_indices"] = tuple(s for s, _, _ in items.ranges)
        form.attributes["limit_indices"] = tuple(e for _, e, _ in items.ranges)
        form.attributes["strides"] = tuple(s for _, _, s in items.ranges)
    elif name == "stablehlo.get_tuple_element":
        if len(items.ranges) != 1:
            raise x.error(f"{name} has {len(items.ranges)} indices, expected one")
        form.attributes["index"] = items.ranges[0][0]
    elif name in ("stablehlo.compare", "chlo.broadcast_compare"):
        _compared(form, items, x)
    elif name in ("stablehlo.custom_call", "func.call", "stablehlo.composite"):
        if len(items.words) != 1:
            raise x.error(f"{name} names {len(items.words)} functions, expected one")
        key = {"stablehlo.custom_call": "call_target_name", "func.call": "callee"}
        form.attributes[key.get(name, "name")] = items.words[0]
    elif name == "stablehlo.dot_general":
        _dot(form, items, x)
    elif name == "stablehlo.reduce_precision":
        _precision(form, items, x)
    elif items.words:
        raise x.error(f"{name} has a word {items.words[0]!r}, expected operands or NAME = VALUE")
    if name == "stablehlo.dot_general" or name == "stablehlo.reduce_precision":
        return
    fields = FIELDS.get(name, {})
    for word, value in items.keyed.items():
        if word not in fields:
            known = ", ".join(fields) or "none"
            raise x.error(f"{name} has an attribute '{word}', expected {known}")
        form.attributes[fields[word]] = value


def _compared(form: Form, items: Items, x: Lexer) -> None:
    if not 1 <= len(items.words) <= 2:
        raise x.error(f"{form.name} has {len(items.words)} words, expected a direction and a type")
    form.attributes["comparison_direction"] = items.words[0]
    if items.words[1:]:
        form.attributes["compare_type"] = items.words[1]


def _dot(form: Form, items: Items, x: Lexer) -> None:
    known = {"batching_dims", "contracting_dims", "precision", "algorithm"}
    if set(items.keyed) - known or items.words:
        found = ", ".join(sorted(set(items.keyed) - known) or items.words)
        raise x.error(f"{form.name} has {found}, expected {', '.join(sorted(known))}")
    lhs_batch, rhs_batch = items.pairs.get("batching_dims", ((), ()))
    lhs, rhs = items.pairs.get("contracting_dims", ((), ()))
    form.attributes["dot_dimension_numbers"] = DotDims(lhs_batch, rhs_batch, lhs, rhs)
    if "precision" in items.keyed:
        form.attributes["precision_config"] = items.keyed["precision"]
    if "algorithm" in items.keyed:
        form.attributes["algorithm"] = items.keyed["algorithm"]


def _precision(form: Form, items: Items, x: Lexer) -> None:
    match = _FORMAT.fullmatch(str(items.keyed.get("format", "")))
    if match is None:
        found = items.keyed.get("format", "missing")
        raise x.error(f"format of {form.name} is {found}, expected one as e5m10")
    form.attributes["exponent_bits"] = int(match[1])
    form.attributes["mantissa_bits"] = int(match[2])
