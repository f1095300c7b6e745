"""Converters that resample images, channels last."""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.nhwc import channels_first, channels_last
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Value
from alpenglow.ir.types import FLOATS, Array
from alpenglow.ops.image.resize import Resize
from alpenglow.ops.tensor.gather import Gather

LARGEST = 1 << 20
"""An axis is resampled to no more elements by a table."""


@on("RESIZE_BILINEAR", "ResizeBilinearOptions")
def resize_bilinear(s: Site) -> Made:
    x, sizes = image(s)
    if x.type.dtype not in FLOATS:
        raise s.unsupported(f"dtype {x.type.dtype}", "float dtypes")
    check_aligned(s)
    coordinates = "half_pixel" if s.option("half_pixel_centers") else "asymmetric"
    coordinates = "align_corners" if s.option("align_corners") else coordinates
    op = Resize((*x.type.shape[:2], *sizes), mode="linear", coordinates=coordinates)
    return channels_last(s.g, s.g(op, x))


@on("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", moves=True)
def resize_nearest(s: Site) -> Made:
    x, sizes = image(s)
    for axis, size in enumerate(sizes, 2):
        extent = x.type.shape[axis]
        if isinstance(size, int):
            check_size(s, size)
        if not isinstance(extent, int) or not isinstance(size, int):
            return channels_last(s.g, s.g(rule(s, (*x.type.shape[:2], *sizes)), x))
        x = s.g(Gather(axis), x, s.g.constant(nearest(s, extent, size)))
    return channels_last(s.g, x)


def check_aligned(s: Site) -> None:
    """Raise ModelError if both corners and centres are to be aligned."""
    if s.option("align_corners") and s.option("half_pixel_centers"):
        raise s.wrong("align_corners and half_pixel_centers are true, expected at most one")


def check_size(s: Site, size: int) -> None:
    """Raise UnsupportedError if an axis would get too many elements for a table."""
    if size > LARGEST:
        raise s.refuse(f"size is {size}, expected at most {LARGEST}")


def image(s: Site) -> tuple[Value, tuple[Dim, ...]]:
    """Return operand 0, channels first, and the extents that it gets."""
    x, sizes = s.rank(0, 4), s.dims(1)
    if len(sizes) != 2 or any(known(d) and d < 1 for d in sizes):
        raise s.wrong(f"size is {sizes}, expected 2 entries of at least 1")
    return channels_first(s.g, x), sizes


def rule(s: Site, sizes: tuple[Dim, ...]) -> Resize:
    """Return the operator that reads the places of `nearest` where extents are open."""
    if s.option("align_corners"):
        if s.option("half_pixel_centers"):
            raise s.unsupported("align_corners with half_pixel_centers for dynamic dimensions",
                                "fixed dimensions")  # fmt: skip
        return Resize(sizes, coordinates="align_corners", nearest="round_prefer_ceil")
    centred = "tf_half_pixel_for_nn" if s.option("half_pixel_centers") else "asymmetric"
    return Resize(sizes, coordinates=centred, nearest="floor")


def nearest(s: Site, extent: int, size: int) -> Array:
    """Return the places on an axis that are read, computed in f32 as TFLite does."""
    aligned, centred = s.option("align_corners"), s.option("half_pixel_centers")
    scale = np.float32(extent) / np.float32(size)
    if aligned and size > 1:
        scale = np.float32(extent - 1) / np.float32(size - 1)
    at = (np.arange(size, dtype=np.float32) + np.float32(0.5 if centred else 0)) * scale
    at = np.floor(at + np.float32(0.5)) if aligned else np.floor(at)
    places: Array = np.clip(at.astype(np.int64), 0, extent - 1)
    return places
