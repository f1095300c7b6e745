"""Converters for ONNX Runtime's recurrent layers of bytes.

X is quantized once for all steps and sequences, the state in every step for all sequences: as ONNX
Runtime does on one thread.  On several it cuts a batch into parts that have scales of their own.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from alpenglow.extras.microsoft.onnx.convert_microsoft_quantize import scaled
from alpenglow.frontends.onnx.convert.elementwise import MICROSOFT
from alpenglow.frontends.onnx.convert.quantize import product
from alpenglow.frontends.onnx.convert.recurrent import (
    Direction,
    lstm_attributes,
    lstm_layer,
    of_direction,
)
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Mul, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.quantized.quantize import DynamicQuantize
from alpenglow.ops.reduction.reduction import ReduceMax, SumBytes
from alpenglow.ops.sequence.recurrent_integer import LstmInteger, packed_rows
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Reshape, Transpose, stretch


@on("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(s: Site) -> Made:
    turned = copy(s)
    turned.inputs = [*s.inputs[:8]]
    for i in (1, 2):
        turned.inputs[i] = s.g(Transpose((0, 2, 1)), s.input(i))
    quantized, x_scale, x_zero = s.g.add(DynamicQuantize(), [counted(s)]).results

    def multiply(rows: Value, w: Value, direction: int) -> Value:
        x = s.g(Reshape(rows.type.shape), quantized)
        w_scale, w_zero = (of_direction(s, s.input(i), direction) for i in (8, 9))
        return scaled(s, product(s, x, w, x_zero, w_zero), x_scale, w_scale, None)

    def apply(p: Direction, lengths: Value | None) -> tuple[Value, ...]:
        r, columns, zeros = weights(s, p.r, of_direction(s, s.input(11), p.direction))
        scale = stretch(s.g, of_direction(s, s.input(10), p.direction), columns.type.shape)
        op = LstmInteger(*lstm_attributes(s, p))
        operands = [p.xw, r, columns, scale, *p.states, p.extra, lengths, zeros]
        return s.g.add(op, operands).results

    return lstm_layer(turned, apply, multiply)


def counted(s: Site) -> Value:
    """Return X without the steps that no sequence has: they are not in its range."""
    x, lengths = s.input(0), s.optional(4)
    if lengths is None:
        return x
    steps = x.type.shape[0]
    most = stretch(s.g, s.g(ReduceMax((0,)), lengths), (steps,))
    some = s.g(Reshape((steps, 1, 1)), s.g(Less(), s.g(Range(steps, dtype="i32")), most))
    return s.g(Where(), stretch(s.g, some, x.type.shape), x, s.filled(0, x))


def weights(s: Site, r: Value, zero: Value) -> tuple[Value, Value, Value | None]:
    """Return packed weights, the sums of their columns, and zero points if they are not 0."""
    units, gates = r.type.shape
    zero = s.cast(zero, "i32")
    if r.type.dtype == "u8":
        half = s.g.constant(np.int32(128))
        r = s.cast(s.g(Sub(), s.cast(r, "i32"), stretch(s.g, half, r.type.shape)), "i8")
        zero = s.g(Sub(), zero, stretch(s.g, half, zero.type.shape))
    sums, packed = s.g(SumBytes((0,), False), r), packed_rows(s.g, r)
    if zero.array is not None and not zero.array.any():
        return packed, sums, None
    zeros = stretch(s.g, zero, (gates,))
    count = stretch(s.g, s.g.constant(np.int32(units)), (gates,))
    return packed, s.g(Sub(), sums, s.g(Mul(), zeros, count)), zeros
