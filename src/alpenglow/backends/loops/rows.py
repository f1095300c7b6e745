"""Loops over rows and columns, several neighbours at a time, for forms that run their own.

What combines the elements of a row (its last axis) computes in vectors along it and combines the
lanes in the end; what combines elements across rows gives each lane a column of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alpenglow.backends.loops.coord import Coord, coord
from alpenglow.backends.loops.form import Loops
from alpenglow.ir.dims import Dim, ceil_div, estimate, is_open
from alpenglow.kernel.expr import Compare, Const, Expr, Reduce, Register, lift


def width(k: Loops, extent: int) -> int:
    """Return how many neighbours to compute at once along an axis of this extent."""
    lanes = k.lanes
    while lanes > max(estimate(extent), 1):
        lanes //= 2
    return lanes


def slots_for(extent: Dim, lanes: int, most: int) -> int:
    """Return how many accumulators a row of this extent keeps busy, at most `most`."""
    return max(min(most, ceil_div(estimate(extent), lanes)), 1)


def along(
    k: Loops,
    extents: Sequence[int],
    lanes: int,
    body: Callable[[list[Coord], int], None],
    slots: int = 1,
) -> None:
    """Run `body` for a whole row: vectors of `lanes` on the last axis, in loops over the others.

    The second argument of `body` counts vectors modulo `slots`: with an accumulator for each, one
    addition need not wait for the last.
    """
    *outer, last = extents
    if 0 in extents:
        return
    full, rest = divmod(last, lanes)
    groups, left = divmod(full, slots)
    with k.loops(outer) as before:

        def step(slot: int, number: Expr, limit: Dim | None = None) -> None:
            block(k, number * lanes, lanes, limit, lambda c: body([*before, c], slot))

        if is_open(groups) or groups:
            with k.b.loop(lift(groups)) as group:
                for slot in range(slots):
                    step(slot, group * slots + slot)
        if is_open(last):
            with k.b.loop(lift(left)) as number:
                step(0, number + groups * slots)
            with k.b.when(Compare("gt", lift(rest), Const(0))):
                step(0, lift(full), last)
            return
        for slot in range(left):
            step(slot, Const(groups * slots + slot))
        if rest:
            step(left, Const(full), last)


def columns(
    k: Loops, outer: Sequence[int], extent: int, body: Callable[[list[Coord], Coord], None]
) -> None:
    """Run `body` in parallel for all indices below `outer` and vectors along a last axis."""
    lanes = width(k, extent)
    full, rest = divmod(extent, lanes)
    with k.parallel([*outer, ceil_div(extent, lanes)]) as (*at, number):
        start = number.expr() * lanes

        def run(limit: Dim | None) -> None:
            block(k, start, lanes, limit, lambda c: body(at, c))

        if not is_open(rest) and not rest:
            run(None)
            return
        with k.b.when(number.compare("lt", full)):
            run(None)
        with k.b.otherwise():
            run(extent)


def in_turn(
    k: Loops, extents: Sequence[int], body: Callable[[list[Coord], int], None], slots: int
) -> None:
    """Run `body` for all indices below `extents`, in vectors as they are.

    Its second argument counts modulo `slots` along the last axis, as for `along`.
    """
    if not extents or 0 in extents:
        if not extents:
            body([], 0)
        return
    *outer, last = extents
    groups, left = divmod(last, slots)
    with k.loops(outer) as before:
        if is_open(groups) or groups:
            with k.b.loop(lift(groups)) as group:
                for slot in range(slots):
                    body([*before, coord(group * slots + slot)], slot)
        if is_open(left):
            with k.b.loop(lift(left)) as number:
                body([*before, coord(number + groups * slots)], 0)
            return
        for slot in range(left):
            body([*before, coord(groups * slots + slot)], slot)


def block(
    k: Loops, start: Expr, lanes: int, limit: Dim | None, body: Callable[[Coord], None]
) -> None:
    """Run `body` for the neighbours from `start` on, masking off those from `limit` on."""
    ramp = Coord(start, 1, lanes)
    k.current = lanes
    k.mask = None if limit is None else k.b.let(ramp.compare("lt", limit))
    body(ramp)
    k.mask, k.current = None, 1


def accumulators(k: Loops, value: float, dtype: str, lanes: int, slots: int) -> list[Register]:
    """Return `slots` registers of `lanes` lanes that hold `value`."""
    one = k.constant(value, dtype)
    return [k.b.var(Const(one.value, one.dtype, lanes)) for _ in range(slots)]


def combined(k: Loops, op: str, registers: Sequence[Register]) -> Expr:
    """Return all lanes of all registers combined by add, mul, min or max."""
    total: Expr = registers[0]
    for r in registers[1:]:
        total = combine(k, op, total, r)
    return k.b.let(total if total.lanes == 1 else Reduce(op, total))


def combine(k: Loops, op: str, x: Expr, y: Expr) -> Expr:
    """Return x and y combined by add, mul, min or max; of bool, min is and, max is or."""
    if x.dtype == "bool":
        return k.m.bit_and(x, y) if op == "min" else k.m.bit_or(x, y)
    formulas = {"add": k.m.add, "mul": k.m.mul, "min": k.m.minimum, "max": k.m.maximum}
    return formulas[op](x, y)


def unless_masked(k: Loops, value: Expr, neutral: float) -> Expr:
    """Return the value, with `neutral` in the lanes that are masked off."""
    if k.mask is None:
        return value
    return k.select(k.mask, value, k.constant(neutral, value.dtype))


def placed(
    rank: int, axes: Sequence[int], inner: Sequence[Coord], outer: Sequence[Coord]
) -> list[Coord]:
    """Return the coordinates that are `inner` on `axes` and `outer` on the other axes."""
    inside, outside = iter(inner), iter(outer)
    return [next(inside) if a in axes else next(outside) for a in range(rank)]


def zeros(count: int) -> list[Coord]:
    """Return the first place on `count` axes."""
    return [coord(0)] * count
