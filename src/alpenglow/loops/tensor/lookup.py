"""The loop forms of looking up: a binary search without branches, and a table, in vectors."""

from __future__ import annotations

from alpenglow.ir.types import FLOATS
from alpenglow.kernel.expr import Const, Expr
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Source, pull
from alpenglow.ops.tensor.lookup import Find, Lookup


@pull(Find)
def find(k: Loops, op: Find, ins: list[Source | None], at: list[Coord]) -> Expr:
    """Step forward by shrinking powers of two while the key there is not behind the element."""
    x, keys = ins
    assert x is not None and keys is not None
    count = keys.shape[0]
    if count == 0:
        return Const(0, "i64", k.current)
    value = x(at)
    place: Expr = Const(0)
    step = 1 << max((count - 1).bit_length() - 1, 0)
    while step and count > 1:
        probe = k.b.let(k.m.add(place, step))
        key = keys([coord(k.b.let(k.m.minimum(probe, count - 1)))])
        ahead = k.m.bit_and(k.m.lt(probe, count), reached(k, key, value))
        place = k.select(ahead, probe, place)
        step //= 2
    key = keys([coord(place)])
    return k.select(
        k.m.bit_and(reached(k, key, value), reached(k, value, key)), place, Const(count)
    )


def reached(k: Loops, key: Expr, value: Expr) -> Expr:
    """Return whether the key is not behind the value; NaN is behind all numbers."""
    below = k.m.le(key, value)
    return k.m.bit_or(below, k.m.isnan(value)) if value.dtype in FLOATS else below


@pull(Lookup)
def lookup(k: Loops, op: Lookup, ins: list[Source | None], at: list[Coord]) -> Expr:
    x, table = ins
    assert x is not None and table is not None
    value = k.m.bits(x(at), "u8")
    return table([coord(k.b.let(k.m.cast(value, "i64")))])
