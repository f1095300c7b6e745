"""Converters for fractional max pooling, whose windows begin at places drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.frontends.torch.convert.window import batched
from alpenglow.frontends.torch.table import Made, Site, each, numbers, on
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Sub
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.reduction.reduction import ArgMax, ReduceMax
from alpenglow.ops.tensor.gather import GatherElements
from alpenglow.ops.tensor.movement import Slice


def fractional(n: int, order: Sequence[int]) -> None:
    """Register the pooling over n axes; `order` says which number is drawn for each of them."""

    @on(f"aten.fractional_max_pool{n}d.default")
    def convert(
        s: Site, x: Value, kernel_size: Sequence[int], output_size: Sequence[int],
        random_samples: Value,
    ) -> Made:  # fmt: skip
        image = batched(s, x, n)
        sizes = numbers(*image.type.shape[2:])
        kernel, counts = each(kernel_size, n), each(output_size, n)
        lead = image.type.shape[:2]
        starts = [begun(s, drawn(s, random_samples, lead, order[i]), size, k, count)
                  for i, (size, k, count) in enumerate(zip(sizes, kernel, counts, strict=True))
                  ]  # fmt: skip
        return largest(s, image, places(s, starts, sizes, kernel), int(np.prod(kernel)))


def drawn(s: Site, samples: Value, lead: Sequence[Dim], i: int) -> Value:
    """Return the numbers [N, C, 1] that are drawn for an axis; there may be more than are used."""
    return s.g(Slice((0, 0, i), (*lead, 1), (1, 1, 1)), samples)


def begun(s: Site, sample: Value, size: int, kernel: int, count: int) -> Value:
    """Return where the windows [N, C, count] of an axis begin.

    The differences of truncated multiples are what is nearly even; the last window ends the axis.
    """
    t = sample.type.with_shape((*sample.type.shape[:2], count))
    if count == 1:
        return s.filled(size - kernel, t.with_dtype("i64"))
    step = np.asarray(size - kernel, t.numpy) / np.asarray(count - 1, t.numpy)
    wide = s.broadcast(sample, shape=t.shape)[0]
    steps = s.g.constant(np.arange(count).astype(t.numpy).reshape(1, 1, count))
    moved = s.g(Add(), *s.broadcast(steps, shape=t.shape), wide)
    factor = s.filled(float(step), t)
    first, offset = (s.cast(s.g(Mul(), v, factor), "i64") for v in (moved, wide))
    start = s.g(Sub(), first, offset)
    last = s.g.constant((np.arange(count) == count - 1).reshape(1, 1, count))
    return s.g(Where(), *s.broadcast(last, shape=t.shape), s.filled(size - kernel, start.type),
               start)  # fmt: skip


def places(
    s: Site, starts: Sequence[Value], sizes: Sequence[int], kernel: Sequence[int]
) -> Value:  # fmt: skip
    """Return where in the plane each tap of each window reads: [N, C, *windows, *taps]."""
    n = len(sizes)
    lead = starts[0].type.shape[:2]
    shape = (*lead, *(v.type.shape[2] for v in starts), *kernel)
    flat = s.filled(0, starts[0].type.with_shape(shape))
    for i, (start, size, k) in enumerate(zip(starts, sizes, kernel, strict=True)):
        ones = [1] * (2 * n)
        windows, taps = list(ones), list(ones)
        (windows[i],), taps[n + i] = numbers(*start.type.shape[2:]), k
        column = s.broadcast(s.reshaped(start, (*lead, *windows)), shape=shape)[0]
        tap = s.g.constant(np.arange(k).reshape(1, 1, *taps))
        at = s.g(Add(), column, *s.broadcast(tap, shape=shape))
        flat = s.g(Add(), s.g(Mul(), flat, s.filled(size, flat.type)), at)
    return flat


def largest(s: Site, x: Value, at: Value, taps: int) -> list[Value | None]:
    """Return the largest element of each window, and where in its plane it lies."""
    batch, channels, *spatial = x.type.shape
    plane = int(np.prod(numbers(*spatial)))
    windows = int(np.prod(numbers(*at.type.shape[2:]))) // taps
    flat = s.reshaped(at, (batch, channels, windows * taps))
    elements = s.g(GatherElements(2), s.reshaped(x, (batch, channels, plane)), flat)
    rows = s.reshaped(elements, (batch, channels, windows, taps))
    y = s.reshaped(s.g(ReduceMax((3,), False), rows), s.result.shape)
    if not s.is_read(1):
        return [y, None]
    tap = s.g(ArgMax(3, True), rows)
    where = s.g(GatherElements(3), s.reshaped(flat, rows.type.shape), tap)
    return [y, s.reshaped(where, s.stated(1).shape)]


fractional(2, (1, 0))
fractional(3, (0, 1, 2))
