"""Pooling over regions of interest, rectangles that are data (ONNX RoiAlign, MaxRoiPool)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    Examples,
    Op,
    Primitive,
    check_choice,
    check_dtype,
    check_natural,
    check_rank,
)
from alpenglow.ir.types import FLOATS, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.reduction.reduction import as_type, filled, in_floats, widened
from alpenglow.ops.tensor.gather import ScatterElements, added_at
from alpenglow.ops.tensor.movement import Reshape, Transpose

MOST_SAMPLES = 1024
"""Samples along one axis of a bin; only a region far larger than its image asks for more."""


class RoiAlign(Primitive):
    """Each region of x[N, C, H, W] in height × width bins: y[regions, C, height, width].

    rois[regions, 4] holds x1, y1, x2, y2 times 1 / `scale`, batch[regions] the image of each
    region.  A bin is the mean (with `mode` max: the largest part) of `samples`² places in it,
    interpolated linearly, 0 outside of the image whatever that holds; with 0 samples they are as
    many as the elements that a bin spans.  With `half_pixel` element 0 has its centre at 0.5;
    without, regions are at least 1 wide.  ONNX RoiAlign.
    """

    height: int
    width: int
    scale: float = 1.0
    samples: int = 0
    mode: str = "avg"
    half_pixel: bool = True

    def infer(self, x: TensorType, rois: TensorType, batch: TensorType) -> TensorType:
        check_regions(self, x, rois, 4)
        check_batch(self, batch, rois)
        check_choice(self, ("avg", "max"), mode=self.mode)
        check_natural(self, height=self.height, width=self.width, samples=self.samples)
        return x.with_shape((rois.shape[0], x.shape[1], self.height, self.width))

    def reference(self, x: Array, rois: Array, batch: Array) -> Array:
        wide = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
        image, boxes = x.astype(wide), rois.astype(wide)
        y = np.zeros((len(rois), x.shape[1], self.height, self.width), wide)
        bins = self.height, self.width
        with np.errstate(all="ignore"):
            for r, number, i, j, rows, columns in every_bin(self, boxes, batch, bins, x.shape):
                y[r, :, i, j] = self._bin(image[number], rows, columns)
        return y.astype(x.dtype)

    def gradient(
        self, b: Graph, dy: Value, x: Value, rois: Value, batch: Value
    ) -> tuple[Value, Value | UnsupportedError, None]:
        """Add each bin up where it was read; regions move what is read, along its slope."""
        wide = in_floats(b, dy)
        boxes = as_type(b, rois, wide.type.dtype)
        how = self.scale, self.samples, self.half_pixel
        if self.mode == "max":
            op = RoiAlignIndex(self.height, self.width, *how)
            where, factor = b.add(op, [as_type(b, x, wide.type.dtype), boxes, batch]).results
            dx = put_back(b, b(Mul(), wide, factor), where, x.type)
            error = UnsupportedError("gradient: roi_align(mode='max') by rois is not supported")
            return as_type(b, dx, x.type.dtype), error, None
        n, _, *extents = x.type.shape
        dx = b(RoiAlignSpread((n, *extents), *how), wide, boxes, batch)
        slope = b(RoiAlignSlope(*how), wide, as_type(b, x, wide.type.dtype), boxes, batch)
        return as_type(b, dx, x.type.dtype), as_type(b, slope, rois.type.dtype), None

    def _bin(self, image: Array, rows: list[Neighbours], columns: list[Neighbours]) -> Array:
        outside = np.zeros(len(image), image.dtype)
        parts = [
            [image[:, i, j] * (wi * wj) for i, wi, _ in row for j, wj, _ in column] or [outside]
            for row in rows
            for column in columns
        ]
        if not parts:
            return np.zeros(len(image), image.dtype)
        if self.mode == "max":
            return np.asarray(np.max([part for sample in parts for part in sample], axis=0))
        total = np.sum([np.sum(sample, axis=0) for sample in parts], axis=0)
        return np.asarray(total / len(parts)).astype(image.dtype)

    @classmethod
    def examples(cls) -> Examples:
        boxes, images = BOXES, IMAGES
        for mode in ("avg", "max"):
            yield cls(3, 5, 0.5, 2, mode), "f32[2,3,6,7]", boxes, images
            yield cls(2, 2, 0.9, 0, mode), "f32[2,3,6,7]", boxes, images
            yield cls(2, 17, 1.1, 1, mode, False), "f32[2,3,6,7]", boxes, images
        yield cls(2, 2), "f32[1,2,3,4]", "f32[0,4]", "i64[0]"
        for dtype in sorted(FLOATS - {"f32"}):
            x = np.arange(24).reshape(1, 2, 3, 4).astype(TensorType(dtype, ()).numpy)
            yield cls(2, 2, 1.0, 2), x, boxes[:2].astype(x.dtype), np.array([0, 0], np.int32)


class RoiAlignSpread(Primitive):
    """Bins y[regions, C, height, width] added up in images[N, C, H, W] where `RoiAlign` reads.

    `extents` are N, H and W, and bins are means.  It is the gradient of the images.
    """

    extents: tuple[Dim, ...]
    scale: float = 1.0
    samples: int = 0
    half_pixel: bool = True

    def infer(self, y: TensorType, rois: TensorType, batch: TensorType) -> TensorType:
        check_rank(self, "y", y, 4, 4)
        if len(self.extents) != 3:
            raise TypeRuleError(f"roi_align_spread: extents are {self.extents}, expected N, H, W")
        n, *spatial = self.extents
        x = y.with_shape((n, y.shape[1], *spatial))
        check_aligned(self, y, x, rois, batch)
        return x

    def reference(self, y: Array, rois: Array, batch: Array) -> Array:
        n, *spatial = (int(d) for d in self.extents)
        total = np.zeros((n, y.shape[1], *spatial), y.dtype)
        with np.errstate(all="ignore"):
            bins = every_bin(self, rois, batch, y.shape[2:], total.shape)
            for r, number, i, j, rows, columns in bins:
                part = y[r, :, i, j] / y.dtype.type(max(len(rows) * len(columns), 1))
                for row, column in itertools.product(rows, columns):
                    for (a, u, _), (b, v, _) in itertools.product(row, column):
                        total[number, :, a, b] += part * (u * v)
        return total

    def gradient(
        self, b: Graph, dx: Value, y: Value, rois: Value, batch: Value
    ) -> tuple[Value, Value, None]:
        how = self.scale, self.samples, self.half_pixel
        height, width = (int(d) for d in y.type.shape[2:])
        read = b(RoiAlign(height, width, *how[:2], "avg", self.half_pixel), dx, rois, batch)
        return read, b(RoiAlignSlope(*how), y, dx, rois, batch), None

    @classmethod
    def examples(cls) -> Examples:
        for how in ((0.5, 2), (0.9, 0), (1.1, 1, False)):
            yield cls((2, 6, 7), *how), "f32[4,3,3,5]", BOXES, IMAGES
        yield cls((2, 6, 7)), "f64[4,17,2,2]", BOXES.astype(np.float64), IMAGES.astype(np.int32)
        yield cls((1, 3, 4)), "f32[0,2,2,2]", "f32[0,4]", "i64[0]"


class RoiAlignSlope(Primitive):
    """What the sum of y[regions, C, height, width] · RoiAlign(x, rois, batch) changes by with rois.

    Bins are means.  What is clamped to the first or last element does not change.
    """

    scale: float = 1.0
    samples: int = 0
    half_pixel: bool = True

    def infer(
        self, y: TensorType, x: TensorType, rois: TensorType, batch: TensorType
    ) -> TensorType:
        check_aligned(self, y, x, rois, batch)
        return rois

    def reference(self, y: Array, x: Array, rois: Array, batch: Array) -> Array:
        slopes = np.zeros_like(rois)
        bins = y.shape[2:]
        with np.errstate(all="ignore"):
            for r, number, i, j, rows, columns in every_bin(self, rois, batch, bins, x.shape):
                part = y[r, :, i, j] / y.dtype.type(max(len(rows) * len(columns), 1))
                for (s, row), (t, column) in itertools.product(enumerate(rows), enumerate(columns)):
                    down = across = x.dtype.type(0)
                    for (a, u, du), (b, v, dv) in itertools.product(row, column):
                        total = (part * x[number, :, a, b]).sum()
                        down, across = down + total * du * v, across + total * u * dv
                    below = (i + (s + 0.5) / len(rows)) / bins[0]
                    beside = (j + (t + 0.5) / len(columns)) / bins[1]
                    slopes[r, 1::2] += down * shares(self, rois[r, 1], rois[r, 3], below)
                    slopes[r, ::2] += across * shares(self, rois[r, 0], rois[r, 2], beside)
        return slopes

    def gradient(self, b: Graph, dr: Value, *operands: Value) -> None:
        raise UnsupportedError("gradient: a second gradient of roi_align by rois is not supported")

    @classmethod
    def examples(cls) -> Examples:
        for how in ((0.5, 2), (0.9, 0), (1.1, 1, False)):
            yield cls(*how), "f32[4,3,3,5]", "f32[2,3,6,7]", BOXES, IMAGES
        yield cls(), "f64[4,17,2,2]", "f64[2,17,6,7]", BOXES.astype(np.float64), IMAGES
        yield cls(), "f32[0,2,2,2]", "f32[1,2,3,4]", "f32[0,4]", "i64[0]"


class RoiAlignIndex(Primitive):
    """Where `RoiAlign` by the largest part finds each, and the weight of that element.

    A place counts the elements of all images, as if there were one channel; -1 is outside.
    """

    height: int
    width: int
    scale: float = 1.0
    samples: int = 0
    half_pixel: bool = True

    def infer(
        self, x: TensorType, rois: TensorType, batch: TensorType
    ) -> tuple[TensorType, TensorType]:
        y = x.with_shape((*rois.shape[:1], *x.shape[1:2], self.height, self.width))
        check_aligned(self, y, x, rois, batch)
        return y.with_dtype("i64"), y

    def reference(self, x: Array, rois: Array, batch: Array) -> tuple[Array, Array]:
        shape = (len(rois), x.shape[1], self.height, self.width)
        where, factor = np.full(shape, -1), np.zeros(shape, x.dtype)
        bins = self.height, self.width
        with np.errstate(all="ignore"):
            for r, number, i, j, rows, columns in every_bin(self, rois, batch, bins, x.shape):
                parts: list[tuple[Array, int, Array]] = []
                for row, column in itertools.product(rows, columns):
                    parts += [
                        (x[number, :, a, b] * (u * v), (number * x.shape[2] + a) * x.shape[3] + b,
                         u * v)
                        for (a, u, _), (b, v, _) in itertools.product(row, column)
                    ] or [(np.zeros(x.shape[1], x.dtype), -1, x.dtype.type(0))]  # fmt: skip
                if parts:
                    best = np.argmax([part for part, _, _ in parts], axis=0)
                    where[r, :, i, j] = np.array([at for _, at, _ in parts])[best]
                    factor[r, :, i, j] = np.array([w for _, _, w in parts])[best]
        return where, factor

    def gradient(self, b: Graph, dys: tuple[Value | None, ...], *operands: Value) -> None:
        raise UnsupportedError(
            "gradient: a second gradient of roi_align(mode='max') by x is not supported"
        )

    @classmethod
    def examples(cls) -> Examples:
        for how in ((0.5, 2), (0.9, 0), (1.1, 1, False)):
            yield cls(3, 5, *how), "f32[2,3,6,7]", BOXES, IMAGES
        yield cls(2, 17, 0.7), "f64[2,3,6,7]", BOXES.astype(np.float64), IMAGES
        yield cls(2, 2), "f32[1,2,3,4]", "f32[0,4]", "i64[0]"


Aligned = RoiAlign | RoiAlignSpread | RoiAlignSlope | RoiAlignIndex

Neighbours = tuple[tuple[int, Any, Any], ...]
"""The two elements that a place lies between, each with its weight, and what that changes by."""

BOXES = np.array([[1, 0, 7, 5], [-3, 2.5, 4, 3], [2, 2, 2, 2], [5, 6, 30, 40]], np.float32)
IMAGES = np.array([0, 1, 1, 9])


def every_bin(
    op: Aligned, rois: Array, batch: Array, bins: tuple[int, ...], shape: tuple[int, ...]
) -> Iterator[tuple[int, int, int, int, list[Neighbours], list[Neighbours]]]:
    """Yield each bin: region, image, row and column, and what its samples read along both axes."""
    n, _, height, width = shape
    for r, (x1, y1, x2, y2) in enumerate(rois):
        number = int(np.clip(batch[r], 0, max(n - 1, 0)))
        rows, columns = places(op, y1, y2, bins[0], height), places(op, x1, x2, bins[1], width)
        for i, j in np.ndindex(*bins):
            yield r, number, i, j, rows[i], columns[j]


def places(op: Aligned, start: Array, end: Array, bins: int, extent: int) -> list[list[Neighbours]]:
    """Return the reads of each sample of each bin along an axis."""
    wide = start.dtype.type
    offset = wide(0.5 if op.half_pixel else 0)
    first, last = start * wide(op.scale) - offset, end * wide(op.scale) - offset
    length = last - first if op.half_pixel else np.maximum(last - first, wide(1))
    size = length / wide(bins)
    wanted = np.minimum(np.ceil(size), MOST_SAMPLES)
    count = op.samples or (int(wanted) if wanted > 0 else 0)
    found = []
    for i in range(bins):
        steps = (np.arange(count).astype(wide) + wide(0.5)) * size / wide(max(count, 1))
        found.append([neighbours(p, extent) for p in first + wide(i) * size + steps])
    return found


def shares(op: Aligned, start: Array, end: Array, part: float) -> Array:
    """Return the derivatives of a sample's position by both ends of its region, at `part` of it."""
    scale = start.dtype.type(op.scale)
    if not op.half_pixel and not (end - start) * scale > 1:
        return np.array([scale, 0])
    return np.array([scale * (1 - part), scale * part], start.dtype)


def neighbours(p: Array, extent: int) -> Neighbours:
    """Return the reads of a position on an axis: none if it is more than one element outside."""
    if not -1 <= p <= extent:
        return ()
    wide = p.dtype.type
    moves = wide(1 if p > 0 else 0)
    p = np.maximum(p, wide(0))
    low = min(int(p), extent - 1)
    share = p - wide(low) if low < extent - 1 else wide(0)
    moves = moves if low < extent - 1 else wide(0)
    return (low, 1 - share, -moves), (min(low + 1, extent - 1), share, moves)


def check_aligned(
    op: Op, y: TensorType, x: TensorType, rois: TensorType, batch: TensorType
) -> None:
    """Raise TypeRuleError unless y holds bins of regions of x, all of them f32 or f64."""
    check_dtype(op, "x", x, {"f32", "f64"})
    check_regions(op, x, rois, 4)
    check_batch(op, batch, rois)
    if y.dtype != x.dtype or y.rank != 4 or y.shape[:2] != (rois.shape[0], x.shape[1]):
        wanted = f"{x.dtype}[{rois.shape[0]}, {x.shape[1]}, height, width]"
        raise TypeRuleError(f"{op.name}: y is {y}, expected {wanted}")
    check_natural(op, samples=getattr(op, "samples", 0))


def check_batch(op: Op, batch: TensorType, rois: TensorType) -> None:
    """Raise TypeRuleError unless `batch` holds an integer for each row of `rois`."""
    check_dtype(op, "batch", batch, {"i32", "i64"})
    if batch.shape != rois.shape[:1]:
        raise TypeRuleError(f"{op.name}: batch is {batch}, expected shape ({rois.shape[0]},)")


def put_back(b: Graph, dy: Value, where: Value, x: TensorType) -> Value:
    """Return bins[regions, C, height, width] added up at places of images of type x; -1 is none."""
    n, c, height, width = x.shape
    zeros = filled(b, 0, dy)
    some = b(Where(), b(Less(), where, filled(b, 0, where)), zeros, dy)
    each = product((dy.type.shape[0], *dy.type.shape[2:]))
    flat = [b(Reshape((c, each)), b(Transpose((1, 0, 2, 3)), v)) for v in (where, some)]
    empty = Value(x.with_dtype(dy.type.dtype).with_shape((c, product((n, height, width)))))
    total = added_at(b, ScatterElements(1, "add"), empty, *flat)
    return b(Transpose((1, 0, 2, 3)), b(Reshape((c, n, height, width)), total))


class MaxRoiPool(Primitive):
    """The largest element of each bin of regions of x[N, C, H, W]: y[regions, C, height, width].

    rois[regions, 5] holds the number of the image, then x1, y1, x2, y2 times 1 / `scale`; they are
    rounded, and the last element is part of the region.  A bin outside of x is 0.  ONNX MaxRoiPool.
    """

    height: int
    width: int
    scale: float = 1.0

    def infer(self, x: TensorType, rois: TensorType) -> TensorType:
        check_regions(self, x, rois, 5)
        check_natural(self, height=self.height, width=self.width)
        return x.with_shape((rois.shape[0], x.shape[1], self.height, self.width))

    def reference(self, x: Array, rois: Array) -> Array:
        y = np.zeros((len(rois), x.shape[1], self.height, self.width), x.dtype)
        for r, number, i, j, rows, columns in whole_bins(self, rois, x):
            part = x[number, :, rows, columns]
            if part.size:
                y[r, :, i, j] = part.max(axis=(1, 2))
        return y

    def gradient(self, b: Graph, dy: Value, x: Value, rois: Value) -> tuple[Value, None]:
        """Add each bin to the first of its largest elements; regions are rounded."""
        where = b(MaxRoiPoolIndex(self.height, self.width, self.scale), x, rois)
        return put_back(b, dy, where, x.type), None

    @classmethod
    def examples(cls) -> Examples:
        boxes = np.array(
            [[0, 1, 0, 7, 5], [1, -3, 2.5, 4, 3], [9, 2, 2, 2, 2], [0, 50, 60, 70, 80]], np.float32
        )
        yield cls(3, 5, 0.9), "f32[2,3,6,7]", boxes
        yield cls(2, 17), "f32[2,3,6,7]", boxes
        yield cls(2, 2), "f32[1,2,3,4]", "f32[0,5]"
        for dtype in sorted(FLOATS - {"f32"}):
            numpy = TensorType(dtype, ()).numpy
            yield cls(2, 2), f"{dtype}[1,2,6,7]", boxes.astype(numpy)


class MaxRoiPoolIndex(Primitive):
    """Where MaxRoiPool finds each element, the first of several; NaN counts as the largest.

    A place counts the elements of all images, as if there were one channel; -1 is none.
    """

    height: int
    width: int
    scale: float = 1.0

    def infer(self, x: TensorType, rois: TensorType) -> TensorType:
        y = MaxRoiPool(self.height, self.width, self.scale).infer(x, rois)
        return y.with_dtype("i64")

    def reference(self, x: Array, rois: Array) -> Array:
        n, c, *spatial = x.shape
        places = np.arange(n * int(np.prod(spatial))).reshape(n, *spatial)
        y = np.full((len(rois), c, self.height, self.width), -1)
        wide = widened(x)
        for r, number, i, j, rows, columns in whole_bins(self, rois, x):
            part = wide[number, :, rows, columns]
            if part.size:
                part = part.reshape(c, -1)
                y[r, :, i, j] = places[number, rows, columns].reshape(-1)[part.argmax(axis=1)]
        return y

    @classmethod
    def examples(cls) -> Examples:
        for op, *operands in MaxRoiPool.examples():
            yield cls(op.height, op.width, op.scale), *operands


def whole_bins(
    op: MaxRoiPool | MaxRoiPoolIndex, rois: Array, x: Array
) -> Iterator[tuple[int, int, int, int, slice, slice]]:
    """Yield each bin: region, image, row and column, and its elements along both axes."""
    wide = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    for r, (number, x1, y1, x2, y2) in enumerate(rois.astype(wide)):
        rows = _whole_places(op, y1, y2, op.height, x.shape[2])
        columns = _whole_places(op, x1, x2, op.width, x.shape[3])
        for i, j in np.ndindex(op.height, op.width):
            yield r, whole(number, len(x) - 1), i, j, rows[i], columns[j]


def _whole_places(
    op: MaxRoiPool | MaxRoiPoolIndex, start: Array, end: Array, bins: int, extent: int
) -> list[slice]:
    """Return the elements of each bin along an axis."""
    wide = start.dtype.type
    first, last = (half_away(p * wide(op.scale)) for p in (start, end))
    size = np.maximum(last - first + 1, wide(1)) / wide(bins)
    slices = []
    for i in range(bins):
        begin, stop = np.floor(wide(i) * size) + first, np.ceil(wide(i + 1) * size) + first
        slices.append(slice(whole(begin, extent), whole(stop, extent)))
    return slices


def whole(p: Array, most: int) -> int:
    """Return a whole number limited to 0 to `most`; NaN is 0."""
    return min(int(np.minimum(p, most)), most) if p > 0 else 0


def half_away(p: Array) -> Array:
    """Return numbers rounded to whole ones, halves away from zero."""
    return np.asarray(np.copysign(np.floor(np.abs(p) + p.dtype.type(0.5)), p))


def check_regions(op: Op, x: TensorType, rois: TensorType, columns: int) -> None:
    """Raise TypeRuleError unless x holds images and rois rows of this many numbers."""
    check_dtype(op, "x", x, FLOATS)
    check_rank(op, "x", x, 4, 4)
    check_rank(op, "rois", rois, 2, 2)
    if rois.dtype != x.dtype or rois.shape[1] != columns:
        raise TypeRuleError(f"{op.name}: rois is {rois}, expected {x.dtype}[regions, {columns}]")
    if 0 in (x.shape[0], *x.shape[2:]) and rois.shape[0] != 0:
        raise TypeRuleError(f"{op.name}: x is {x}, expected at least one image and one pixel")
