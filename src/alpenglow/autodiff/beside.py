"""Gradients that are not in the class of their operator, since they need modules that import it.

A broadcast is undone by a sum, and a sum by a broadcast; one of the two files must come first.
Each of the three products of a convolution is differentiated by the other two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.words import FIX_DIMENSIONS
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, TensorType
from alpenglow.ops.elementwise.activation import Elu, HardSwish, LeakyRelu
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Clip, Div, Maximum, Mul, Neg
from alpenglow.ops.elementwise.comparison import (
    Equal,
    Greater,
    GreaterOrEqual,
    IsInf,
    Less,
    LessOrEqual,
)
from alpenglow.ops.elementwise.complex import ViewAsComplex, ViewAsReal
from alpenglow.ops.elementwise.logarithm import Log1p, XLog1pY, XLogY
from alpenglow.ops.elementwise.logic import BitAnd, BitOr
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.elementwise.transcendental import Atan2, Exp, Hypot, Log
from alpenglow.ops.image.resize import Interpolate, summed_products
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.reduction.reduction import ReduceProd, ReduceSum, as_type, filled, in_floats
from alpenglow.ops.reduction.scan import CumProd
from alpenglow.ops.tensor.gather import summed_at
from alpenglow.ops.tensor.movement import Broadcast, Pad, Reshape, Transpose
from alpenglow.ops.tensor.sum_at import SumAt
from alpenglow.ops.window.conv_filter import ConvFilter
from alpenglow.ops.window.conv_transpose import ConvTranspose


def broadcast(op: Broadcast, b: Graph, dy: Value, x: Value) -> Value:
    new = dy.type.rank - x.type.rank
    stretched = [i + new for i, d in enumerate(x.type.shape) if d != dy.type.shape[i + new]]
    total = summed(b, dy, (*range(new), *stretched))
    return b(Reshape(x.type.shape), total)


def summed(b: Graph, x: Value, axes: tuple[int, ...]) -> Value:
    """Return the sums of reals or complex numbers along axes."""
    if x.type.dtype in COMPLEX:
        return b(ViewAsComplex(), b(ReduceSum(axes, False), b(ViewAsReal(), x)))
    return b(ReduceSum(axes, False), x)


def pad(op: Pad, b: Graph, dy: Value, x: Value) -> Value:
    """Cut off what was added; where it repeats elements of x, it is added to them."""
    if op.mode == "constant":
        return b(Pad(tuple(-n for n in op.before), tuple(-n for n in op.after)), dy)
    for axis, extent in enumerate(x.type.shape):
        amounts = op.before[axis], op.after[axis]
        if amounts == (0, 0):
            continue
        if not known(extent):
            raise UnsupportedError(
                f"gradient of pad(mode='{op.mode}'): axis {axis} is dynamic ({extent}), expected "
                "a fixed dimension",
                hint=FIX_DIMENSIONS,
            )
        places = np.pad(np.arange(extent), amounts, mode=op.mode)  # type: ignore[call-overload]
        dy = summed_at(b, dy, b.constant(places.astype(np.int64)), axis, extent)
    return dy


def conv(
    op: Conv, b: Graph, dy: Value, x: Value, w: Value, bias: Value | None = None
) -> tuple[Value, Value, Value]:
    spatial = x.type.rank - 2
    pads, strides, dilations = op.window(spatial)
    wide_x, wide_w = (as_type(b, v, dy.type.dtype) for v in (x, w))
    dx = _input_of_conv(op, b, dy, wide_x, wide_w)
    dw = b(ConvFilter(w.type.extents[2:], strides, pads, dilations, op.group), wide_x, dy)
    dbias = b(ReduceSum((0, *range(2, 2 + spatial)), False), dy)
    return as_type(b, dx, x.type.dtype), as_type(b, dw, w.type.dtype), dbias


def conv_filter(op: ConvFilter, b: Graph, ddw: Value, x: Value, dy: Value) -> tuple[Value, Value]:
    """The products of x and dy are linear in each: take what the weights change by as weights."""
    return _input_of_conv(op.conv, b, dy, x, ddw), b(op.conv, x, ddw)


def _input_of_conv(op: Conv, b: Graph, dy: Value, x: Value, w: Value) -> Value:
    """Add the windows up where they were; what the last one did not reach is appended."""
    spatial = x.type.rank - 2
    pads, strides, dilations = op.window(spatial)
    missed = []
    for i in range(spatial):
        span = (w.type.shape[2 + i] - 1) * dilations[i] + 1
        cut = pads[i] + pads[spatial + i]
        reached = (dy.type.shape[2 + i] - 1) * strides[i] + span - cut
        missed.append(x.type.shape[2 + i] - reached)
    if not all(isinstance(n, int) for n in missed):
        raise UnsupportedError(
            "gradient: conv with strides of dynamic dimensions is not supported",
            hint=FIX_DIMENSIONS,
        )
    back = ConvTranspose(strides, pads, dilations, tuple(map(int, missed)), op.group)
    return b(back, dy, w)


def atan2(op: Atan2, b: Graph, da: Value, y: Value, x: Value) -> tuple[Value, Value]:
    """Divide by the square of the distance from the origin; 0 there and at an infinite distance.

    The formula is flat on the axes and where its two halves meet.
    """
    large = b(Maximum(), b(Abs(), y), b(Abs(), x))
    zero, one = filled(b, 0, large), filled(b, 1, large)
    nowhere = b(BitOr(), b(Equal(), large, zero), b(IsInf(), large))
    y, x = b(Where(), nowhere, zero, y), b(Where(), nowhere, zero, x)
    large = b(Where(), nowhere, one, large)
    part_y, part_x = b(Div(), y, large), b(Div(), x, large)
    total = b(Add(), b(Mul(), y, part_y), b(Mul(), x, part_x))
    share = b(Div(), da, b(Where(), nowhere, one, total))
    return b(Mul(), share, part_x), b(Neg(), b(Mul(), share, part_y))


def hypot(op: Hypot, b: Graph, dh: Value, x: Value, y: Value) -> list[Value]:
    """Divide by the length, and take 0 at the origin.

    The formula reads |x| and |y|, whose second derivatives are lost on the axes.
    """
    wide_x, wide_y, dh = in_floats(b, x), in_floats(b, y), in_floats(b, dh)
    length, zero = b(op, wide_x, wide_y), filled(b, 0, dh)
    nowhere = b(Equal(), length, zero)
    length = b(Where(), nowhere, filled(b, 1, length), length)
    shares = (b(Where(), nowhere, zero, b(Div(), v, length)) for v in (wide_x, wide_y))
    return [as_type(b, b(Mul(), dh, share), x.type.dtype) for share in shares]


def clip(op: Clip, b: Graph, dy: Value, x: Value) -> Value:
    """Pass the gradient on between the limits, and at them if the clip is closed.

    NaN has a gradient unless the clip is closed, as in PyTorch's hardtanh and clamp.  An open clip
    looks at its result, so x need not be kept.
    """
    y, zero = x if op.closed else b(op, x), filled(b, 0, dy)
    beyond, within = (LessOrEqual(), GreaterOrEqual()), (GreaterOrEqual(), LessOrEqual())
    for limit, outside, inside in zip((op.low, op.high), beyond, within, strict=True):
        if math.isfinite(limit) and op.closed:
            dy = b(Where(), b(inside, y, filled(b, limit, y)), dy, zero)
        elif math.isfinite(limit):
            dy = b(Where(), b(outside, y, filled(b, limit, y)), zero, dy)
    return dy


def hard_swish(op: HardSwish, b: Graph, dy: Value, x: Value) -> Value:
    """Choose the slope by x; the formula multiplies an infinite x by a slope of 0."""
    wide = in_floats(b, x)
    zero, one, limit = (filled(b, number, wide) for number in (0, 1, 3))
    line = b(Add(), b(Div(), wide, limit), filled(b, 0.5, wide))
    slope = b(Where(), b(Greater(), wide, b(Neg(), limit)), line, zero)
    slope = b(Where(), b(Less(), wide, limit), slope, one)
    return as_type(b, b(Mul(), in_floats(b, dy), slope), x.type.dtype)


def leaky_relu(op: LeakyRelu, b: Graph, dy: Value, x: Value) -> Value:
    """Take `alpha` for the slope at 0, as PyTorch and TensorFlow do."""
    wide = in_floats(b, dy)
    below = as_type(b, b(Mul(), wide, filled(b, op.alpha, wide)), dy.type.dtype)
    return b(Where(), b(Greater(), x, filled(b, 0, x)), dy, below)


def elu(op: Elu, b: Graph, dy: Value, x: Value) -> Value:
    """The slope at 0 is alpha, as in PyTorch and JAX, and at NaN 1, as in PyTorch.

    exp(x) of large x must not be infinite.
    """
    wide = in_floats(b, dy)
    power = b(Exp(), b(Clip(high=0.0), in_floats(b, x)))
    below = b(Mul(), wide, b(Mul(), power, filled(b, op.alpha, power)))
    is_below = b(LessOrEqual(), x, filled(b, 0, x))
    return b(Where(), is_below, as_type(b, below, dy.type.dtype), dy)


def x_log_y(op: XLogY, b: Graph, dz: Value, x: Value, y: Value) -> list[Value]:
    return _times_log(b, Log(), y, dz, x, y)


def x_log1p_y(op: XLog1pY, b: Graph, dz: Value, x: Value, y: Value) -> list[Value]:
    y_wide = in_floats(b, y)
    return _times_log(b, Log1p(), b(Add(), y_wide, filled(b, 1, y_wide)), dz, x, y)


def _times_log(b: Graph, log: Op, number: Value, dz: Value, x: Value, y: Value) -> list[Value]:
    """Return the gradients dz log(number) by x and dz x / number by y.

    If x is 0 and the number is not positive, both are 0.
    """
    wide_x, wide_y, number, dz = (in_floats(b, v) for v in (x, y, number, dz))
    zero = filled(b, 0, number)
    nothing = b(Equal(), wide_x, zero)
    flat = b(BitAnd(), nothing, b(LessOrEqual(), number, zero))
    one = filled(b, 1, number)
    logarithm = b(log, b(Where(), flat, one, wide_y))
    dx = b(Where(), flat, zero, b(Mul(), dz, logarithm))
    dy = b(Mul(), dz, b(Div(), wide_x, b(Where(), flat, one, number)))
    return [as_type(b, v, x.type.dtype) for v in (dx, dy)]


def reduce_prod(op: ReduceProd, b: Graph, dy: Value, x: Value) -> Value:
    """Multiply by all other elements: those before times those after, so that zeros do no harm."""
    kept = [a for a in range(x.type.rank) if a not in op.axes]
    perm = (*kept, *op.axes)
    outer: list[Dim] = [x.type.shape[a] for a in kept]
    rows = (product(outer), product([x.type.shape[a] for a in op.axes]))
    moved = b(Transpose(perm), x)
    flat = b(Reshape(rows), moved)
    others = b(Mul(), b(CumProd(1, True), flat), b(CumProd(1, True, True), flat))
    repeated = b(Broadcast(rows), b(Reshape((rows[0], 1)), dy))
    back = b(Reshape(moved.type.shape), b(Mul(), repeated, others))
    return b(Transpose(tuple(perm.index(a) for a in range(x.type.rank))), back)


def sum_at(
    op: SumAt, b: Graph, dy: Value, x: Value, indices: Value, weights: Value | None = None
) -> tuple[Value, None, Value | None]:
    """Read where elements went to."""
    shape = TensorType("f32", indices.type.shape)
    factors = filled(b, 1, Value(shape)) if weights is None else weights
    places = b(Cast("i32"), indices)
    dx = b(Interpolate(op.axis, x.type.dtype), dy, places, factors)
    if weights is None:
        return dx, None, None
    return dx, None, summed_products(b, op.axis, x, dy, indices)


RULES: dict[type[Op], Callable[..., Any]] = {
    Atan2: atan2,
    Broadcast: broadcast,
    Clip: clip,
    Conv: conv,
    ConvFilter: conv_filter,
    Elu: elu,
    HardSwish: hard_swish,
    Hypot: hypot,
    LeakyRelu: leaky_relu,
    Pad: pad,
    ReduceProd: reduce_prod,
    SumAt: sum_at,
    XLog1pY: x_log1p_y,
    XLogY: x_log_y,
}
