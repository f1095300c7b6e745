"""Portable bytecode of all versions against the text that it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests.frontends.stablehlo.programs import FOLDER

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.stablehlo.bytecode.bytecode import Container
from alpenglow.frontends.stablehlo.bytecode.portable import read_bytecode
from alpenglow.frontends.stablehlo.module import Block, Function, Record
from alpenglow.frontends.stablehlo.text.text import read_text

VERSIONS = FOLDER / "tests" / "vhlo"
FUTURE = "invalid_vhlo_future"
NAMES = sorted(p.name.removesuffix(".mlir.bc") for p in VERSIONS.glob("*.bc"))
READ = [name for name in NAMES if name != FUTURE]

needs_files = pytest.mark.skipif(not READ, reason=f"no suite in {VERSIONS}")

ONES = ("window_strides", "lhs_dilation", "rhs_dilation", "base_dilations", "window_dilations")

DEFAULTS: Mapping[str, Any] = {
    "api_version": 1, "called_computations": (), "compare_type": "NOTYPE",
    "dimension": -1, "has_side_effect": False, "indices_are_sorted": False, "infeed_config": "",
    "is_host_transfer": False, "is_stable": False, "known_expanding_dimensions": (),
    "known_nonexpanding_dimensions": (), "layout": (), "lower": False, "operand_layouts": (),
    "outfeed_config": "", "output_operand_aliases": (), "result_layouts": (),
    "unique_indices": False, "use_global_device_ids": False, "version": 0,
    "composite_attributes": {},
    "channel_handle": Record("channel_handle", (("handle", 0), ("type", 0))),
}  # fmt: skip
"""Attributes that the text leaves out, and bytecode always has."""


def is_default(name: str, value: Any) -> bool:
    """Whether an attribute says what is so without it."""
    if name in ONES:
        return set(value) == {1}
    if name == "precision_config":
        return set(value) <= {"DEFAULT"}
    if name == "window_reversal":
        return not any(value)
    if name == "padding":
        return not np.asarray(value).any()
    if name == "backend_config":
        return not value
    if name == "result_accuracy":
        return dict(value.fields).get("mode", "DEFAULT") == "DEFAULT"
    return bool(name in DEFAULTS and plain(value) == plain(DEFAULTS[name]))


def plain(value: Any) -> Any:
    """Return an attribute as something that can be compared."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, Record):
        return value.name, sorted((n, plain(v)) for n, v in value.fields)
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return {n: plain(v) for n, v in value.items()} if isinstance(value, dict) else value


def told(function: Function) -> list[Any]:
    """Return all that a function says, with numbers for the names of values."""
    numbers: dict[str, int] = {}
    said: list[Any] = [function.signature]

    def number(name: str) -> int:
        return numbers.setdefault(name, len(numbers))

    def tell(block: Block) -> None:
        said.append([(number(name), t) for name, t in block.arguments])
        for o in block.operations:
            attributes = {n: plain(v) for n, v in o.attributes.items() if not is_default(n, v)}
            operands = [number(name) for name in o.operands]
            said.append((o.name, operands, o.types, o.operand_types, attributes, len(o.regions)))
            for region in o.regions:
                tell(region)
            said.extend(number(name) for name in o.results)

    tell(function.body)
    return said


@needs_files
@pytest.mark.parametrize("name", READ)
def test_bytecode_says_what_its_text_says(name: str) -> None:
    binary = read_bytecode((VERSIONS / f"{name}.mlir.bc").read_bytes())
    text = read_text((VERSIONS / f"{name}.mlir").read_text())

    assert binary.functions.keys() == text.functions.keys()
    for function in text.functions:
        assert told(binary.functions[function]) == told(text.functions[function]), function


@needs_files
def test_bytecode_that_is_newer_says_which_version_it_is_of() -> None:
    with pytest.raises(UnsupportedError, match=r"'vhlo.constant_v99' .* StableHLO_v2\.0\.0"):
        read_bytecode((VERSIONS / f"{FUTURE}.mlir.bc").read_bytes())


def test_a_container_that_is_newer_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"version 7 of .* is not supported; .* up to 6"):
        Container(b"ML\xefR" + bytes([7 << 1 | 1]) + b"x\0")


@needs_files
def test_bytecode_that_ends_early_says_where() -> None:
    content = (VERSIONS / f"{READ[-1]}.mlir.bc").read_bytes()

    for length in range(5, len(content), 997):
        with pytest.raises(ModelError, match=r"offset \d+|section \d+"):
            read_bytecode(content[:length])
