"""Tensors of strings cut and put together: tiled, joined, divided, sliced, padded, reversed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.ir.op import Examples, Host
from alpenglow.ir.types import Array
from alpenglow.ops.demand import axis_of, described, integers, refuse, strings, tensor, text

LETTERS = text("abcdef", (2, 3))


class StringTile(Host):
    """x repeated along each axis.  ONNX Tile."""

    def reference(self, x: Array, repeats: Array) -> Array:
        x = tensor(self, "x", x)
        times = integers(self, "repeats", repeats)
        if len(times) != x.ndim or min(times, default=0) < 0:
            raise FeedError(f"{self.name}: repeats {times} do not fit {described(x)}")
        return np.tile(x, times)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), LETTERS, np.array([2, 1])
        yield cls(), LETTERS, np.array([0, 1])


class StringJoin(Host):
    """Tensors one after the other along `axis`.  ONNX Concat."""

    axis: int

    def reference(self, *xs: Array) -> Array:
        given = [strings(self, f"operand {i}", x) for i, x in enumerate(xs)]
        axis = axis_of(self, self.axis, given[0].ndim if given else 0)
        try:
            return np.concatenate(given, axis)
        except ValueError as error:
            found = " and ".join(map(described, given))
            raise FeedError(f"{self.name}: {found} do not fit along axis {axis}") from error

    @classmethod
    def examples(cls) -> Examples:
        yield cls(-1), LETTERS, text("xy", (2, 1))
        yield cls(0), text([]), text("a")


class StringDivide(Host):
    """Parts of x along `axis`, of the sizes given, or `parts` of one size, the last one less.

    ONNX Split.
    """

    axis: int = 0
    parts: int = 0
    fixed: tuple[int, ...] = ()

    def reference(self, x: Array, sizes: Array | None = None) -> tuple[Array, ...]:
        x = tensor(self, "x", x)
        axis = axis_of(self, self.axis, x.ndim)
        extent = x.shape[axis]
        wanted = list(self.fixed) if sizes is None else integers(self, "sizes", sizes)
        if not wanted:
            size = -(-extent // self.parts)
            wanted = [min(size, max(extent - i * size, 0)) for i in range(self.parts)]
        if sum(wanted) != extent or min(wanted, default=0) < 0:
            raise FeedError(f"{self.name}: sizes {wanted} do not divide {described(x)}")
        return tuple(np.split(x, np.cumsum(wanted)[:-1], axis))

    @classmethod
    def examples(cls) -> Examples:
        yield cls(1, 2), LETTERS
        yield cls(-1, 2, (0, 3)), LETTERS
        yield cls(0, 2), LETTERS, np.array([1, 1])


class StringSlice(Host):
    """x from `starts` up to `ends` in `steps`, along `axes` or the first ones.  ONNX Slice."""

    def reference(
        self,
        x: Array,
        starts: Array,
        ends: Array,
        axes: Array | None = None,
        steps: Array | None = None,
    ) -> Array:
        x = tensor(self, "x", x)
        first, last = integers(self, "starts", starts), integers(self, "ends", ends)
        named = list(range(len(first))) if axes is None else integers(self, "axes", axes)
        stride = [1] * len(first) if steps is None else integers(self, "steps", steps)
        if not len(first) == len(last) == len(named) == len(stride) or 0 in stride:
            raise FeedError(f"{self.name}: from {first} to {last} by {stride} along {named}")
        where = [slice(None)] * x.ndim
        for i, axis in enumerate(named):
            where[axis_of(self, axis, x.ndim)] = slice(first[i], last[i], stride[i])
        return x[tuple(where)]

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), LETTERS, np.array([1]), np.array([9])
        yield (
            cls(), LETTERS, np.array([-1, 1]), np.array([-9, 2**62]), np.array([-1, 0]),
            np.array([-1, 1]),
        )  # fmt: skip
        yield cls(), LETTERS, np.array([2]), np.array([-(2**63)]), np.array([1]), np.array([-2])


class FixedStringSlice(Host):
    """x from `starts` up to `ends` along `axes`, or the first ones.  ONNX Slice before opset 10."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    axes: tuple[int, ...] | None = None

    def reference(self, x: Array) -> Array:
        axes = None if self.axes is None else np.array(self.axes, np.int64)
        return StringSlice().reference(
            x, np.array(self.starts, np.int64), np.array(self.ends, np.int64), axes
        )

    @classmethod
    def examples(cls) -> Examples:
        yield cls((0, 1), (9, -1)), LETTERS
        yield cls((-2,), (3,), (-1,)), LETTERS


class StringPad(Host):
    """x with more elements around it, fewer where `pads` are negative.

    Modes are constant (`value`, or empty strings), edge, reflect and wrap.  ONNX Pad.
    """

    mode: str = "constant"

    def reference(
        self, x: Array, pads: Array, value: Array | None = None, axes: Array | None = None
    ) -> Array:
        x = strings(self, "x", x)
        named = list(range(x.ndim)) if axes is None else integers(self, "axes", axes)
        amounts = integers(self, "pads", pads)
        if len(amounts) != 2 * len(named):
            raise FeedError(f"{self.name}: {len(amounts)} pads for {len(named)} axes")
        before, after = [0] * x.ndim, [0] * x.ndim
        for i, axis in enumerate(named):
            at = axis_of(self, axis, x.ndim)
            before[at], after[at] = amounts[i], amounts[i + len(named)]
        filler = [""] if value is None else list(strings(self, "value", value).flat)
        if len(filler) != 1:
            raise FeedError(f"{self.name}: value has {len(filler)} elements, expected one")
        return self.grown(x, before, after, filler[0])

    def grown(self, x: Array, before: list[int], after: list[int], filler: str) -> Array:
        """Return x with elements more before and after, or fewer."""
        if self.mode == "constant":
            return framed(x, before, after, filler)
        x = framed(x, [min(n, 0) for n in before], [min(n, 0) for n in after], "")
        width = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
        numbers = np.arange(x.size).reshape(x.shape)
        try:
            places = np.pad(numbers, width, self.mode)  # type: ignore[call-overload]
        except ValueError as error:
            raise FeedError(f"{self.name}: {described(x)} cannot grow by {width}") from error
        return np.asarray(x.reshape(-1)[places])

    @classmethod
    def examples(cls) -> Examples:
        pads = np.array([0, 2, 1, -1])
        for mode in ("constant", "edge", "reflect", "wrap"):
            yield cls(mode), LETTERS, pads
        yield cls(), LETTERS, np.array([1, 1]), text("x", ()), np.array([-1])


class StringCenterCropPad(Host):
    """x with extents `shape` along `axes`: cropped or padded with empty strings on both sides.

    Of an odd number of elements the larger half goes to the end.  ONNX CenterCropPad.
    """

    axes: tuple[int, ...] | None = None

    def reference(self, x: Array, shape: Array) -> Array:
        x = strings(self, "x", x)
        wanted = integers(self, "shape", shape)
        axes = range(x.ndim) if self.axes is None else self.axes
        if len(wanted) != len(axes) or min(wanted, default=0) < 0:
            raise FeedError(f"{self.name}: shape {wanted} for {len(axes)} axes")
        before, after = [0] * x.ndim, [0] * x.ndim
        for extent, axis in zip(wanted, axes, strict=True):
            at = axis_of(self, axis, x.ndim)
            missing = extent - x.shape[at]
            before[at] = missing // 2 if missing > 0 else -(-missing // 2)
            after[at] = missing - before[at]
        return framed(x, before, after, "")

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), LETTERS, np.array([3, 2])
        yield cls((-1,)), LETTERS, np.array([6])
        yield cls((1,)), LETTERS, np.array([0])


class StringReverseSequence(Host):
    """x with the first `lengths` elements along `time` in reverse order, for each of `batch`.

    ONNX ReverseSequence.
    """

    batch: int = 1
    time: int = 0

    def reference(self, x: Array, lengths: Array) -> Array:
        x = tensor(self, "x", x)
        if x.ndim < 2:
            refuse(self, "x", x, "at least two axes")
        y = x.copy()
        counts = integers(self, "lengths", lengths)
        rows = np.moveaxis(y, (self.batch, self.time), (0, 1))
        if len(counts) != len(rows) or not all(0 <= n <= rows.shape[1] for n in counts):
            raise FeedError(f"{self.name}: lengths {counts} do not fit {described(x)}")
        for row, n in zip(rows, counts, strict=True):
            row[:n] = row[:n][::-1].copy()
        return y

    @classmethod
    def examples(cls) -> Examples:
        yield cls(0, 1), LETTERS, np.array([3, 2])
        yield cls(1, 0), LETTERS, np.array([0, 1, 2])


def framed(x: Array, before: Sequence[int], after: Sequence[int], filler: str) -> Array:
    """Return x with strings more before and after each axis, or fewer where that is negative."""
    sides = list(zip(before, after, x.shape, strict=True))
    kept = x[tuple(slice(max(-b, 0), max(d - max(-a, 0), 0)) for b, a, d in sides)]
    extents = tuple(max(d + b + a, 0) for b, a, d in sides)
    y = text([filler] * math.prod(extents), extents)
    y[tuple(slice(max(b, 0), max(b, 0) + d) for b, d in zip(before, kept.shape, strict=True))] = (
        kept
    )
    return y
