"""Writers of what makes tensors from nothing, or from a type alone."""

from __future__ import annotations

import numpy as np

from alpenglow.exporters.onnx.extents import extents, scalar_extent
from alpenglow.exporters.onnx.formula import number
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_movement import expanded, reshaped
from alpenglow.exporters.onnx.writer import Tensor, Writer
from alpenglow.ir.dims import is_open
from alpenglow.ir.graph import Value
from alpenglow.ir.types import INTS
from alpenglow.ops.tensor.copy import Fill
from alpenglow.ops.tensor.generate import Iota, Range, Shape, Size


@on(Range)
def range_(w: Writer, op: Range) -> Tensor:
    return _numbers(w, op)


def _numbers(w: Writer, op: Range) -> Tensor:
    """Write the numbers, or where their count is open 0, 1, … scaled and moved."""
    if not is_open(op.count):
        return w.tensor(op.reference())
    zero, one = np.array(0, np.int64), np.array(1, np.int64)
    steps = w("Range", zero, scalar_extent(w, op.count), one)
    wide = "i64" if op.dtype in INTS else "f64" if op.dtype == "f64" else "f32"
    y = w.cast(steps, wide)
    y = y if op.step == 1 else w("Mul", y, number(op.step, wide))
    y = y if op.start == 0 else w("Add", y, number(op.start, wide))
    return w.cast(y, op.dtype)


@on(Iota)
def iota(w: Writer, op: Iota) -> Tensor:
    axis = op.axis % len(op.shape)
    column = tuple(d if i == axis else 1 for i, d in enumerate(op.shape))
    return expanded(w, reshaped(w, _numbers(w, Range(op.shape[axis])), column), op.shape)


@on(Shape)
def shape(w: Writer, op: Shape, x: Value) -> Tensor:
    return w.tensor(extents(w, x.type.shape[op.start : op.end]))


@on(Size)
def size(w: Writer, op: Size, x: Value) -> Tensor:
    return w.tensor(scalar_extent(w, op.extents_of(x.type)))


@on(Fill)
def fill(w: Writer, op: Fill) -> Tensor:
    value = number(op.value, op.dtype).reshape((1,) * len(op.shape))
    return expanded(w, value, op.shape)
