"""The converter for bilinear resizing of quantized images.

XNNPACK weighs by 11 bits behind the point, reference kernels by 10 bits, but u8 by floats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from alpenglow.frontends.nhwc import channels_last
from alpenglow.frontends.presume import Needed
from alpenglow.frontends.tflite.convert.resize import check_aligned, check_size, image
from alpenglow.frontends.tflite.quantised import is_reference, once
from alpenglow.frontends.tflite.table import Made, Site, moved, on_quantised
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES, Array
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul
from alpenglow.ops.elementwise.comparison import Greater
from alpenglow.ops.elementwise.logic import ShiftRight
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import stretch

COARSE, FINE = 10, 11
"""How many bits there are behind the point of weights."""


@dataclass(frozen=True, slots=True)
class Taps:
    """Which two elements of an axis each element of the result lies between.

    `share` is the weight of the second one, `rest` the weight of the first.
    """

    first: Array
    second: Array
    rest: Array
    share: Array


@on_quantised("RESIZE_BILINEAR")
@moved
def quantised_resize_bilinear(s: Site) -> Made:
    x, sizes = image(s)
    check_aligned(s)
    if not all(isinstance(d, int) for d in (*sizes, *x.type.shape[2:])):
        raise Needed("")
    check_size(s, max(map(int, sizes)))
    each = [(int(a), int(b)) for a, b in zip(x.type.shape[2:], sizes, strict=True)]
    # XNNPACK asks for a size that is a constant.
    if not is_reference(s) and s.declared(1).content is not None:
        y = rounded_up(s, x, [fine(s, *pair) for pair in each])
    elif x.type.dtype == "u8":
        y = in_floats(s, x, [floating(s, *pair) for pair in each])
    else:
        y = rounded_away(s, x, [coarse(s, *pair) for pair in each])
    return channels_last(s.g, s.cast(y, x.type.dtype))


# ── the sums ──


def rounded_up(s: Site, x: Value, taps: list[Taps]) -> Value:
    """Return the weighted sums rounded as by XNNPACK: halves go up."""
    total = summed(s, s.cast(x, "i32"), taps)
    half = s.filled(1 << (2 * FINE - 1), total)
    return s.g(ShiftRight(), s.g(Add(), total, half), s.filled(2 * FINE, total))


def rounded_away(s: Site, x: Value, taps: list[Taps]) -> Value:
    """Return the weighted sums rounded as by reference kernels: halves go away from zero."""
    total = summed(s, s.cast(x, "i64" if x.type.dtype == "i16" else "i32"), taps)
    half = 1 << (2 * COARSE - 1)
    positive = s.g(Greater(), total, s.filled(0, total))
    moved_on = s.g(Where(), positive, s.filled(half, total), s.filled(-half, total))
    return s.g(Div(), s.g(Add(), total, moved_on), s.filled(1 << 2 * COARSE, total))


def summed(s: Site, x: Value, taps: list[Taps]) -> Value:
    """Return sums of elements by their weights, which are exact, one axis after the other."""
    for axis, t in enumerate(taps, 2):
        parts = [s.g(Mul(), *along(s, x, axis, at, weights))
                 for at, weights in ((t.first, t.rest), (t.second, t.share))]  # fmt: skip
        x = s.g(Add(), *parts)
    return x


def in_floats(s: Site, x: Value, taps: list[Taps]) -> Value:
    """Return the weighted sums of the reference kernel of u8, added in its order."""
    rows, columns = taps
    x, total = s.cast(x, "f32"), None
    for across, by in ((columns.first, columns.rest), (columns.second, columns.share)):
        for down, share in ((rows.first, rows.rest), (rows.second, rows.share)):
            weighed = once(s, Mul(), *along(s, x, 2, down, share))
            weighed = once(s, Mul(), *along(s, weighed, 3, across, by))
            total = weighed if total is None else s.g(Add(), total, weighed)
    assert total is not None, "there are four"
    return s.g(Add(), total, s.filled(0.5, total))


def along(s: Site, x: Value, axis: int, at: Array, weights: Array) -> tuple[Value, Value]:
    """Return elements of an axis, and their weights in the same shape."""
    chosen = s.g(Gather(axis), x, s.g.constant(at))
    shape = [len(at) if i == axis else 1 for i in range(x.type.rank)]
    column = s.g.constant(weights.astype(DTYPES[x.type.dtype]).reshape(shape))
    return chosen, stretch(s.g, column, chosen.type.shape)


# ── the taps ──


def scale(s: Site, extent: int, size: int, ratio: Callable[[int, int], Array]) -> Array:
    """Return how far apart elements of a result lie."""
    aligned = s.option("align_corners") and size > 1
    return ratio(extent - 1, size - 1) if aligned else ratio(extent, size)


def fine(s: Site, extent: int, size: int) -> Taps:
    """Return the taps of XNNPACK, placed in f32."""
    step, half = scale(s, extent, size, divided), np.float32(0.5)
    at = np.arange(size, dtype=np.float32) * step
    if s.option("half_pixel_centers"):
        at = np.clip(at + (half * step - half), 0, np.float32(extent - 1))
    first = at.astype(np.int64)
    share = np.rint((at - first.astype(np.float32)) * np.float32(1 << FINE)).astype(np.int64)
    return Taps(first, np.minimum(first + 1, extent - 1), (1 << FINE) - share, share)


def coarse(s: Site, extent: int, size: int) -> Taps:
    """Return the taps of reference kernels, placed by integers."""
    one = 1 << COARSE
    step = scale(s, extent, size, lambda a, b: np.asarray((one * a + b // 2) // b))
    at = np.arange(size) * step
    if s.option("half_pixel_centers"):
        at = at + (step // 2 - one // 2)
    first = np.maximum(at, 0) // one
    if first.max() >= extent:
        raise s.unsupported(f"resizing {extent} rows or columns to {size}",
                            "sizes whose last position, in steps of 1/1024, is in the image")
    share = at - first * one
    return Taps(first, np.minimum((at + one - 1) // one, extent - 1), one - share, share)


def floating(s: Site, extent: int, size: int) -> Taps:
    """Return the taps of the reference kernel of u8."""
    step, half, one = scale(s, extent, size, divided), np.float32(0.5), np.float32(1)
    at = np.arange(size, dtype=np.float32)
    at = (at + half) * step - half if s.option("half_pixel_centers") else at * step
    first = np.maximum(np.floor(at), 0).astype(np.int64)
    share = at - first.astype(np.float32)
    return Taps(first, np.minimum(np.ceil(at), extent - 1).astype(np.int64), one - share, share)


def divided(a: int, b: int) -> Array:
    """Return a quotient in f32."""
    return np.asarray(np.float32(a) / np.float32(b))
