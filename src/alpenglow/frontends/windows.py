"""Reductions along an axis by any function of pairs: many pairs at once, in order.

The grouping of elements is not fixed: the function is taken to be associative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from alpenglow.frontends.movement import part
from alpenglow.frontends.presume import fixed
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.tensor.movement import Concat, Slice

Combine = Callable[[Sequence[Value], Sequence[Value]], list[Value]]
"""A function from values of two elements each to values of one."""


def folded(g: Graph, xs: Sequence[Value], axis: int, combine: Combine) -> list[Value]:
    """Return tensors with an axis reduced to one element, of which there is at least one."""
    values, n = list(xs), fixed(xs[0].type.shape[axis])
    while n > 1:
        half = n // 2
        left = [part(g, v, axis, 0, half, 2) for v in values]
        right = [part(g, v, axis, 1, half, 2) for v in values]
        made = combine(left, right)
        if n % 2:
            last = [part(g, v, axis, n - 1, 1) for v in values]
            made = [g(Concat(axis), a, b) for a, b in zip(made, last, strict=True)]
        values, n = made, half + n % 2
    return values


def windowed(
    g: Graph, xs: Sequence[Value], axis: int, size: int, dilation: int, combine: Combine
) -> list[Value]:
    """Return, for each place along an axis, what `size` elements from there on come to.

    Runs of 1, 2, 4, … elements are put together from two of half the length.
    """
    places = fixed(xs[0].type.shape[axis]) - (size - 1) * dilation
    runs, length = list(xs), 1
    total: list[Value] | None = None
    done = 0
    while True:
        if size & length:
            ready = [part(g, v, axis, done * dilation, places) for v in runs]
            total = ready if total is None else combine(total, ready)
            done += length
        if done == size:
            assert total is not None, "a window has elements"
            return total
        count = fixed(runs[0].type.shape[axis]) - length * dilation
        ahead = [part(g, v, axis, length * dilation, count) for v in runs]
        runs = combine([part(g, v, axis, 0, count) for v in runs], ahead)
        length *= 2


def taps(
    g: Graph, x: Value, kernel: Sequence[int], strides: Sequence[int], spread: Sequence[int],
    places: Sequence[Dim],
) -> list[Value]:  # fmt: skip
    """Return for each position in a kernel the elements of x that windows have there.

    Windows lie over the last axes, `spread` says how far their elements are apart, and `places` how
    many there are.
    """
    n = x.type.rank - len(kernel)
    sizes, steps = (*x.type.shape[:n], *places), (*[1] * n, *strides)
    offsets = product(*(range(0, k * d, d) for k, d in zip(kernel, spread, strict=True)))
    return [g(Slice((*[0] * n, *offset), sizes, steps), x) for offset in offsets]


def over_windows(
    g: Graph, xs: Sequence[Value], size: Sequence[int], strides: Sequence[int],
    spread: Sequence[int], combine: Combine,
) -> list[Value]:  # fmt: skip
    """Return the reduction of each window, along the last axis first.

    `spread` is the distance of the elements of a window.  An axis without a window becomes empty.
    """
    values = list(xs)
    for axis in reversed(range(values[0].type.rank)):
        if size[axis] == strides[axis] == 1:
            continue
        places = fixed(values[0].type.shape[axis]) - (size[axis] - 1) * spread[axis]
        if places <= 0:
            values = [part(g, v, axis, 0, 0) for v in values]
            continue
        if size[axis] > 1:
            values = windowed(g, values, axis, size[axis], spread[axis], combine)
        if strides[axis] > 1:
            count = -(-places // strides[axis])
            values = [part(g, v, axis, 0, count, strides[axis]) for v in values]
    return values
