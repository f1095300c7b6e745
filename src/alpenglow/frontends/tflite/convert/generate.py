"""Converters that make tensors of shapes and numbers: SHAPE, FILL, RANGE, diagonals."""

from __future__ import annotations

import math

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.frontends.presume import Needed, fixed, presume
from alpenglow.frontends.shapes import common_shape
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.dims import Dim, ceil_div
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES, FLOATS
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.tensor.generate import Iota, Range, Shape
from alpenglow.ops.tensor.movement import stretch


@on("SHAPE", moves=True)
def shape(s: Site) -> Made:
    x = s.input(0)
    return s.cast(s.g(Shape(0, x.type.rank), x), s.output().dtype)


@on("RANK", moves=True)
def rank(s: Site) -> Made:
    return s.g.constant(np.array(s.input(0).type.rank, np.int32))


@on("FILL", moves=True)
def fill(s: Site) -> Made:
    return stretch(s.g, s.scalar(1), s.shape(0))


@on("RANGE")
def number_range(s: Site) -> Made:
    dtypes = {s.input(i).type.dtype for i in range(3)}
    if len(dtypes) != 1:
        raise s.wrong(f"operands have dtypes {', '.join(sorted(dtypes))}, expected one dtype")
    dtype = dtypes.pop()
    if dtype in FLOATS:
        start, limit, step = (s.constant(i).reshape(-1)[0] for i in range(3))
        if step == 0 or (limit - start) * step < 0:
            raise astray(s, start, limit, step)
        count = math.ceil(abs((limit - start) / step))  # rounded as elements are, like TFLite
        return s.g(Range(count, float(start), float(step), dtype))
    (first,), (last,), (delta,) = s.dims(0), s.dims(1), s.ints(2)
    reach = last - first if delta > 0 else first - last
    if delta == 0 or not presume(reach, ">="):
        raise astray(s, first, last, delta)
    steps: Dim = ceil_div(reach, abs(delta))
    if isinstance(first, int):
        return s.g(Range(steps, first, delta, dtype))
    return s.apply(Add(), s.g(Range(steps, 0, delta, dtype)), s.scalar(0))


def astray(s: Site, start: object, limit: object, delta: object) -> ModelError:
    """Return the error for a range whose step is 0 or leads away from its limit."""
    return s.wrong(f"start is {start}, limit is {limit} and delta is {delta}, "
                   "expected delta other than 0 that leads from start to limit")  # fmt: skip


@on("BROADCAST_ARGS")
def broadcast_args(s: Site) -> Made:
    """The shape that two shapes broadcast to."""
    wanted = common_shape(s.kind, [s.dims(0), s.dims(1)])
    if not all(isinstance(d, int) for d in wanted):
        raise Needed("")
    return s.g.constant(np.array(wanted, DTYPES[s.output().dtype]))


@on("MATRIX_DIAG", moves=True)
def matrix_diag(s: Site) -> Made:
    x = s.input(0)
    if not x.type.rank:
        raise s.wrong(f"diagonal is {x.type}, expected rank 1 or more")
    n = x.type.shape[-1]
    row = stretch(s.g, s.reshaped(x, (*x.type.shape, 1)), (*x.type.shape, n))
    return on_diagonal(s, row, s.filled(0, row))


@on("MATRIX_SET_DIAG", moves=True)
def matrix_set_diag(s: Site) -> Made:
    x, diagonal = s.input(0), s.input(1)
    misfit = s.wrong(f"diagonal is {diagonal.type}, expected […, min(m, n)] "
                     f"for input […, m, n], which is {x.type}")  # fmt: skip
    if x.type.rank < 2 or diagonal.type.rank != x.type.rank - 1:
        raise misfit
    rows, columns = map(fixed, x.type.shape[-2:])
    if diagonal.type.shape[-1] != min(rows, columns):
        raise misfit
    outer = diagonal.type.shape[:-1]
    lying = (*outer, rows, 1) if rows <= columns else (*outer, 1, columns)
    return on_diagonal(s, stretch(s.g, s.reshaped(diagonal, lying), x.type.shape), x)


def on_diagonal(s: Site, inside: Value, outside: Value) -> Value:
    """Return elements of one tensor on the diagonal, and of the other elsewhere."""
    shape = inside.type.shape
    row, column = (s.g(Iota(shape, len(shape) - i)) for i in (2, 1))
    return s.g(Where(), s.g(Equal(), row, column), inside, outside)
