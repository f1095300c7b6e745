"""Loop forms of random numbers: every element from its index and the key alone."""

from __future__ import annotations

from alpenglow.kernel.expr import Expr, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Source, pull
from alpenglow.ops.random.random import Choose, RandomNormal, RandomUniform, steps


@pull(RandomUniform, RandomNormal)
def random(
    k: Loops, op: RandomUniform | RandomNormal, ins: list[Source | None], at: list[Coord]
) -> Expr:
    (key,) = ins
    assert key is not None
    index = coord(0)
    for c, extent in zip(at, op.shape, strict=True):
        index = index * extent + c
    place = k.b.let(index.expr())
    high = k.m.cast(k.m.shift_right(place, 32), "u32")
    words = (k.m.cast(place, "u32"), high)
    element: Expr = op.element(k.m, (key([coord(0)]), key([coord(1)])), words)
    return element


@pull(Choose)
def choose(k: Loops, op: Choose, ins: list[Source | None], at: list[Coord]) -> Expr:
    """Halve the classes that are left until there is one."""
    totals, u = ins
    assert totals is not None and u is not None
    row, last = at[0], totals.shape[1] - 1
    limit = k.m.times(u(at), totals([row, coord(last)]))
    low, high = lift(0), lift(last)
    for _ in range(steps(totals.shape[1])):
        middle = k.m.shift_right(k.m.add(low, high), 1)
        above = k.m.gt(totals([row, coord(middle)]), limit)
        low = k.m.where(above, low, k.m.minimum(k.m.add(middle, 1), high))
        high = k.m.where(above, middle, high)
    return k.m.cast(low, op.dtype)
