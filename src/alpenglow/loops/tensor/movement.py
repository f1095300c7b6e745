"""Loop forms of what addressing alone cannot move."""

from __future__ import annotations

from alpenglow.ir.dims import is_open
from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, pull, push
from alpenglow.loops.window.contraction import within
from alpenglow.ops.tensor.copy import Empty, Fill
from alpenglow.ops.tensor.movement import Pad, Trilu


@pull(Fill)
def fill(k: Loops, op: Fill, ins: list[Source | None], at: list[Coord]) -> Expr:
    return k.constant(op.value, op.dtype)


@push(Empty)
def empty(k: Loops, op: Empty, ins: list[Source | None], outs: list[Sink]) -> None:
    """Write nothing."""


@pull(Pad)
def pad(k: Loops, op: Pad, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    place = [c - a for c, a in zip(at, op.before, strict=True)]
    edges = [bool(a or b) for a, b in zip(op.before, op.after, strict=True)]
    if op.mode == "constant":
        inside = within(k, place, x.shape, edges)
        outside = k.constant(op.value, x.type.dtype)
        return x(place) if inside is None else k.when(inside, lambda: x(place), outside)

    def folded(c: Coord, extent: int, reach: int) -> Coord:
        at = _fold(k, op.mode, c, extent, reach)
        # Of one axis it is proved where that ends; of the axes of an element together it is not.
        return coord(k.inside(at.expr(), extent)) if k.facts.group else at

    return x(
        [
            folded(c, d, max(a, b)) if e else c
            for c, d, e, a, b in zip(place, x.shape, edges, op.before, op.after, strict=True)
        ]
    )


def _fold(k: Loops, mode: str, c: Coord, extent: int, reach: int) -> Coord:
    """Bring a coordinate that may lie so far outside back into range."""
    if mode == "wrap" and (is_open(extent) or reach > extent):
        return (c + reach * extent) % extent
    at = c.expr()
    if mode == "edge":
        return coord(k.m.minimum(k.m.maximum(at, 0), extent - 1))
    if mode == "reflect":
        at = k.m.abs(at)
        return coord(k.m.minimum(at, k.m.sub(2 * (extent - 1), at)))
    below = k.m.where(k.m.lt(at, 0), k.m.add(at, extent), at)
    return coord(k.m.where(k.m.ge(below, extent), k.m.sub(below, extent), below))


@pull(Trilu)
def trilu(k: Loops, op: Trilu, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    row, column = at[-2:]
    kept = column.compare("ge" if op.upper else "le", row + op.k)
    return k.m.where(kept, x(at), 0)
