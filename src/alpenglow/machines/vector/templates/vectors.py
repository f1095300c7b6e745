"""Products of a matrix and few vectors: the matrix is read once, where it lies, and never packed.

Either operand may be the matrix; the other one holds a few columns, or rows, of the inner extent.
Where the elements that are multiplied by one vector lie side by side, each result is a *dot
product*: lanes of sums run along both, for several rows at once, and are added up in the end.
Where results lie side by side, sums are *gathered*: a few rows of the matrix, each times a number,
are added to sums that stay in the cache, so that memory is read along a few rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from alpenglow.ir.dims import ceil_div, estimate, is_open
from alpenglow.ir.graph import Value
from alpenglow.ir.target import Target
from alpenglow.ir.types import FLOATS, HALVES
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import (
    Binary,
    Blend,
    Buffer,
    Compare,
    Const,
    Convert,
    Expr,
    Load,
    Reduce,
    Register,
    Shuffle,
    Splat,
    lift,
)
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.form import Window
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.operators.blocked import FEW
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.products import multiply_add
from alpenglow.machines.vector.templates.tile import (
    dispatch,
    in_order,
    is_shared,
    merge_shared,
    split_rows,
    tiles_in_parallel,
)
from alpenglow.ops.product.contraction import MatMul
from alpenglow.program.instr import Anchor, Instr, Region

BUSY = 8
"""Sums that are in the making: two begin in a cycle, and each takes four."""

ROWS = 4
"""Rows of a matrix that dot products read side by side: more fall out of the cache together."""

BLOCK = 8
"""Rows of a matrix that are added to gathered sums at once."""

SUMS = 2048
"""Gathered sums of a part of the results; they stay in the first-level cache."""

LEAST = 1024
"""Gathered sums that are a part of their own: memory is read in pieces of a page.

Two threads have a part each of fewer.
"""

SMALL = 1 << 16
"""Bytes of a matrix below which it is as fast to pack it for more than four vectors."""

LONGEST = 1 << 15
"""Elements of vectors that are put in order on the stack."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A product of a matrix and few vectors.

    The matrix is the left operand, or the right one if `turned`; `dots` says that elements lie side
    by side along the inner extent.
    """

    turned: bool
    count: int
    dots: bool


def shape_of(x: Region | Value, y: Region | Value, target: Target) -> Shape | None:
    """Return how x times y is a matrix times few vectors; None if it is not."""
    if isinstance(x, Value) or isinstance(y, Value):
        return None  # it is computed on the way: that is attention
    if x.type.dtype != y.type.dtype or x.type.dtype not in FLOATS:
        return None
    *batch, rows, inner = x.shape
    columns = y.shape[-1]
    if is_shared(y):
        rows = math.prod([*batch, rows])
    lanes = target.facts.lanes_for(x.type.dtype)
    left, right = _way(False, x, columns, rows, lanes), _way(True, y, rows, columns, lanes)
    way = right or left if estimate(columns) > estimate(rows) else left or right
    if lanes == 1 or way is None or estimate(inner) < 2 * lanes:
        return None
    vectors = x if way.turned else y
    packs = way.dots and not is_number(vectors.strides[-1 if way.turned else -2], 1)
    if not target.facts.own_cache and (packs or not way.dots):
        return None  # a microcontroller has no room for sums or vectors on the stack
    return way if not packs or inner * way.count <= LONGEST else None


def _way(turned: bool, matrix: Region, count: int, results: int, lanes: int) -> Shape | None:
    """Return how so many vectors are multiplied by the matrix; None if they are too many."""
    if is_open(count) or count > FEW:
        return None
    along, across = matrix.strides[-2:] if turned else matrix.strides[:-3:-1]
    if is_number(along, 1):
        return Shape(turned, count, True)
    size = math.prod(map(estimate, matrix.shape[-2:])) * matrix.type.numpy.itemsize
    if count > FEW // 2 and size < SMALL:
        return None
    wide = is_number(across, 1) and 2 * estimate(results) >= lanes
    return Shape(turned, count, False) if wide else None


def _fits(op: MatMul, anchor: Anchor, instr: Instr, target: Target) -> bool:
    x, y = anchor.operands()[:2]
    return 0 not in instr.outs[0].shape and shape_of(x, y, target) is not None


@templates.on(MatMul, "wide", _fits)
def mat_mul_vectors(k: Frame, op: MatMul, target: Target) -> None:
    """Build the product: parallel over the results."""
    x, y = k.inputs[:2]
    shape = shape_of(x.region, y.region, target)
    assert shape is not None, "the template fits"
    merge_shared(x, y, [k.out, *k.inputs[2:]])
    if is_shared(y.region) and shape.turned:
        shape = replace(shape, count=x.region.shape[-2])
    problem = _Problem(k, shape, target)
    if shape.dots:
        _Dots(problem).build()
    else:
        _gather(problem)


class _Problem:
    """A matrix, vectors, and where the results of both are."""

    def __init__(self, k: Frame, shape: Shape, target: Target) -> None:
        self.k, self.target, self.count, self.turned = k, target, shape.count, shape.turned
        x, y = k.inputs[:2]
        self.matrix, self.vectors = (y, x) if shape.turned else (x, y)
        self.dtype = "f32" if x.buffer.dtype in HALVES else x.buffer.dtype
        self.lanes = target.facts.lanes_for(self.dtype)
        self.busy = min(BUSY, target.facts.registers // 2)
        self.inner: int = x.region.shape[-1]
        *self.batch, rows, columns = k.out.region.shape
        self.results: int = columns if shape.turned else rows
        self.down, self.along = self._strides(self.matrix, shape.turned)
        self.apart, self.step = self._strides(self.vectors, not shape.turned)
        _, self.out_apart = self._strides(k.out, shape.turned)

    @staticmethod
    def _strides(w: Window, turned: bool) -> tuple[int, int]:
        """Return the strides of the last two axes, the one of the matrix' results first."""
        first, second = w.region.strides[-2:]
        return (second, first) if turned else (first, second)

    def place(self, lead: list[Coord], result: Coord, vector: Coord) -> list[Coord]:
        return [*lead, vector, result] if self.turned else [*lead, result, vector]

    def zero(self) -> Expr:
        return Const(0.0, self.dtype, self.lanes)

    def load(self, w: Window, at: Expr, lanes: int = 1, mask: Expr | None = None) -> Expr:
        """Return elements of an operand as what is summed."""
        x = Load(w.buffer, at, lanes, mask)
        return x if x.dtype == self.dtype else Convert(x, self.dtype)

    def add(self, x: Expr, y: Expr, total: Register) -> None:
        self.k.b.set(total, multiply_add(x, y, total, self.target))

    def base(self, w: Window, lead: list[Coord]) -> Expr:
        """Return where the matrix of a batch begins."""
        return self.k.b.let(w.address([*lead, coord(0), coord(0)]).base)

    def store(self, at: list[Coord], value: Expr, mask: Expr | None = None) -> None:
        with self.k.loops.vector(value.lanes, mask):
            self.k.sink.store(at, value)


# ── dot products ──


class _Dots:
    """Lanes of sums along the inner extent, for a few rows of the matrix and each vector."""

    def __init__(self, problem: _Problem) -> None:
        self.p, self.k, self.b = problem, problem.k, problem.k.b
        registers = problem.target.facts.registers
        self.cols = min(problem.count, FEW if registers >= 32 else FEW // 2)
        rows = min(ROWS, registers * 3 // 4 // self.cols)
        self.tiles = split_rows(problem.results, 1, problem.target, limit=rows)
        self.packed: Buffer | None = None
        if not is_number(problem.step, 1):
            size = LONGEST if is_open(problem.inner) else problem.inner * problem.count
            self.packed = self.b.array(problem.dtype, size)

    def build(self) -> None:
        p, k = self.p, self.k
        strides = p.vectors.region.strides[:-2]
        alike = all(is_number(d, 1) or is_number(s, 0)
                    for d, s in zip(p.batch, strides, strict=True))  # fmt: skip
        if self.packed is None or alike:
            if self.packed is not None:
                self._pack([coord(0) for _ in p.batch])
            with k.loops.parallel([*p.batch, tiles_in_parallel(self.tiles)]) as (*lead, t):
                dispatch(self.b, self.tiles, t, self._tile_of(lead))
            return
        with k.loops.parallel(p.batch) as lead:
            self._pack(lead)
            in_order(self.b, self.tiles, self._tile_of(lead))

    def _pack(self, lead: list[Coord]) -> None:
        """Put the elements of each vector side by side."""
        p, b = self.p, self.b
        assert self.packed is not None, "vectors are packed"
        base = p.base(p.vectors, lead)
        with b.loop(lift(p.inner)) as i:
            for v in range(p.count):
                element = p.load(p.vectors, base + i * p.step + v * p.apart)
                b.store(self.packed, i + v * lift(p.inner), element)

    def _tile_of(self, lead: list[Coord]) -> Callable[[int, Expr], None]:
        """Return a function that computes a number of rows of a matrix from a first row on."""
        p, b = self.p, self.b
        matrix = p.base(p.matrix, lead)
        packed = self.packed is not None
        vectors = Const(0) if packed else p.base(p.vectors, lead)
        apart = p.inner if packed else p.apart

        def tile(height: int, start: Expr) -> None:
            rows = [b.let(matrix + (start + r) * p.down) for r in range(height)]
            for first in range(0, p.count, self.cols):
                last = min(first + self.cols, p.count)
                columns = [b.let(vectors + v * lift(apart)) for v in range(first, last)]
                self._store(lead, start, first, self._sums(rows, columns))

        return tile

    def _sums(self, rows: list[Expr], columns: list[Expr]) -> list[list[Expr]]:
        """Return lanes of sums of each row of the matrix times each vector."""
        p, b, lanes = self.p, self.b, self.p.lanes
        slots = max(1, min(4, p.busy // (len(rows) * len(columns))))
        acc = [[[b.var(p.zero()) for _ in columns] for _ in rows] for _ in range(slots)]

        def step(at: Expr, slot: int, mask: Expr | None = None) -> None:
            factors = [b.let(self._factor(column + at, mask)) for column in columns]
            for row, totals in zip(rows, acc[slot], strict=True):
                x = p.load(p.matrix, row + at, lanes, mask)
                x = x if len(factors) == 1 else b.let(x)
                for factor, total in zip(factors, totals, strict=True):
                    p.add(x, factor, total)

        unroll = max(slots, 2)
        full, rest = divmod(p.inner, lanes)
        groups, left = divmod(full, unroll)
        if is_open(groups) or groups:
            with b.loop(lift(groups)) as i:
                for u in range(unroll):
                    step((i * unroll + u) * lanes, u % slots)
        if is_open(left):
            with b.loop(lift(left)) as i:
                step((i + lift(groups * unroll)) * lanes, 0)
        else:
            for u in range(left):
                step(Const((groups * unroll + u) * lanes), u % slots)
        if is_open(rest) or rest:
            ramp = Coord(lift(full * lanes), 1, lanes)
            step(lift(full * lanes), 0, b.let(ramp.compare("lt", p.inner)))
        return [
            [b.let(_total(of_slots)) for of_slots in zip(*of_row, strict=True)]
            for of_row in zip(*acc, strict=True)
        ]

    def _factor(self, at: Expr, mask: Expr | None) -> Expr:
        """Return elements of a vector that lie side by side."""
        p = self.p
        if self.packed is None:
            return p.load(p.vectors, at, p.lanes, mask)
        return Load(self.packed, at, p.lanes, mask)

    def _store(
        self, lead: list[Coord], row: Expr, vector: int, sums: list[list[Expr]]
    ) -> None:
        """Store the sums of rows and vectors from these on, in vectors along what lies densely."""
        p, at = self.p, (coord(row), coord(vector))
        down = len(sums[0]) == 1 or not is_number(p.out_apart, 1)
        for i, line in enumerate(zip(*sums, strict=True) if down else sums):
            for first in range(0, len(line), p.lanes):
                group = line[first : first + p.lanes]
                total = self.b.let(added(self.b, group))
                start = at[0 if down else 1] + first
                ramp = Coord(start.base, 1, total.lanes) if total.lanes > 1 else start
                full = total.lanes == len(group)
                mask = None if full else self.b.let(ramp.compare("lt", start + len(group)))
                place = (ramp, at[1] + i) if down else (at[0] + i, ramp)
                p.store(p.place(lead, *place), total, mask)


def _total(sums: Sequence[Expr]) -> Expr:
    return reduce(partial(Binary, "add"), sums)


def added(b: Builder, vectors: Sequence[Expr]) -> Expr:
    """Return the sum of the lanes of each vector, one a lane, in as many lanes as a power of 2.

    In each step two vectors become one: lanes that are so far apart meet.
    """
    width, lanes = 1 << (len(vectors) - 1).bit_length(), vectors[0].lanes
    assert width <= lanes, "a lane holds the sum of a vector"
    rest = [*vectors, *[vectors[-1]] * (width - len(vectors))]
    apart = 1
    while len(rest) > 1:
        low = tuple(i + (lanes - apart) * bool(i & apart) for i in range(lanes))
        high = tuple(i + apart if not i & apart else i + lanes for i in range(lanes))
        rest = [
            b.let(Binary("add", Blend(x, y, low), Blend(x, y, high)))
            for x, y in zip(rest[::2], rest[1::2], strict=True)
        ]
        apart *= 2
    (total,) = rest
    if width == 1:
        return Reduce("add", total)
    while lanes > width:
        lanes //= 2
        low, high = tuple(range(lanes)), tuple(range(lanes, 2 * lanes))
        total = b.let(Binary("add", Shuffle(total, low), Shuffle(total, high)))
    return total


# ── gathered sums ──


def _gather(p: _Problem) -> None:
    """Build the sums of a matrix whose results lie side by side."""
    vectors = ceil_div(p.results, p.lanes)
    if not is_open(vectors) and vectors * p.count <= p.busy:
        with p.k.loops.parallel(p.batch) as lead:
            _in_registers(p, lead, vectors)
        return
    _Gathered(p).build()


def _in_registers(p: _Problem, lead: list[Coord], vectors: int) -> None:
    """Add all rows of a matrix of few results to sums in registers."""
    b, lanes = p.k.b, p.lanes
    matrix, numbers = p.base(p.matrix, lead), p.base(p.vectors, lead)
    slots = p.busy // (vectors * p.count)
    acc = [[[b.var(p.zero()) for _ in range(vectors)] for _ in range(p.count)]
           for _ in range(slots)]  # fmt: skip
    ramps = [Coord(Const(j * lanes), 1, lanes) for j in range(vectors)]
    masks = [None if (j + 1) * lanes <= p.results else b.let(ramp.compare("lt", p.results))
             for j, ramp in enumerate(ramps)]  # fmt: skip

    def step(row: Expr, slot: int) -> None:
        at = b.let(matrix + row * p.along)
        loaded = [b.let(p.load(p.matrix, at + j * lanes, lanes, mask))
                  for j, mask in enumerate(masks)]  # fmt: skip
        for v, totals in enumerate(acc[slot]):
            one = p.load(p.vectors, numbers + row * p.step + v * p.apart)
            factor = b.let(Splat(one, lanes))
            for x, total in zip(loaded, totals, strict=True):
                p.add(factor, x, total)

    groups, left = divmod(p.inner, slots)
    with b.loop(lift(groups)) as i:
        for slot in range(slots):
            step(i * slots + slot, slot)
    with b.loop(lift(left)) as i:
        step(i + lift(groups * slots), 0)
    for v in range(p.count):
        for j, (ramp, mask) in enumerate(zip(ramps, masks, strict=True)):
            total = b.let(_total([of_slot[v][j] for of_slot in acc]))
            p.store(p.place(lead, ramp, coord(v)), total, mask)


class _Gathered:
    """Sums in the cache, to which a few rows of the matrix at a time are added."""

    def __init__(self, problem: _Problem) -> None:
        self.p, self.b = problem, problem.k.b
        p = problem
        self.cols = max(1, min(4, p.busy // p.count))
        self.wide = self.cols * p.lanes
        most = SUMS // p.count
        results = estimate(p.results)
        share = max(min(LEAST, ceil_div(results, 2)), ceil_div(results, 8))
        self.size = ceil_div(min(most, results if p.k.loops.serial else share), self.wide)
        self.size *= self.wide
        self.sums = self.b.array(p.dtype, p.count * self.size)

    def build(self) -> None:
        p, b = self.p, self.b
        parts = ceil_div(p.results, self.size)
        with p.k.loops.parallel([*p.batch, parts]) as (*lead, part):
            first = b.let(part.base * self.size)
            here: Expr = Const(self.size)
            if is_open(p.results) or p.results % self.size:
                here = b.let(Binary("min", lift(p.results) - first, Const(self.size)))
            with b.loop(p.count * self.size // p.lanes) as i:
                b.store(self.sums, i * p.lanes, p.zero())
            matrix = b.let(p.base(p.matrix, lead) + first)
            numbers = p.base(p.vectors, lead)
            blocks, left = divmod(p.inner, BLOCK)
            with b.loop(lift(blocks)) as i:
                self._add(b.let(i * BLOCK), BLOCK, matrix, numbers, here)
            if is_open(left):
                with b.loop(lift(left)) as i:
                    self._add(b.let(i + lift(blocks * BLOCK)), 1, matrix, numbers, here)
            elif left:
                self._add(Const(blocks * BLOCK), left, matrix, numbers, here)
            self._store(lead, first, here)

    def _add(self, row: Expr, height: int, matrix: Expr, numbers: Expr, here: Expr) -> None:
        """Add so many rows of the matrix, each times its numbers, to the sums."""
        p, b, lanes = self.p, self.b, self.p.lanes
        rows = [b.let(matrix + (row + r) * p.along) for r in range(height)]

        def factor(r: int, v: int) -> Expr:
            one = p.load(p.vectors, numbers + (row + r) * p.step + v * p.apart)
            return b.let(Splat(one, lanes))

        alone = [factor(r, 0) for r in range(height)] if p.count == 1 else None

        def step(at: Expr, cols: int, mask: Expr | None = None) -> None:
            places = [[b.let(at + (v * self.size + j * lanes)) for j in range(cols)]
                      for v in range(p.count)]  # fmt: skip
            acc = [[b.var(Load(self.sums, place, lanes)) for place in line] for line in places]
            for r, begin in enumerate(rows):
                loaded = [
                    p.load(p.matrix, begin + at + j * lanes, lanes, mask) for j in range(cols)
                ]
                if alone is None:
                    loaded = [b.let(x) for x in loaded]
                for v, totals in enumerate(acc):
                    one = factor(r, v) if alone is None else alone[r]
                    for x, total in zip(loaded, totals, strict=True):
                        p.add(one, x, total)
            for line, totals in zip(places, acc, strict=True):
                for place, total in zip(line, totals, strict=True):
                    b.store(self.sums, place, total)

        with b.loop(here // self.wide) as j:
            step(b.let(j * self.wide), self.cols)
        if isinstance(here, Const):
            return
        done = b.let(here // self.wide * self.wide)
        with b.loop((here - done) // lanes) as j:
            step(b.let(done + j * lanes), 1)
        last = b.let(here // lanes * lanes)
        with b.when(Compare("lt", last, here)):
            ramp = Coord(last, 1, lanes)
            step(last, 1, b.let(ramp.compare("lt", here)))

    def _store(self, lead: list[Coord], first: Expr, here: Expr) -> None:
        p, b, lanes = self.p, self.b, self.p.lanes
        for v in range(p.count):
            with b.loop((here + (lanes - 1)) // lanes) as j:
                ramp = Coord(b.let(first + j * lanes), 1, lanes)
                partly = not isinstance(here, Const)
                mask = b.let(ramp.compare("lt", p.results)) if partly else None
                total = b.let(Load(self.sums, j * lanes + v * self.size, lanes))
                p.store(p.place(lead, ramp, coord(v)), total, mask)
