"""Writers of what works on regions of images: pooling over them, and choosing boxes."""

from __future__ import annotations

import numpy as np

from alpenglow.exporters.onnx.extents import extent, scalar_extent
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_gather import limited
from alpenglow.exporters.onnx.write_movement import expanded, reshaped
from alpenglow.exporters.onnx.writer import Tensor, Writer
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Value
from alpenglow.ops.image.regions import MaxRoiPool, RoiAlign
from alpenglow.ops.image.suppress import Suppress


@on(RoiAlign)
def roi_align(w: Writer, op: RoiAlign, x: Value, rois: Value, batch: Value) -> Tensor:
    images = w.cast(limited(w, batch, 0, x.type.shape[0] - 1), "i64")
    mode = "half_pixel" if op.half_pixel else "output_half_pixel"
    return w("RoiAlign", x, rois, images, coordinate_transformation_mode=mode, mode=op.mode,
             output_height=op.height, output_width=op.width, sampling_ratio=op.samples,
             spatial_scale=op.scale)  # fmt: skip


@on(MaxRoiPool)
def max_roi_pool(w: Writer, op: MaxRoiPool, x: Value, rois: Value) -> Tensor:
    """Limit the numbers of images to those that there are: to ONNX others are errors."""
    last = w.cast(scalar_extent(w, x.type.shape[0] - 1), rois.type.dtype)
    column, first, rest = (np.array([n], np.int64) for n in (1, 0, 5))
    number = w("Slice", rois, first, column, column)
    there = w("Floor", w("Min", w("Max", number, np.zeros((), rois.type.numpy)), last))
    boxes = w("Concat", there, w("Slice", rois, column, rest, column), axis=1)
    return w("MaxRoiPool", x, boxes, pooled_shape=(op.height, op.width), spatial_scale=op.scale)


@on(Suppress)
def suppress(
    w: Writer, op: Suppress, boxes: Value, scores: Value, limit: Value, overlap: Value | None,
    threshold: Value | None,
) -> list[Tensor]:  # fmt: skip
    """Write NonMaxSuppression, and put its rows (batch, class, box) where they belong.

    The rows of a batch and a class stand together, the best box first.
    """
    one = np.array([1], np.int64)
    scalars = [None if v is None else reshaped(w, v, (1,)) for v in (limit, overlap, threshold)]
    rows = w("NonMaxSuppression", boxes, scores, *scalars, center_point_box=int(op.center))
    batch, classes, count = scores.type.shape
    groups = product([batch, classes])
    pair = w("Slice", rows, np.array([0], np.int64), np.array([2], np.int64), one)
    scales = w("Concat", extent(w, classes), one, axis=0)
    group = w("ReduceSum", w("Mul", pair, scales), one, keepdims=0)
    none = expanded(w, np.zeros(1, np.int64), (groups,))
    ones = w("Expand", one, w("Shape", group))
    counts = w("ScatterElements", none, group, ones, axis=0, reduction="add")
    starts = w("CumSum", counts, np.array(0, np.int64), exclusive=1)
    total = w("Squeeze", w("Shape", group), np.array([0], np.int64))
    number = w("Range", np.array(0, np.int64), total, np.array(1, np.int64))
    place = w("Sub", number, w("Gather", starts, group, axis=0))
    at = w("Add", w("Mul", group, extent(w, count)), place)
    box = w("Squeeze", w("Slice", rows, np.array([2], np.int64), np.array([3], np.int64), one), one)
    empty = expanded(w, np.full(1, -1, np.int64), (product([groups, count]),))
    kept = w("ScatterElements", empty, at, box, axis=0)
    return [reshaped(w, kept, scores.type.shape), reshaped(w, counts, (batch, classes))]
