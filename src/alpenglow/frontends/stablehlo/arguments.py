"""ArgMax and ArgMin: reductions of (value, index) pairs as JAX writes them.

The body, known by its form, keeps of two elements the larger one, NaN before all others, and of
equal ones that with the smaller index.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.frontends.stablehlo.folds import is_neutral
from alpenglow.frontends.stablehlo.module import Block
from alpenglow.frontends.stablehlo.table import Site
from alpenglow.ir.dims import known
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.types import FLOATS, NUMBERS
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.reduction.reduction import ArgMax, ArgMin
from alpenglow.ops.tensor.gather import GatherElements
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Broadcast

Expression = tuple[object, ...] | str
"""An operation and what it is applied to, or an argument."""


def chosen_along(
    s: Site, block: Block, xs: Sequence[Value], inits: Sequence[Value], axis: int
) -> list[Value] | None:
    """Return the extreme of each row and its index, None if that is not what is asked for."""
    if len(xs) != 2 or xs[0].type.dtype not in NUMBERS or not _counts(xs[1], axis):
        return None
    if xs[1].type.dtype not in ("i32", "i64", "u32"):
        return None  # indices may not fit
    if not known(xs[0].type.shape[axis]):
        return None
    direction = _direction(block, xs[0].type.dtype in FLOATS)
    if not direction or not _begins(inits, direction):
        return None
    op = ArgMax(axis, True) if direction == "GT" else ArgMin(axis, True)
    where = s.g(op, xs[0])
    kept = tuple(d for i, d in enumerate(xs[0].type.shape) if i != axis)
    values = s.reshaped(s.g(GatherElements(axis), xs[0], where), kept)
    return [values, s.cast(s.reshaped(where, kept), xs[1].type.dtype)]


def _counts(v: Value, axis: int) -> bool:
    """Whether each element is its index along an axis."""
    seen, extent = 0, v.type.shape[axis]
    while v.producer is not None and isinstance(v.producer.op, Cast | Broadcast) and seen < 8:
        (source,) = v.producer.inputs
        if source is None or source.type.rank != v.type.rank:
            return False
        v, seen = source, seen + 1
    match v.producer:
        case Node(Iota(shape=shape, axis=a)):
            return a == axis and shape[a] == extent
    return False


def _begins(inits: Sequence[Value], direction: str) -> bool:
    """Whether what a reduction begins with is never chosen: the least value, and index 0."""
    value, index = inits[0].array, inits[1].array
    if value is None or index is None or int(index.reshape(-1)[0]) != 0:
        return False
    return is_neutral("stablehlo.maximum" if direction == "GT" else "stablehlo.minimum", inits[0])


def _direction(block: Block, floating: bool) -> str:
    """Return GT for the largest, LT for the smallest, "" for another body.

    That of integers may leave out what it says of NaN.
    """
    names = [name for name, _ in block.arguments]
    if len(names) != 4 or len(block.results) != 2:
        return ""
    x, i, y, j = "x", "i", "y", "j"
    of: dict[str, Expression] = dict(zip(names, (x, i, y, j), strict=True))
    for o in block.body:
        if o.attributes.get("compare_type") == "TOTALORDER" or len(o.results) != 1:
            return ""
        kind = (o.name, o.attributes.get("comparison_direction", ""))
        of[o.results[0]] = (kind, *(of.get(name, "?") for name in o.operands))
    found = tuple(of.get(name, "?") for name in block.results)
    for direction in ("GT", "LT"):
        if found == _expected(direction, True):
            return direction
        if not floating and found == _expected(direction, False):
            return direction
    return ""


def _expected(direction: str, floating: bool) -> tuple[Expression, Expression]:
    """Return the expressions that such a body returns: the value and its index."""

    def compared(how: str, a: str, b: str) -> Expression:
        return (("stablehlo.compare", how), a, b)

    def joined(name: str, *parts: Expression) -> Expression:
        return ((f"stablehlo.{name}", ""), *parts)

    better = compared(direction, "x", "y")
    if floating:
        better = joined("or", better, compared("NE", "x", "x"))
    earlier = joined("and", compared("EQ", "x", "y"), compared("LT", "i", "j"))
    index = joined("select", joined("or", better, earlier), "i", "j")
    return joined("select", better, "x", "y"), index
