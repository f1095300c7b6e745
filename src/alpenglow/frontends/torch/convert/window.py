"""Converters for pooling."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from alpenglow.frontends.numbers import wide
from alpenglow.frontends.torch.table import Made, Site, each, numbers, on
from alpenglow.frontends.windows import taps
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ir.types import FLOATS, Array
from alpenglow.ops.elementwise.arithmetic import Add, Div, Maximum, Mod, Mul
from alpenglow.ops.elementwise.comparison import Greater
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.image.resize import Interpolate
from alpenglow.ops.reduction.reduction import ReduceMean, ReduceSum, lowest
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Pad
from alpenglow.ops.window.pooling import AveragePool, MaxPool, MaxPoolIndex, padded_windows


def batched(s: Site, x: Value, axes: int) -> Value:
    """Return x[N, C, …]: one sample where there is no batch."""
    return x if x.type.rank == axes + 2 else s.reshaped(x, (1, *x.type.shape))


# ── the largest element ──


def largest(n: int) -> None:
    """Register max pooling over n spatial axes."""
    # PyTorch makes the one with indices over one axis of that over two.
    indexed = [f"aten.max_pool{n}d_with_indices.default"] if n > 1 else []

    @on(f"aten.max_pool{n}d.default", *indexed)
    def convert(
        s: Site, x: Value, kernel_size: Sequence[int], stride: Sequence[int] = (),
        padding: Sequence[int] = (0,) * n, dilation: Sequence[int] = (1,) * n,
        ceil_mode: bool = False,
    ) -> Made:  # fmt: skip
        kernel = each(kernel_size, n)
        op = MaxPool(kernel, each(stride, n) if stride else kernel, each(padding, n) * 2,
                     each(dilation, n), ceil_mode)  # fmt: skip
        image = batched(s, x, n)
        y = largest_of(s, op, image)
        if s.results == 1:
            return y
        return [y, places_of(s, op, image) if s.is_read(1) else None]


def largest_of(s: Site, op: MaxPool, x: Value) -> Value:
    """Return the largest element of each window; of integers it is that of shifted copies."""
    if x.type.dtype in FLOATS:
        return s.reshaped(s.g(op, x), s.result.shape)
    parts = shifted(s, x, op, float(lowest(x.type.numpy)))
    return s.reshaped(reduce(partial(s.g, Maximum()), parts), s.result.shape)


def places_of(s: Site, op: MaxPool, x: Value) -> Value:
    """Return where the largest elements were found, counted in the plane of their channel."""
    if x.type.dtype not in FLOATS:
        return s.reshaped(places_of_integers(s, op, x), s.stated(1).shape)
    index = MaxPoolIndex(op.kernel, op.strides, op.pads, op.dilations, op.ceil)
    plane = int(np.prod(numbers(*x.type.shape[2:])))
    where = s.g(index, x)
    inside = s.g(Mod(), where, s.filled(max(plane, 1), where.type))
    return s.reshaped(inside, s.stated(1).shape)


def places_of_integers(s: Site, op: MaxPool, x: Value) -> Value:
    """Return where the first of the largest integers of each window lies in its plane."""
    spatial = numbers(*x.type.shape[2:])
    plane = np.arange(int(np.prod(spatial))).reshape(1, 1, *spatial)
    places = padded_windows(op, plane, -1, op.dilations)
    places = places.reshape(*places.shape[: 2 + len(spatial)], -1)
    first = (places >= 0).argmax(axis=-1)
    start = np.take_along_axis(places, first[..., None], axis=-1)[..., 0]
    parts = shifted(s, x, op, float(lowest(x.type.numpy)))
    best, (where,) = parts[0], s.broadcast(s.g.constant(start), shape=parts[0].type.shape)
    for i, part in enumerate(parts[1:], 1):
        larger = s.g(Greater(), part, best)
        (place,) = s.broadcast(s.g.constant(places[..., i].copy()), shape=part.type.shape)
        where, best = s.g(Where(), larger, place, where), s.g(Maximum(), part, best)
    return where


def shifted(s: Site, x: Value, op: MaxPool | AveragePool, fill: float) -> list[Value]:
    """Return a tensor for each tap of the windows: the element that the tap reads in each."""
    n = len(op.kernel)
    spatial, out = numbers(*x.type.shape[2:]), numbers(*s.result.shape[-n:])
    before, after = op.pads[:n], reached(op, spatial, out)
    wide = s.g(Pad((0, 0, *before), (0, 0, *after), value=fill), x)
    return taps(s.g, wide, op.kernel, op.strides, op.dilations, out)


def reached(
    op: MaxPool | AveragePool, spatial: Sequence[int], out: Sequence[int]
) -> tuple[int, ...]:
    """Return the padding after each axis that the last window needs."""
    n = len(op.kernel)
    return tuple(
        max((o - 1) * step + (k - 1) * d + 1 - extent - before, 0)
        for o, step, k, d, extent, before in zip(
            out, op.strides, op.kernel, op.dilations, spatial, op.pads[:n], strict=True)
    )  # fmt: skip


# ── the mean ──


def means(n: int) -> None:
    """Register average pooling over n spatial axes."""

    @on(f"aten.avg_pool{n}d.default")
    def convert(
        s: Site, x: Value, kernel_size: Sequence[int], stride: Sequence[int] = (),
        padding: Sequence[int] = (0,) * n, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Made:  # fmt: skip
        return mean_of(s, x, n, kernel_size, stride, padding, ceil_mode, count_include_pad,
                       divisor_override)  # fmt: skip


def mean_of(
    s: Site, x: Value, n: int, kernel_size: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], ceil: bool, count_pads: bool, divisor: int | None = None,
) -> Value:  # fmt: skip
    """Return the mean of each window, or with a divisor the sum by that."""
    kernel = each(kernel_size, n)
    op = AveragePool(kernel, each(stride, n) if stride else kernel, each(padding, n) * 2,
                     (1,) * n, ceil, count_pads)  # fmt: skip
    image = batched(s, x, n)
    if x.type.dtype not in FLOATS:
        return s.reshaped(mean_of_integers(s, op, image, divisor), s.result.shape)
    if divisor is None:
        return s.reshaped(s.g(op, image), s.result.shape)
    spatial, out = numbers(*image.type.shape[2:]), numbers(*s.result.shape[-n:])
    pads = (*op.pads[:n], *reached(op, spatial, out))
    whole = s.g(Pad((0, 0, *pads[:n]), (0, 0, *pads[n:])), s.cast(image, wide(x.type.dtype)))
    y = s.g(AveragePool(kernel, op.strides, (0,) * (2 * n), (1,) * n), whole)
    share = s.g(Mul(), y, s.filled(float(np.prod(kernel)) / divisor, y.type))
    return s.reshaped(s.cast(share, x.type.dtype), s.result.shape)


def mean_of_integers(s: Site, op: AveragePool, x: Value, divisor: int | None) -> Value:
    """Return the mean of each window of integers, rounded towards zero as C++ divides."""
    y = reduce(partial(s.g, Add()), shifted(s, x, op, 0))
    shape = numbers(*x.type.shape)
    counts = op.counts(shape) if divisor is None else np.full((1,) * x.type.rank, divisor)
    by = s.g.constant(np.broadcast_to(counts, y.type.extents).astype(y.type.numpy))
    return s.g(Div(), y, by)


# ── windows of a given number ──


def adaptive(n: int) -> None:
    """Register pooling to a given size over n spatial axes."""
    cores = [f"aten._adaptive_avg_pool{n}d.default"] if n > 1 else []

    @on(f"aten.adaptive_avg_pool{n}d.default", *cores)
    def convert(s: Site, x: Value, output_size: Sequence[Dim]) -> Made:
        if all(size == 1 for size in s.result.shape[-n:]):
            return s.g(ReduceMean(tuple(range(x.type.rank - n, x.type.rank)), True), x)
        spatial, out = x.type.shape[-n:], s.result.shape[-n:]
        if spatial == out:
            return x
        sizes, counts = numbers(*spatial), numbers(*out)
        if all(count and size % count == 0 for size, count in zip(sizes, counts, strict=True)):
            kernel = tuple(size // count for size, count in zip(sizes, counts, strict=True))
            op = AveragePool(kernel, kernel, (0,) * (2 * n), (1,) * n)
            return s.reshaped(s.g(op, batched(s, x, n)), s.result.shape)
        return uneven_means(s, x, sizes, counts)

    @on(f"aten.adaptive_max_pool{n}d.default")
    def maxima(s: Site, x: Value, output_size: Sequence[int]) -> Made:
        sizes = numbers(*x.type.shape[-n:])
        return uneven_maxima(s, batched(s, x, n), sizes, each(output_size, n))


def windows(size: int, count: int) -> Array:
    """Return which elements each of `count` windows has, a row each; a short one repeats its last.

    Window i reaches from i·size/count, rounded down, to (i+1)·size/count, rounded up.
    """
    i = np.arange(count)
    first, end = i * size // max(count, 1), -(-(i + 1) * size // max(count, 1))
    longest = int((end - first).max(initial=1))
    return np.asarray(np.minimum(first[:, None] + np.arange(longest), end[:, None] - 1))


def uneven_means(s: Site, x: Value, sizes: Sequence[int], counts: Sequence[int]) -> Value:
    """Return the means of windows of different lengths, an axis after the other."""
    rank, dtype = x.type.rank, x.type.dtype
    y = s.cast(x, wide(dtype))
    for i, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        if size == count:
            continue
        at = windows(size, count)
        last = at == at[:, -1:]
        # What repeats shares one weight, so that an infinite element stays what it is.
        length = (~last).sum(axis=1, keepdims=True) + 1
        weights = np.where(last, 1 / last.sum(axis=1, keepdims=True), 1) / length
        y = weighted(s, y, rank - len(sizes) + i, at, weights)
    return s.cast(y, dtype)


def weighted(s: Site, x: Value, axis: int, at: Array, weights: Array) -> Value:
    """Return sums along an axis of the elements that each row names, times its weights."""
    if x.type.dtype != "f64":  # whose weights are f64 as well
        columns = s.g.constant(at.T.astype(np.int32)), s.g.constant(weights.T.astype(np.float32))
        return s.g(Interpolate(axis, x.type.dtype), x, *columns)
    elements = s.g(Gather(axis), x, s.g.constant(at))
    shape = (*at.shape, *[1] * (x.type.rank - 1 - axis))
    (shares,) = s.broadcast(s.g.constant(weights.reshape(shape)), shape=elements.type.shape)
    return s.g(ReduceSum((axis + 1,), False), s.g(Mul(), elements, shares))


def uneven_maxima(
    s: Site, x: Value, sizes: Sequence[int], counts: Sequence[int]
) -> list[Value | None]:
    """Return the largest elements of windows of different lengths, and where they lie.

    The windows are laid out side by side; a short one repeats elements, which changes nothing.
    """
    tables = [windows(size, count) for size, count in zip(sizes, counts, strict=True)]
    wide_x = x
    for i, (size, table) in enumerate(zip(sizes, tables, strict=True)):
        if not np.array_equal(table.reshape(-1), np.arange(size)):
            wide_x = s.g(Gather(2 + i), wide_x, s.g.constant(table.reshape(-1).astype(np.int64)))
    n = len(sizes)
    kernel = tuple(table.shape[1] for table in tables)
    op = MaxPool(kernel, kernel, (0,) * (2 * n), (1,) * n)
    y = largest_of(s, op, wide_x)
    if not s.is_read(1):
        return [y, None]
    where = places_of(s, op, wide_x)
    columns = [t.reshape(-1).reshape(-1, *[1] * (n - 1 - i)) for i, t in enumerate(tables)]
    flat: Array = np.zeros((), np.int64)
    for size, column in zip(sizes, columns, strict=True):
        flat = flat * size + column
    return [y, s.g(Gather(0), s.g.constant(flat.reshape(-1)), where)]


for axes in (1, 2, 3):
    largest(axes)
    means(axes)
    adaptive(axes)
