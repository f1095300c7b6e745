"""Symbols for the dynamic dimensions of a model, from the names that it gives them.

ONNX lets a model call an open extent anything: ``batch``, ``batch-size``, ``2*N``.  Different names
are different symbols.  One that reads as arithmetic is taken at its word where the extents that it
speaks of can be told from the inputs: fewer symbols leave less to be decided by data.  It is still
no more than a name to ONNX, so a call that it is not true of is served by an import to which it is
a symbol like others (`runtime.executables.executor`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from keyword import iskeyword

import onnx

from alpenglow.base.errors import ParseError
from alpenglow.ir.dims import Dim, Ratio, Sym, names, parse, symbol
from alpenglow.ir.solve import untold

LONGEST = 80
"""A label of more characters is not read as arithmetic."""

Labels = Mapping[str, Dim]
"""The extent of each label; ``x.0`` is axis 0 of x, where the model has no label."""


def label_of(info: onnx.ValueInfoProto, axis: int) -> str:
    """Return the label of a dynamic dimension of a value."""
    text: str = info.type.tensor_type.shape.dim[axis].dim_param
    return text.strip() or f"{info.name}.{axis}"


def is_fixed(d: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether an extent has a number: -1 is what some exporters write where it is open."""
    return d.HasField("dim_value") and d.dim_value != -1


def open_labels(infos: Iterable[onnx.ValueInfoProto]) -> Iterator[str]:
    """Yield what the open extents of some values are called."""
    for info in infos:
        if info.type.WhichOneof("value") == "tensor_type":
            for axis, d in enumerate(info.type.tensor_type.shape.dim):
                if not is_fixed(d):
                    yield label_of(info, axis)


def symbols_of(infos: Iterable[onnx.ValueInfoProto]) -> dict[str, Dim]:
    """Return a symbol for each label: no two have one, and identifiers are their own."""
    labels = list(dict.fromkeys(open_labels(infos)))
    symbols: dict[str, Dim] = {text: symbol(text) for text in labels if is_plain(text)}
    taken = set(symbols)
    for text in labels:
        if text in symbols:
            continue
        word = base = identifier(text.encode("ascii", "replace").decode()) or "dim"
        number = 2
        while word in taken or not is_plain(word):
            word, number = f"{base.rstrip('_') or 'dim'}_{number}", number + 1
        taken.add(word)
        symbols[text] = symbol(word)
    return symbols


def read_labels(symbols: Labels) -> dict[str, Dim]:
    """Return the extent of each label: an expression of known symbols, else its own symbol."""
    said = {text: x for text in symbols if (x := expression(text)) is not None}
    plain = {text: x for text, x in symbols.items() if is_plain(text)}
    while True:
        shapes = {text: [x] for text, x in (plain | said).items()}
        # A symbol that only one label names relates it to no other.
        uses = Counter(n for (x,) in shapes.values() for n in names(x))
        idle = untold(shapes) | {n for n, count in uses.items() if count == 1}
        kept = {text: x for text, x in said.items() if not names(x) & idle}
        if len(kept) == len(said):
            return {**symbols, **said}
        said = kept


def expression(text: str) -> Sym | None:
    """Return a label as arithmetic on names; None if it is a plain name or no such thing."""
    if is_plain(text) or len(text) > LONGEST:
        return None
    try:
        x = parse(text)
    except (ParseError, AssertionError):
        return None
    sound = isinstance(x, Sym) and all(map(is_plain, names(x))) and _is_total(x)
    return x if sound and isinstance(x, Sym) else None


def _is_total(x: Sym) -> bool:
    """Whether x has a value for all extents: what is divided by are numbers."""
    atoms = [a for monomial, _ in x.terms for a in monomial if isinstance(a, Ratio)]
    picks = [a for a in atoms if a.op in ("max", "min")]
    return all(_is_total(a.left) and (a in picks or is_positive(a.right)) for a in atoms) and all(
        _is_total(a.right) for a in picks
    )


def is_positive(x: Sym) -> bool:
    return [m for m, _ in x.terms] == [()] and x.terms[0][1] > 0


def is_plain(text: str) -> bool:
    """Return True if a label is a name in Python that Alpenglow does not use itself."""
    word = text.isascii() and text.isidentifier() and not iskeyword(text)
    return word and text != "__debug__" and not re.search(r"__e?\d+$", text)


def identifier(text: str) -> str:
    """Return `text` as a Python identifier: the name of a graph or of an open extent."""
    word = "".join(c if f"_{c}".isidentifier() else "_" for c in text)
    return f"_{word}" if word and (iskeyword(word) or not word.isidentifier()) else word
