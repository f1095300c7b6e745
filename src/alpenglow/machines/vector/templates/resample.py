"""Interpolation along rows: a few rows at a time are transposed, so that each has a lane.

An element that a row reads at a computed position is then a vector of scratch memory, one lane per
row: each kernel position is one load, where a vector along the row would need a gather.
"""

from __future__ import annotations

import math

from alpenglow.ir.dims import ceil_div, is_open
from alpenglow.ir.target import Target
from alpenglow.ir.types import DTYPES
from alpenglow.kernel.expr import Binary, Const, Expr, Load, Splat
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.instruction import Frame
from alpenglow.loops.rows import zeros
from alpenglow.loops.tensor.gather import clamped
from alpenglow.machines.vector.templates import templates
from alpenglow.machines.vector.templates.transpose import transposed
from alpenglow.ops.image.resize import Interpolate
from alpenglow.program.instr import Anchor, Instr, Region


def _fits(op: Interpolate, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return True if dense rows of f32 or f64 are resampled, and a few of them fit into scratch."""
    (result,), operands = instr.outs, anchor.ins
    if not all(isinstance(r, Region) for r in operands) or target.facts.lanes_for(op.dtype) < 4:
        return False
    x, indices = (r for r in operands[:2] if isinstance(r, Region))
    dtype, axis = x.type.dtype, op.axis % len(x.shape)
    if dtype not in ("f32", "f64") or op.dtype != dtype:
        return False
    if any(map(is_open, (*x.shape, *result.shape, *indices.shape))) or 0 in result.shape:
        return False
    size = target.facts.lanes_for(dtype)
    return (
        x.strides[axis] == result.strides[axis] == 1
        and all(d == 1 for d in x.shape[axis + 1 :])
        and math.prod(x.shape[:axis]) >= size
        and _rounded_up(x.shape[axis], size) * size * DTYPES[dtype].itemsize <= target.facts.scratch
        # Rows may be computed twice, from operands that must still be what they were.
        and all(r.buffer != result.buffer for r in instr.reads())
    )


def _rounded_up(extent: int, size: int) -> int:
    return ceil_div(extent, size) * size


@templates.on(Interpolate, "axis dtype", _fits)
def interpolate_rows(k: Frame, op: Interpolate, target: Target) -> None:
    """Build the loops: parallel over groups of rows."""
    rows = _Rows(k, op, target.facts.lanes_for(op.dtype))
    *lead, last = k.out.region.shape[: rows.axis]
    loops, b = k.loops, k.b
    if last % rows.size == 0:
        with loops.parallel([*lead, last // rows.size]) as (*front, group):
            first = group * rows.size
            rows.build([[*front, first + i] for i in range(rows.size)])
        return
    count = math.prod([*lead, last])
    with loops.parallel([ceil_div(count, rows.size)]) as (group,):
        first = coord(b.let(Binary("min", group.expr() * rows.size, Const(count - rows.size))))
        rows.build([loops.split((first + i).expr(), [*lead, last]) for i in range(rows.size)])


class _Rows:
    """A group of rows, one for each of `size` lanes."""

    def __init__(self, k: Frame, op: Interpolate, size: int) -> None:
        self.k, self.b, self.size, self.dtype = k, k.b, size, op.dtype
        self.x, self.indices, self.weights = k.inputs[:3]
        shape = self.x.region.shape
        self.axis = op.axis % len(shape)
        self.extent, self.width = shape[self.axis], k.out.region.shape[self.axis]
        self.after = zeros(len(shape) - self.axis - 1)
        self.scratch = k.b.array(op.dtype, _rounded_up(self.extent, size) * size)

    def build(self, rows: list[list[Coord]]) -> None:
        """Transpose the rows into scratch, and what is computed of that into the result."""
        b, size = self.b, self.size
        origins = [self.x.address([*row, coord(0), *self.after]).base for row in rows]
        origins = [b.let(origin) for origin in origins]
        with b.loop(ceil_div(self.extent, size)) as number:
            start, mask = self._square(number, self.extent)
            loaded = [b.let(Load(self.x.buffer, at + start, size, mask)) for at in origins]
            for i, column in enumerate(transposed(b, loaded)):
                b.store(self.scratch, (start + i) * size, column)
        with b.loop(ceil_div(self.width, size)) as number:
            start, mask = self._square(number, self.width)
            columns = self._columns([self._limited(start, j) for j in range(size)])
            with self.k.loops.vector(size, mask):
                for row, value in zip(rows, transposed(b, columns), strict=True):
                    self.k.sink.store([*row, Coord(start, 1, size), *self.after], value)

    def _square(self, number: Expr, extent: int) -> tuple[Expr, Expr | None]:
        """Return where a square begins on an axis; of a short axis also the mask of what it has.

        The last square begins where it still fits.
        """
        if extent < self.size:
            ramp = Coord(Const(0), 1, self.size)
            return Const(0), self.b.let(ramp.compare("lt", extent))
        return self.b.let(Binary("min", number * self.size, Const(extent - self.size))), None

    def _limited(self, start: Expr, j: int) -> Expr:
        return start + j if self.width >= self.size else Const(min(j, self.width - 1))

    def _columns(self, places: list[Expr]) -> list[Expr]:
        """Return the elements of all rows at each of these places."""
        b, loops, m = self.b, self.k.loops, self.k.loops.m
        totals = [b.var(Const(0.0, self.dtype, self.size)) for _ in places]
        with loops.loop(self.indices.region.shape[0]) as tap:
            for total, place in zip(totals, places, strict=True):
                at = [tap, coord(place)]
                index = clamped(loops, self.indices.load(loops, at), self.extent)
                weight = b.let(m.cast(self.weights.load(loops, at), self.dtype))
                element = Load(self.scratch, (index * self.size).expr(), self.size)
                product = m.mul(element, Splat(weight, self.size))
                b.set(total, m.add(total, product))
        return [b.let(total) for total in totals]
