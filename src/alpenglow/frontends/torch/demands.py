"""Conditions on the inputs' extents that PyTorch's exporter found while it traced, as guards.

A program is right for those extents alone of which these conditions hold: a branch was taken, a
slice was found short enough.  They are text over sources: ``L['x'].size()[0] % 3 == 0``, where
what is in brackets is the way to an argument.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.words import shown
from alpenglow.frontends.torch.program import Body, Input
from alpenglow.frontends.torch.symbols import conditions
from alpenglow.ir.dims import Dim, Guards, Sym, product
from alpenglow.ir.structure import Keyed, Leaf, Several, Structure, Tree
from alpenglow.ir.types import TensorType

SOURCE = re.compile(r"\bL((?:\['[^']*'\]|\[\d+\])+)")
"""A source; behind it stands what is read of it."""

Sources = Mapping[str, TensorType | Dim]
"""Arguments by the ways to them (``['x'][0]``): types of tensors, and extents."""


def demands(
    code: Sequence[str], structure: Structure | None, inputs: Sequence[Input], body: Body
) -> Guards:
    """Return the guards that conditions on the inputs of a program demand.

    Raises UnsupportedError if guards cannot express a condition, or if it reads no input.
    """
    extents = {n: d for n, d in body.symbols.items() if isinstance(d, int | Sym)}
    sources = _sources(structure, inputs, {**body.types, **extents})
    guards = [guard for text in code for guard in _guards(text, sources)]
    return tuple(dict.fromkeys(guards))


def _sources(structure: Structure | None, inputs: Sequence[Input], told: Sources) -> Sources:
    """Return what conditions may read of arguments, of which this is told by name.

    The exporter writes a way from the parameter of the module's forward, or the place among all
    arguments.
    """
    order = [i.name for i in inputs if i.kind in ("user", "symbol", "fixed")]
    ways = {f"['flat_args'][{i}]": name for i, name in enumerate(order)}
    for parameter, tree in () if structure is None else structure.parameters:
        for way, name in _ways(tree, f"['{parameter}']"):
            ways[way] = name
            # An argument behind *rest is called rest_0, and written rest[0].
            ways.setdefault(re.sub(r"^\['(\w+)_(\d+)'\]", r"['\1'][\2]", way), name)
    return {way: told[name] for way, name in ways.items() if name in told}


def _ways(tree: Tree, way: str) -> Iterator[tuple[str, str]]:
    """Yield the way to each tensor and extent of an argument, and its name."""
    match tree:
        case Leaf(name=name):
            yield way, name
        case Several(items=items):
            for i, item in enumerate(items):
                yield from _ways(item, f"{way}[{i}]")
        case Keyed(items=pairs):
            for key, item in pairs:
                yield from _ways(item, f"{way}[{key!r}]")


def _guards(text: str, sources: Sources) -> Guards:
    read: dict[str, TensorType | Dim] = {}

    def named(source: re.Match[str]) -> str:
        if source[1] not in sources:
            raise UnsupportedError(f"guard {shown(text)} reads {shown(source[1])}, "
                                   "expected an input")  # fmt: skip
        name = f"source_{len(read)}"
        read[name] = sources[source[1]]
        return name

    return conditions(SOURCE.sub(named, text), lambda tree: _told(tree, read))


def _told(tree: ast.expr, read: Mapping[str, TensorType | Dim]) -> Dim | None:
    """Return the extent that an expression reads of a source; None if it is another expression.

    Inputs are dense here, so strides are the products of later extents.
    """
    match tree:
        case ast.Name(id=name) if name in read:
            told = read[name]
            return None if isinstance(told, TensorType) else told
        case ast.Subscript(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=what)),
            slice=ast.Constant(value=int(axis)),
        ) if name in read:
            t = read[name]
            if isinstance(t, TensorType) and 0 <= axis < t.rank:
                if what == "size":
                    return t.shape[axis]
                if what == "stride":
                    return product(t.shape[axis + 1 :])
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="storage_offset")) if (
            name in read
        ):
            return 0
    return None
