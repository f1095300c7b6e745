"""Converters that pool integers that stand for reals, and their transposed convolutions."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.frontends.nhwc import channels_first, channels_last
from alpenglow.frontends.presume import Needed
from alpenglow.frontends.tflite.convert_window import Window, pooling
from alpenglow.frontends.tflite.quantised import limits, narrowed
from alpenglow.frontends.tflite.table import Made, Site, moved, on_quantised
from alpenglow.ir.dims import known
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array
from alpenglow.ops.arithmetic import Add, Div
from alpenglow.ops.comparison import Less
from alpenglow.ops.contraction import BYTES, Conv
from alpenglow.ops.movement import stretch
from alpenglow.ops.pooling import MaxPool
from alpenglow.ops.select import Where
from alpenglow.ops.window import windows


@on_quantised("MAX_POOL_2D")
def quantised_max_pool(s: Site) -> Made:
    return moved(largest)(s)


def largest(s: Site) -> Value:
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
def quantised_average_pool(s: Site) -> Made:
    return moved(average)(s)


def average(s: Site) -> Value:
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
    channels = x.type.shape[1]
    if not known(channels):
        raise Needed("")
    if x.type.dtype not in BYTES:
        x = s.cast(x, "f64")
    dtype = np.int8 if x.type.dtype in BYTES else np.float64
    ones = s.g.constant(np.ones((int(channels), 1, *kernel), dtype))
    return s.g(Conv(strides, pads, dilations, int(channels)), x, ones)


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
        raise ModelError(f"{s.kind}: a window lies in padding")
    return counts
