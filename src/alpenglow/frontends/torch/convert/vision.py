"""Converters for torchvision's own operators: regions of interest, deformable convolution.

Its suppression of overlapping boxes has as many results as the data make it and is no graph.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ops.image.regions import MaxRoiPool, RoiAlign
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Concat, Slice
from alpenglow.ops.window.deform import DeformConv


def images_of(s: Site, x: Value, rois: Value) -> Value:
    """Return the number of the image of each region, the first element of its row."""
    count = rois.type.shape[0]
    column = s.reshaped(s.g(Slice((0, 0), (count, 1), (1, 1)), rois), (count,))
    return s.indices(s.cast(column, "i64"), x.type.shape[0], 0, negative=False)


def in_bins(s: Site, op: RoiAlign, x: Value, rois: Value) -> Value:
    """Return the regions of x in bins; each row of rois names an image and four edges."""
    edges = s.g(Slice((0, 1), (rois.type.shape[0], 4), (1, 1)), rois)
    return s.g(op, x, edges, images_of(s, x, rois))


@on("torchvision.roi_align.default")
def roi_align(
    s: Site, input: Value, rois: Value, spatial_scale: float, pooled_height: int,
    pooled_width: int, sampling_ratio: int, aligned: bool,
) -> Made:  # fmt: skip
    op = RoiAlign(pooled_height, pooled_width, float(spatial_scale), max(sampling_ratio, 0),
                  half_pixel=aligned)  # fmt: skip
    return in_bins(s, op, input, rois)


@on("torchvision.ps_roi_align.default")
def ps_roi_align(
    s: Site, input: Value, rois: Value, spatial_scale: float, pooled_height: int,
    pooled_width: int, sampling_ratio: int,
) -> Made:  # fmt: skip
    """Each bin has channels of its own: of all channels in all bins it is those that fit."""
    refuse_second(s)
    op = RoiAlign(pooled_height, pooled_width, float(spatial_scale), max(sampling_ratio, 0))
    y = in_bins(s, op, input, rois)
    bins = pooled_height * pooled_width
    flat = s.reshaped(y, (*s.result.shape[:2], bins * bins))
    own = s.g(Gather(2), flat, s.g.constant(np.arange(bins) * (bins + 1)))
    return [s.reshaped(own, s.result.shape), None]


@on("torchvision.roi_pool.default")
def roi_pool(
    s: Site, input: Value, rois: Value, spatial_scale: float, pooled_height: int,
    pooled_width: int,
) -> Made:  # fmt: skip
    refuse_second(s)
    count, dtype = rois.type.shape[0], rois.type.dtype
    column = s.reshaped(s.cast(images_of(s, input, rois), dtype), (count, 1))
    checked = s.g(Concat(1), column, s.g(Slice((0, 1), (count, 4), (1, 1)), rois))
    op = MaxRoiPool(pooled_height, pooled_width, float(spatial_scale))
    return [s.g(op, input, checked), None]


def refuse_second(s: Site) -> None:
    """Raise UnsupportedError if anything reads where elements were found, as backward does."""
    if s.is_read(1):
        raise UnsupportedError("reading result 1 is not supported; supported: result 0")


@on("torchvision.deform_conv2d.default")
def deform_conv(
    s: Site, input: Value, weight: Value, offset: Value, mask: Value, bias: Value, stride_h: int,
    stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, groups: int,
    offset_groups: int, use_mask: bool,
) -> Made:  # fmt: skip
    op = DeformConv((stride_h, stride_w), (pad_h, pad_w) * 2, (dilation_h, dilation_w), groups,
                    offset_groups)  # fmt: skip
    return s.g(op, input, weight, offset, bias, mask if use_mask else None)
