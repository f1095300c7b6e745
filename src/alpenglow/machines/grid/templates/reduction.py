"""Reductions: threads share what becomes one element, and combine it in shared memory."""

from __future__ import annotations

import math

from alpenglow.ir.target import Target
from alpenglow.ir.types import FLOATS, INTS
from alpenglow.kernel.expr import Binary, Compare, Expr
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Window
from alpenglow.loops.instruction import Frame
from alpenglow.loops.reduction.reduction import finished, folded
from alpenglow.loops.reduction.search import better
from alpenglow.loops.rows import placed, zeros
from alpenglow.machines.grid.templates import templates
from alpenglow.machines.grid.templates.groups import below, computed, is_plain, pieces
from alpenglow.machines.grid.templates.team import Elements, Team, lines
from alpenglow.ops.reduction.reduction import (
    ArgMax,
    ArgMin,
    ArgReduction,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    Reduction,
    SumBytes,
)
from alpenglow.program.instr import Anchor, Instr

LEAST = 8
"""Elements of a line of which several threads have some each."""

MANY = 1 << 16
"""Lines that keep all threads of a machine busy, one each, if neighbours read neighbours."""


def _reduces(anchor: Anchor, instr: Instr, axes: tuple[int, ...]) -> bool:
    """Return whether lines are long enough to be shared, and not so many that none need be."""
    if not is_plain(anchor, instr):
        return False
    x = anchor.left()
    extent = math.prod(x.shape[a] for a in axes)
    count = math.prod(x.shape) // extent
    shared = count < MANY or is_along(x.shape, x.strides, axes)
    return x.type.dtype in FLOATS | INTS | {"bool"} and extent >= LEAST and shared


def is_along(shape: tuple[int, ...], strides: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Return whether neighbours in memory are of one line along these axes."""
    steps = [(abs(s), a in axes) for a, (d, s) in enumerate(zip(shape, strides, strict=True))
             if d > 1 and s]  # fmt: skip
    return min(steps, default=(0, True))[1]


def _fits(op: Reduction, anchor: Anchor, instr: Instr, target: Target) -> bool:
    return _reduces(anchor, instr, op.axes)


def _finds(op: ArgReduction, anchor: Anchor, instr: Instr, target: Target) -> bool:
    return _reduces(anchor, instr, (op.axis % len(anchor.left().shape),))


@templates.on(ReduceSum, "axes keepdims", _fits)
@templates.on(SumBytes, "axes keepdims", _fits)
@templates.on(ReduceMean, "axes keepdims", _fits)
@templates.on(ReduceProd, "axes keepdims", _fits)
@templates.on(ReduceMax, "axes keepdims", _fits)
@templates.on(ReduceMin, "axes keepdims", _fits)
def reduction(k: Frame, op: Reduction, target: Target) -> None:
    """Build a reduction: each thread combines every so many-th element, then all of a line meet."""
    line = _Lines(k, op.axes, op.keepdims)
    fold, dtype, neutral = folded(op, line.type)
    with lines(k, target, line.extents, line.extent, line.along) as (team, at, inside):

        def element(number: Expr) -> Expr:
            return k.loops.m.cast(line.element(at, number), dtype)

        elements = Elements(team, line.extent, dtype, element, keep=False)
        total = elements.combined(fold, neutral)
        with k.b.when(team.storing(inside)):
            k.sink.store(line.result(at), finished(k.loops, op, line.type, total))


@templates.on(ArgMax, "axis keepdims last", _finds)
@templates.on(ArgMin, "axis keepdims last", _finds)
def arg_reduction(k: Frame, op: ArgReduction, target: Target) -> None:
    """Build the search for an extreme: each thread keeps its best, then those of a line meet."""
    line = _Lines(k, (op.axis % len(k.inputs[0].region.shape),), op.keepdims)
    with lines(k, target, line.extents, line.extent, line.along) as (team, at, inside):
        pair = _best(k, op, team, line, at)
        _, index = team.combined(pair, lambda x, y: _better_pair(k, op, x, y))
        with k.b.when(team.storing(inside)):
            k.sink.store(line.result(at), index)


def _best(k: Frame, op: ArgReduction, team: Team, line: _Lines, at: list[Coord]) -> list[Expr]:
    """Return the best of a thread's elements and its place; those of other lines are none."""
    b, loops = k.b, k.loops
    assert team.split.slices <= line.extent, "each thread has an element"
    best, index = b.var(line.element(at, team.slice)), b.var(team.slice)

    def look(number: Expr, value: Expr, slot: int) -> None:
        wins = b.let(better(loops, op, value, best))
        b.set(best, loops.select(wins, value, best))
        b.set(index, loops.select(wins, number, index))

    dtype = computed(line.type.dtype)
    Elements(team, line.extent, dtype, lambda n: line.element(at, n), keep=False).each(look)
    return [best, index]


def _better_pair(k: Frame, op: ArgReduction, x: list[Expr], y: list[Expr]) -> list[Expr]:
    """Return the better of two values with their places; of equal ones the first, or the last."""
    (value, at), (other, there) = x, y
    wins = Binary("and", Compare("gt", there, at), better(k.loops, op, other, value))
    stays = Binary("and", Compare("lt", there, at), better(k.loops, op, value, other))
    before = Binary("and", Compare("lt", there, at), k.loops.m.bit_not(stays))
    taken = k.b.let(Binary("or", wins, before))
    return [k.loops.select(taken, other, value), k.loops.select(taken, there, at)]


class _Lines:
    """What is reduced to one element each: where elements and results are."""

    def __init__(self, k: Frame, axes: tuple[int, ...], keepdims: bool) -> None:
        self.k, self.axes, self.keepdims = k, axes, keepdims
        x: Window = k.inputs[0]
        self.x, self.type = x, x.region.type
        shape, strides = x.region.shape, x.region.strides
        self.rank = len(shape)
        self.along = is_along(shape, strides, axes)
        kept = [a for a in range(self.rank) if a not in axes]
        self.extents = [shape[a] for a in kept]
        self.extent = math.prod(shape[a] for a in axes)
        self._pieces = pieces([shape[a] for a in axes], [strides[a] for a in axes])
        inner, steps = zip(*self._pieces, strict=True)
        x.reshape((*self.extents, *inner), (*(strides[a] for a in kept), *steps))

    def element(self, at: list[Coord], number: Expr) -> Expr:
        """Return an element of a line by its number."""
        extents = [d for d, _ in self._pieces]
        inner = [coord(number)]
        if len(extents) > 1:
            inner = self.k.loops.split(below(self.k, number, self.extent), extents)
        return self.x.load(self.k.loops, [*at, *inner])

    def result(self, at: list[Coord]) -> list[Coord]:
        """Return where the result of a line is."""
        if not self.keepdims:
            return at
        return placed(self.rank, self.axes, zeros(self.rank), at)
