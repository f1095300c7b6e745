"""Converters for pooling and transposed convolution of quantized tensors.

Sums of a transposed convolution are exact: in f32 if weights are small enough, else in f64.
"""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.nhwc import channels_first, channels_last
from alpenglow.frontends.presume import Needed, fixed
from alpenglow.frontends.tflite.convert.quantised_products import (
    biased,
    by_image,
    check_axis,
    scales,
)
from alpenglow.frontends.tflite.convert.window import (
    PLANE,
    Window,
    is_same,
    pooling,
    spread_out,
    transpose_conv,
)
from alpenglow.frontends.tflite.quantised import (
    check_symmetric,
    grid,
    limits,
    narrowed,
    requantised,
    zeros_of,
)
from alpenglow.frontends.tflite.table import Made, Site, moved, on_quantised
from alpenglow.ir.dims import known
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.arithmetic import Add, Div, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.contraction import BYTES, Conv
from alpenglow.ops.tensor.movement import Transpose, append_axes, stretch
from alpenglow.ops.window.pooling import MaxPool
from alpenglow.ops.window.window import windows


@on_quantised("MAX_POOL_2D")
@moved
def quantised_max_pool(s: Site) -> Made:
    """Return the largest element of each window, limited by an activation."""
    x = channels_first(s.g, s.rank(0, 4))
    dtype = x.type.dtype
    kernel, strides, *_ = window = pooling(s)
    y = s.g(MaxPool(*window), x if dtype in BYTES else s.cast(x, "f32"))
    y = s.cast(channels_last(s.g, y), dtype)
    # XNNPACK does not take windows that leave elements out.
    own = any(k < stride for k, stride in zip(kernel, strides, strict=True))
    if limits(s, True, own) == limits(s):
        return y
    return narrowed(s, y, True, own)


@on_quantised("AVERAGE_POOL_2D")
@moved
def quantised_average_pool(s: Site) -> Made:
    """Return the mean of each window, rounded, halves away from zero."""
    x = channels_first(s.g, s.rank(0, 4))
    window = pooling(s)
    sums = s.cast(window_sums(s, x, window), "i32")
    counts = window_counts(s, x, window)
    half = stretch(s.g, s.g.constant(counts // 2), sums.type.shape)
    if x.type.dtype != "u8":
        negative = s.g(Less(), sums, s.filled(0, sums))
        less = stretch(s.g, s.g.constant(-(counts // 2)), sums.type.shape)
        half = s.g(Where(), negative, less, half)
    mean = s.g(Div(), s.g(Add(), sums, half), stretch(s.g, s.g.constant(counts), sums.type.shape))
    return narrowed(s, channels_last(s.g, mean), True, reference=True)


def window_sums(s: Site, x: Value, window: Window) -> Value:
    """Return the sums of windows of x[N, C, H, W], exact."""
    kernel, strides, pads, dilations = window
    channels = fixed(x.type.shape[1])
    if x.type.dtype not in BYTES:
        x = s.cast(x, "f64")
    dtype = np.int8 if x.type.dtype in BYTES else np.float64
    ones = s.g.constant(np.ones((channels, 1, *kernel), dtype))
    return s.g(Conv(strides, pads, dilations, channels), x, ones)


def window_counts(s: Site, x: Value, window: Window) -> Array:
    """Return how many elements of an image lie in each window: [1, 1, H, W]."""
    kernel, strides, pads, dilations = window
    extents = x.type.shape[2:]
    if not all(map(known, extents)):
        raise Needed("")
    image = np.ones([1, 1, *map(int, extents)], np.int32)
    image = np.pad(image, ((0, 0), (0, 0), *zip(pads[:2], pads[2:], strict=True)))
    counts: Array = windows(image, kernel, strides, dilations).sum((-2, -1), dtype=np.int32)
    if not counts.all():
        raise s.wrong("a window covers only padding, expected an element of the input in each")
    return counts


@on_quantised("TRANSPOSE_CONV")
def quantised_transpose_conv(s: Site) -> Made:
    x, w = s.rank(2, 4), s.rank(1, 4)
    if x.type.dtype == "f32":
        return by_image(s, 2, transpose_conv, "xnnpack")
    check_axis(s, 1, 0)
    if x.type.dtype == "i16":
        check_symmetric(s, grid(s, 2), grid(s, 1))
    wide, multiplied = x.type.dtype == "i16", x.type.dtype == "u8"
    dtype = enough(s, w, x.type.dtype)
    x, w = (s.cast(centred(s, i), dtype) for i in (2, 1))
    sums = spread_out(s, x, s.g(Transpose((3, 0, 1, 2)), w), PLANE)
    sums = s.cast(sums, "i64" if wide else "i32")
    if (bias := s.optional(3)) is not None:
        sums = biased(s, sums, append_axes(s.g, bias, len(PLANE)))
    parts = scales(s, 2, 1, multiplied)
    rounding = "single" if wide else "double"
    y = requantised(s, sums, parts, rounding, 1, True, short=wide, reference=is_left(s))
    return channels_last(s.g, y)


def is_left(s: Site) -> bool:
    """Whether XNNPACK leaves a transposed convolution to others."""
    kernel = s.input(1).type.shape[1:3]
    strides = [s.option(f"stride_{a}") for a in PLANE]
    gaps = is_same(s) and any(k < stride for k, stride in zip(kernel, strides, strict=True))
    return gaps or s.declared(1).content is None


def centred(s: Site, i: int) -> Value:
    """Return operand i less its zero points, in i32."""
    x, g = s.cast(s.input(i), "i32"), grid(s, i)
    return s.g(Sub(), x, zeros_of(s, g, x, g.axis)) if any(g.zeros) else x


def enough(s: Site, w: Value, dtype: str) -> str:
    """Return the floats that hold sums of x of a type times weights w[O, H, W, C] exactly."""
    if w.array is None or dtype not in BYTES:
        return "f64"
    steps = np.abs(w.array.astype(np.int64) - np.array(grid(s, 1).zeros).reshape(-1, 1, 1, 1))
    most = int(steps.sum((1, 2, 3)).max(initial=0))
    return "f32" if most * 255 < 1 << 24 else "f64"
