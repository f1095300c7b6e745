"""The writer of what makes sums of products into steps again: QLinearConv and QLinearMatMul.

If only the rounding reads the sums, product and rounding are one operator of ONNX.  Its scale of
the weights is the multiplier, its other scales are 1: runtimes use only the product of the three.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_contraction import (
    column_zeros,
    has_zeros,
    matrix,
    one_zero,
    scalar,
    window_of,
)
from alpenglow.exporters.onnx.write_elementwise import stretched
from alpenglow.exporters.onnx.write_movement import reshaped
from alpenglow.exporters.onnx.write_quantize import grid_of, placed
from alpenglow.exporters.onnx.writer import Refused, Tensor, Writer
from alpenglow.ir.graph import Node, Value
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.quantized.integer import ConvInteger, MatMulInteger
from alpenglow.ops.quantized.quantize import Requantize
from alpenglow.ops.tensor.movement import unstretched

RANGES = {"u8": (0, 255), "i8": (-128, 127)}
"""The bounds of a result that is limited by its type alone."""


@dataclass(frozen=True, slots=True)
class Sums:
    """A product in integers, and the bias of each channel that is added to it, if there is one."""

    node: Node
    bias: Value | None


@on(Requantize)
def requantize(w: Writer, op: Requantize, x: Value, multiplier: Value, zero: Value) -> Tensor:
    sums = sums_of(x)
    if op.rounding != "even":
        raise Refused(f"rounding is '{op.rounding}', expected 'even' as in ONNX")
    if sums is not None and RANGES.get(op.dtype) == (op.low, op.high):
        y = _whole(w, sums, x, multiplier, zero)
        if y is not None:
            return y
    return _formula(w, op, x, multiplier, zero)


def sums_of(x: Value) -> Sums | None:
    """Return the product that x is, if nothing else reads it and ONNX has it."""
    node, bias = x.producer, None
    if node is None or len(x.users) > 1:
        return None
    if isinstance(node.op, Add):
        for total, other in (node.inputs, node.inputs[::-1]):
            assert total is not None and other is not None, "a sum has two operands"
            channel = _by_channel(other, x)
            if channel is not None and total.producer is not None and len(total.users) == 1:
                node, bias = total.producer, channel
                break
    if not isinstance(node.op, ConvInteger | MatMulInteger) or not has_zeros(node):
        return None
    if bias is not None and not isinstance(node.op, ConvInteger):
        return None
    return Sums(node, bias)


def _by_channel(v: Value, x: Value) -> Value | None:
    """Return the value that was stretched to v along axis 1 of x, or None."""
    narrow = unstretched(v)
    shape = (1,) * (x.type.rank - narrow.type.rank) + narrow.type.shape
    others = [d for i, d in enumerate(shape) if i != 1]
    return narrow if shape[1:2] == x.type.shape[1:2] and all(d == 1 for d in others) else None


def _whole(w: Writer, sums: Sums, x: Value, multiplier: Value, zero: Value) -> Tensor | None:
    """Return the operator that multiplies and rounds; None if it has no place for the scales."""
    scale, offset = grid_of(multiplier, x.type), one_zero(zero)
    rank, (a, b, a_zero, b_zero) = x.type.rank, sums.node.inputs
    assert a is not None and b is not None and a_zero is not None and b_zero is not None
    op = sums.node.op
    axis = 1 if isinstance(op, ConvInteger) else rank - 1
    if scale is None or scale.axis not in (None, axis) or scale.block or offset is None:
        return None
    factor, one = placed(w, scale, scale), np.array(1, np.float32)
    ends = (one, scalar(w, offset))
    first = (a, one, scalar(w, one_zero(a_zero)))
    if isinstance(op, ConvInteger):
        bias = None if sums.bias is None else reshaped(w, sums.bias, (-1,))
        number = one_zero(b_zero)
        if number is None:
            return None
        zeros = scalar(w, number)
        if scale.axis is not None:
            zeros = w("Expand", zeros, w("Shape", factor))
        return w("QLinearConv", *first, b, factor, zeros, *ends, bias, **window_of(op, b))
    if scale.axis is not None or one_zero(b_zero) is None:
        return None
    return w("QLinearMatMul", *first, matrix(b), factor, column_zeros(w, b_zero), *ends)


def _formula(w: Writer, op: Requantize, x: Value, multiplier: Value, zero: Value) -> Tensor:
    """Write the formula, with a Round in the place of the addition that rounds."""
    m = OnnxMath(w)
    sums, factor, zeros = stretched([x, multiplier, zero])
    offset = m.cast(zeros, "f32")
    steps = m.mul(m.cast(sums, "f32"), factor)
    low, high = (m.sub(float(bound), offset) for bound in (op.low, op.high))
    above = m.where(m.gt(steps, low), steps, low)  # no number is above anything: it becomes low
    near = m.where(m.lt(above, high), above, high)
    return w.cast(w.cast(m.add(m.round(near), offset), "i32"), op.dtype)
