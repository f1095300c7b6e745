"""Converters for resampling: Resize and Upsample."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.frontends.onnx.convert.movement import normal_axes
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.frontends.presume import fixed
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ir.types import COMPLEX
from alpenglow.ops.image.resize import Resize


@on("Upsample")
def upsample_images(s: Site) -> Made:
    return asymmetric(s, (1.0, 1.0, s.needed("height_scale"), s.needed("width_scale")))


@on("Upsample", since=7)
def upsample_attribute(s: Site) -> Made:
    return asymmetric(s, s.needed("scales"))


@on("Upsample", since=9)
@on("Resize", since=10)
def upsample(s: Site) -> Made:
    return asymmetric(s, floats(s, 1))


def asymmetric(s: Site, scales: tuple[float, ...]) -> Value:
    """Return input 0 resampled as before opset 11: output x reads input x / scale, rounded down."""
    x = image(s)
    sizes = scaled(s, x.type.shape, scales)
    mode = s.attribute("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    return s.g(Resize(sizes, scales, mode, "asymmetric", "floor"), x)


@on("Resize", since=11)
def resize(s: Site) -> Made:
    x = image(s)
    rank = x.type.rank
    axes = normal_axes(s, s.attribute("axes", tuple(range(rank))), rank)
    coordinates = s.attribute("coordinate_transformation_mode", "half_pixel")
    roi: tuple[float, ...] = ()
    if coordinates == "tf_crop_and_resize":
        bounds = floats(s, 1)
        if len(bounds) != 2 * len(axes):
            raise s.wrong(f"roi has {len(bounds)} elements, expected {2 * len(axes)}")
        roi = (*spread(axes, bounds[: len(axes)], rank, 0.0),
               *spread(axes, bounds[len(axes) :], rank, 1.0))  # fmt: skip
    target = extents(s, axes)
    op = Resize(
        target.sizes,
        target.scales,
        s.attribute("mode", "nearest"),
        coordinates,
        s.attribute("nearest_mode", "round_prefer_floor"),
        s.attribute("cubic_coeff_a", -0.75),
        bool(s.attribute("exclude_outside", 0)),
        bool(s.attribute("antialias", 0)),
        roi,
        s.attribute("extrapolation_value", 0.0),
    )
    return s.g(op, x)


@dataclass(frozen=True)
class ResizedExtents:
    """Output extents, and scales where the model gives those, for each axis."""

    sizes: tuple[Dim, ...]
    scales: tuple[float, ...]


def image(s: Site) -> Value:
    """Return input 0, of numbers that can be weighted here: ONNX has complex ones, too."""
    x = s.input(0)
    if x.type.dtype in COMPLEX:
        raise s.refuse(f"input 0 is {x.type}, complex dtypes are not supported")
    return x


def extents(s: Site, axes: tuple[int, ...]) -> ResizedExtents:
    """Return the extents of the result, from the scales (operand 2) or sizes (operand 3)."""
    shape = s.input(0).type.shape
    if s.optional(3) is None:
        factors = floats(s, 2)
        check_count(s, "scales", len(factors), len(axes))
        scales = spread(axes, factors, len(shape), 1.0)
        if s.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
            return ResizedExtents(cropped(s, shape, scales, axes), scales)
        return ResizedExtents(scaled(s, shape, scales), scales)
    wanted = s.dims(3)
    check_count(s, "sizes", len(wanted), len(axes))
    sizes = list(shape)
    for axis, size in zip(axes, wanted, strict=True):
        sizes[axis] = size
    policy = s.attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return ResizedExtents(tuple(sizes), ())
    if policy not in ("not_larger", "not_smaller"):
        raise s.wrong(
            f"keep_aspect_ratio_policy is '{policy}', expected stretch, not_larger or not_smaller"
        )
    return same_ratio(shape, tuple(sizes), axes, policy)


def same_ratio(
    shape: tuple[Dim, ...], sizes: tuple[Dim, ...], axes: tuple[int, ...], policy: str
) -> ResizedExtents:
    """Return extents in the input's proportions that reach `sizes` on one of the axes."""
    ratios = []
    for axis in axes:
        d, size = fixed(shape[axis]), fixed(sizes[axis])
        if d == 0:
            raise ModelError(
                f"Resize: axis {axis} is empty, expected an element with keep_aspect_ratio_policy"
            )
        ratios.append(size / d)
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    kept = list(sizes)
    for axis in axes:
        kept[axis] = int(np.floor(scale * fixed(shape[axis]) + 0.5))
    return ResizedExtents(tuple(kept), spread(axes, (scale,) * len(axes), len(shape), 1.0))


def scaled(s: Site, shape: tuple[Dim, ...], scales: tuple[float, ...]) -> tuple[Dim, ...]:
    """Return each extent times its scale, rounded down; an open one by an exact fraction."""
    check_count(s, "scales", len(scales), len(shape))
    if any(not 0 < f < float("inf") for f in scales):
        raise s.wrong(f"scales is {scales}, expected finite numbers above 0")
    sizes: list[Dim] = []
    for d, f in zip(shape, scales, strict=True):
        if isinstance(d, int):
            # In single precision, as ONNX computes it: 10 times 0.7 is 7.
            sizes.append(int(np.floor(np.float32(d) * np.float32(f))))
            continue
        exact = Fraction(f).limit_denominator(1024)
        if np.float32(float(exact)) != np.float32(f):  # no small fraction was meant
            exact = Fraction(f)
        sizes.append(d * exact.numerator // exact.denominator)
    return tuple(sizes)


def cropped(
    s: Site, shape: tuple[Dim, ...], scales: tuple[float, ...], axes: tuple[int, ...]
) -> tuple[Dim, ...]:
    """Return the extents of the scaled region of interest."""
    roi = floats(s, 1)
    sizes = list(scaled(s, shape, scales))
    for i, axis in enumerate(axes):
        share = roi[len(axes) + i] - roi[i]
        if share != 1.0:
            sizes[axis] = int(np.floor(fixed(shape[axis]) * share * scales[axis]))
    return tuple(sizes)


def floats(s: Site, i: int) -> tuple[float, ...]:
    """Return the elements of constant operand i."""
    return tuple(float(f) for f in s.constant(i).reshape(-1))


def spread(
    axes: tuple[int, ...], numbers: tuple[float, ...], rank: int, default: float
) -> tuple[float, ...]:
    """Return one number an axis: those given for `axes`, else the default."""
    by_axis = dict(zip(axes, numbers, strict=True))
    return tuple(by_axis.get(axis, default) for axis in range(rank))


def check_count(s: Site, what: str, count: int, expected: int) -> None:
    """Raise ModelError unless there are as many as expected."""
    if count != expected:
        raise s.wrong(f"{count} {what} given, expected {expected}")
