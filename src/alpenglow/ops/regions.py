"""Pooling over regions of interest, rectangles that are data (ONNX RoiAlign, MaxRoiPool)."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import Examples, Op, Primitive, check_dtype, check_rank
from alpenglow.ir.types import FLOATS, Array, TensorType

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
        check_dtype(self, "batch", batch, {"i32", "i64"})
        if batch.shape != rois.shape[:1]:
            raise TypeRuleError(f"roi_align: {batch} does not name the images of {rois}")
        if self.mode not in ("avg", "max"):
            raise TypeRuleError(f"roi_align: mode '{self.mode}' is neither avg nor max")
        if min(self.height, self.width, self.samples) < 0:
            raise TypeRuleError(f"roi_align: a number of bins or samples is negative: {self}")
        return x.with_shape((rois.shape[0], x.shape[1], self.height, self.width))

    def reference(self, x: Array, rois: Array, batch: Array) -> Array:
        wide = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
        image, boxes = x.astype(wide), rois.astype(wide)
        y = np.zeros((len(rois), x.shape[1], self.height, self.width), wide)
        with np.errstate(all="ignore"):
            for r, (x1, y1, x2, y2) in enumerate(boxes):
                number = int(np.clip(batch[r], 0, max(len(image) - 1, 0)))
                rows = self._places(y1, y2, self.height, x.shape[2])
                columns = self._places(x1, x2, self.width, x.shape[3])
                for i, j in np.ndindex(self.height, self.width):
                    y[r, :, i, j] = self._bin(image[number], rows[i], columns[j])
        return y.astype(x.dtype)

    def _places(self, start: Array, end: Array, bins: int, extent: int) -> list[list[Neighbours]]:
        """Return what each sample of each bin reads along an axis."""
        wide = start.dtype.type
        offset = wide(0.5 if self.half_pixel else 0)
        first, last = start * wide(self.scale) - offset, end * wide(self.scale) - offset
        length = last - first if self.half_pixel else np.maximum(last - first, wide(1))
        size = length / wide(bins)
        wanted = np.minimum(np.ceil(size), MOST_SAMPLES)
        count = self.samples or (int(wanted) if wanted > 0 else 0)
        places = []
        for i in range(bins):
            steps = (np.arange(count).astype(wide) + wide(0.5)) * size / wide(max(count, 1))
            places.append([neighbours(p, extent) for p in first + wide(i) * size + steps])
        return places

    def _bin(self, image: Array, rows: list[Neighbours], columns: list[Neighbours]) -> Array:
        outside = np.zeros(len(image), image.dtype)
        parts = [
            [image[:, i, j] * (wi * wj) for i, wi in row for j, wj in column] or [outside]
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
        boxes = np.array([[1, 0, 7, 5], [-3, 2.5, 4, 3], [2, 2, 2, 2], [5, 6, 30, 40]], np.float32)
        images = np.array([0, 1, 1, 9])
        for mode in ("avg", "max"):
            yield cls(3, 5, 0.5, 2, mode), "f32[2,3,6,7]", boxes, images
            yield cls(2, 2, 0.9, 0, mode), "f32[2,3,6,7]", boxes, images
            yield cls(2, 17, 1.1, 1, mode, False), "f32[2,3,6,7]", boxes, images
        yield cls(2, 2), "f32[1,2,3,4]", "f32[0,4]", "i64[0]"
        for dtype in sorted(FLOATS - {"f32"}):
            x = np.arange(24).reshape(1, 2, 3, 4).astype(TensorType(dtype, ()).numpy)
            yield cls(2, 2, 1.0, 2), x, boxes[:2].astype(x.dtype), np.array([0, 0], np.int32)


Neighbours = tuple[tuple[int, float], ...]
"""The two elements that a place lies between, each with its weight; none outside."""


def neighbours(p: Array, extent: int) -> Neighbours:
    """Return what a place reads on an axis: nothing if it is more than one element outside."""
    if not -1 <= p <= extent:
        return ()
    p = np.maximum(p, p.dtype.type(0))
    low = min(int(p), extent - 1)
    share = p - p.dtype.type(low) if low < extent - 1 else p.dtype.type(0)
    return (low, 1 - share), (min(low + 1, extent - 1), share)


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
        if min(self.height, self.width) < 0:
            raise TypeRuleError(f"max_roi_pool: a number of bins is negative: {self}")
        return x.with_shape((rois.shape[0], x.shape[1], self.height, self.width))

    def reference(self, x: Array, rois: Array) -> Array:
        wide = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
        y = np.zeros((len(rois), x.shape[1], self.height, self.width), x.dtype)
        for r, (number, x1, y1, x2, y2) in enumerate(rois.astype(wide)):
            image = x[whole(number, len(x) - 1)]
            rows = self._bins(y1, y2, self.height, x.shape[2])
            columns = self._bins(x1, x2, self.width, x.shape[3])
            for i, j in np.ndindex(self.height, self.width):
                part = image[:, rows[i], columns[j]]
                if part.size:
                    y[r, :, i, j] = part.max(axis=(1, 2))
        return y

    def _bins(self, start: Array, end: Array, bins: int, extent: int) -> list[slice]:
        """Return the elements of each bin along an axis."""
        wide = start.dtype.type
        first, last = (half_away(p * wide(self.scale)) for p in (start, end))
        size = np.maximum(last - first + 1, wide(1)) / wide(bins)
        slices = []
        for i in range(bins):
            begin, stop = np.floor(wide(i) * size) + first, np.ceil(wide(i + 1) * size) + first
            slices.append(slice(whole(begin, extent), whole(stop, extent)))
        return slices

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
        raise TypeRuleError(f"{op.name}: rois are {rois}, expected {x.dtype}[regions, {columns}]")
    if 0 in (x.shape[0], *x.shape[2:]) and rois.shape[0] != 0:
        raise TypeRuleError(f"{op.name}: {x} has nothing to pool")
