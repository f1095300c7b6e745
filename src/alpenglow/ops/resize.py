"""Resampling: Resize in all its modes, one axis after the other.

An axis is resampled by a table of `taps` source positions and weights for each output element,
made at compile time.  Nearest needs one position and no weight: it is a Gather.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    Composite,
    Examples,
    Primitive,
    check_dtype,
    check_rank,
    normal_axis,
)
from alpenglow.ir.types import ALL, DTYPES, FLOATS, NUMBERS, Array, TensorType
from alpenglow.ops.gather import Gather, clamped, spatial
from alpenglow.ops.movement import Pad

COORDINATES = (
    "asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


class Interpolate(Primitive):
    """Weighted sums along `axis`: out[a, i, b] = sum_t weights[t, i] · x[a, indices[t, i], b].

    The sum is made in f32 (f64 if x is) and rounded once to `dtype`; to an integer it is truncated
    and limited to the range.  Indices are clamped as in gather.  A blocked operand stays blocked
    where the axis is spatial.
    """

    axis: int
    dtype: str

    def infer(self, x: TensorType, indices: TensorType, weights: TensorType) -> TensorType:
        check_dtype(self, "x", x, NUMBERS)
        check_dtype(self, "indices", indices, {"i32"})
        check_dtype(self, "weights", weights, {"f32"})
        check_rank(self, "indices", indices, 2, 2)
        axis = normal_axis(self, self.axis, x.rank)
        if indices.shape != weights.shape:
            raise TypeRuleError(f"interpolate: indices {indices} do not fit weights {weights}")
        if x.shape[axis] == 0 and indices.shape[1] != 0:
            raise TypeRuleError(f"interpolate: {x} has nothing to read on axis {axis}")
        if self.dtype not in NUMBERS:
            raise TypeRuleError(f"interpolate: {self.dtype} is no type of numbers")
        shape = tuple(indices.shape[1] if i == axis else d for i, d in enumerate(x.shape))
        return TensorType(self.dtype, shape, x.blocked if spatial(x, axis) else None)

    def reference(self, x: Array, indices: Array, weights: Array) -> Array:
        wide = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
        at = clamped(indices, x.shape[self.axis])
        column = [-1 if i == self.axis % x.ndim else 1 for i in range(x.ndim)]
        shape = list(x.shape)
        shape[self.axis] = indices.shape[1]
        total = np.zeros(shape, wide)
        with np.errstate(all="ignore"):
            for place, weight in zip(at, weights, strict=True):
                part = np.take(x, place, axis=self.axis).astype(wide)
                total += part * weight.astype(wide).reshape(column)
        return narrowed(total, DTYPES[self.dtype])

    @classmethod
    def examples(cls) -> Examples:
        at = np.array([[0, 1, 2, -1], [1, 2, 9, 0]], np.int32)
        share = np.array([[0.25, 1, 0.5, -0.5], [0.75, 0, 0.5, 1.5]], np.float32)
        yield cls(1, "f32"), "f32[2,3]", at, share
        yield cls(0, "f32"), "f32[5,3]", at, share
        yield cls(2, "f32"), "f32[2,1,3,17]", at, share
        yield cls(2, "f32"), "f32[1,20/16,3,5,16]", at, share
        yield cls(1, "f32"), "f32[0,3]", at, share
        for dtype in sorted(NUMBERS - {"f32"}):
            yield cls(1, dtype), f"{dtype}[2,3]", at, share
        yield cls(1, "f32"), "u8[2,3]", at, share
        yield cls(1, "u8"), "f32[2,3]", at, share


def narrowed(total: Array, dtype: np.dtype[Any]) -> Array:
    """Return floating-point numbers as `dtype`, truncated and limited to the range of integers."""
    if dtype.kind not in "iu":
        with np.errstate(all="ignore"):
            return total.astype(dtype)
    limits = np.iinfo(dtype)
    inside = np.where(total >= float(limits.max), 0, np.maximum(total, limits.min))
    low = np.where(np.isnan(total), 0, inside)
    return np.where(total >= float(limits.max), limits.max, low.astype(dtype)).astype(dtype)


class Resize(Composite):
    """x resampled to the extents `sizes`.  ONNX Resize and Upsample.

    `scales` holds output extent by input extent, for each axis, as the model gave it; where it is
    empty the extents themselves give it.  `mode` is nearest, linear or cubic, `coordinates` and
    `nearest` name the rules by which a position in the output finds its place in the input.  `roi`
    and `extrapolation` are for tf_crop_and_resize.  Integers are interpolated in f32 and truncated.
    A blocked operand stays blocked if only spatial axes are resized.
    """

    sizes: tuple[Dim, ...]
    scales: tuple[float, ...] = ()
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    roi: tuple[float, ...] = ()
    extrapolation: float = 0.0

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, ALL if self.mode == "nearest" else NUMBERS)
        check_choice("mode", self.mode, ("nearest", "linear", "cubic"))
        check_choice("coordinates", self.coordinates, COORDINATES)
        check_choice("nearest", self.nearest, NEAREST)
        for what, given, n in (("sizes", self.sizes, x.rank), ("scales", self.scales, x.rank),
                               ("roi", self.roi, 2 * x.rank)):  # fmt: skip
            if len(given) != n and (given or what == "sizes"):
                raise TypeRuleError(f"resize: {len(given)} {what} given, expected {n} for {x}")
        if self.coordinates == "tf_crop_and_resize" and not self.roi:
            raise TypeRuleError("resize: tf_crop_and_resize needs a roi")
        for axis, (d, size) in enumerate(zip(x.shape, self.sizes, strict=True)):
            if (known(size) and size < 0) or (d == 0 and size != 0):
                raise TypeRuleError(f"resize: {x} cannot get extent {size} on axis {axis}")
            if x.blocked is not None and not spatial(x, axis) and d != size:
                raise TypeRuleError(f"resize: axis {axis} of the blocked {x} cannot be resized")
        return TensorType(x.dtype, self.sizes, x.blocked)

    def lower(self, b: Graph, x: Value) -> Value:
        found = {a: axis_table(self, x.type, a) for a in range(x.type.rank)}
        tables = {a: table for a, table in found.items() if table is not None}
        dtype = x.type.dtype
        # What shrinks most comes first and leaves the others less to do; then inner before outer
        # axes, since whole rows are read faster than scattered elements.
        extents = {a: d for a in tables if known(d := x.type.shape[a])}
        order = sorted(tables, key=lambda a: (len(tables[a][0]) / max(extents[a], 1), -a))
        for i, axis in enumerate(order):
            indices, _ = tables[axis]
            if (indices == extents[axis]).any():
                # An index just past the end stands for what lies outside of the region.
                after = tuple(int(a == axis) for a in range(x.type.rank))
                x = b(Pad((0,) * x.type.rank, after, value=self.extrapolation), x)
            if self.mode == "nearest":
                x = b(Gather(axis), x, b.constant(indices[:, 0].copy()))
                continue
            between = dtype if dtype == "f64" else "f32"
            to = dtype if i == len(order) - 1 else between
            given = (b.constant(table.T.copy()) for table in tables[axis])
            x = b(Interpolate(axis, to), x, *given)
        return x

    @classmethod
    def examples(cls) -> Examples:
        up, down = (1, 2, 7, 6), (1, 2, 2, 2)
        for mode in ("nearest", "linear", "cubic"):
            yield cls(up, mode=mode), "f32[1,2,3,5]"
            yield cls(down, mode=mode), "f32[1,2,3,5]"
            yield cls((2, 2, 6, 4, 16), mode=mode), "f32[2,20/16,3,2,16]"
        for coordinates in COORDINATES[:-1]:
            yield cls((5, 2), coordinates=coordinates), "f32[3,4]"
            yield cls((5, 2), mode="linear", coordinates=coordinates), "f32[3,4]"
        for nearest in NEAREST:
            yield cls((7,), coordinates="align_corners", nearest=nearest), "f32[4]"
        roi = (0.0, -0.25, 1.0, 1.25)
        crop = cls((3, 6), coordinates="tf_crop_and_resize", roi=roi, extrapolation=9.0)
        yield crop, "f32[3,4]"
        yield replace(crop, mode="linear"), "f32[3,4]"
        yield cls((3, 3), mode="linear", antialias=True), "f32[8,5]"
        yield cls((3, 3), mode="cubic", antialias=True, exclude_outside=True), "f32[8,5]"
        yield cls((0, 4)), "f32[0,2]"
        yield cls((6,), (2.3,), coordinates="half_pixel_symmetric"), "f32[3]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls((4,)), f"{dtype}[3]"
        for dtype in sorted(FLOATS | {"u8", "i8", "i32"} - {"f32"}):
            yield cls((4, 5), mode="cubic"), f"{dtype}[3,2]"


def check_choice(what: str, given: str, choices: tuple[str, ...]) -> None:
    """Raise TypeRuleError unless `given` is among `choices`."""
    if given not in choices:
        raise TypeRuleError(f"resize: {what} '{given}' is not {', '.join(choices)}")


Table = tuple[Array, Array]
"""For each output element: source indices, i32[out, taps], and weights, f32[out, taps]."""


def axis_table(op: Resize, t: TensorType, axis: int) -> Table | None:
    """Return how `axis` of a tensor of type t is resampled; None if nothing changes there.

    The index one past the end stands for the extrapolation value.
    """
    extent, size = t.shape[axis], op.sizes[axis]
    if extent == size and (not op.scales or op.scales[axis] == 1.0) and not _cropped(op, axis):
        return None
    assert known(extent) and known(size), (
        f"resize: axis {axis} of {t} must have a number before it is lowered"
    )
    scale = op.scales[axis] if op.scales else size / max(extent, 1)
    # Scales and roi are in single precision; to that, 1 / 0.33333334 is 3 and not just below.
    exact = source_positions(op, axis, extent, size, scale)
    where = exact.astype(np.float32).astype(np.float64)
    if op.mode == "nearest":
        indices = rounded(where, op.nearest)[:, None]
        weights = np.ones_like(indices, np.float32)
    else:
        indices, weights = taps(op, where, scale)
        if op.exclude_outside:
            weights = np.where((indices < 0) | (indices >= extent), 0, weights)
            weights = weights / weights.sum(axis=1, keepdims=True)
    indices = np.clip(indices, 0, max(extent - 1, 0))
    if op.coordinates == "tf_crop_and_resize":
        outside = (where < 0) | (where > extent - 1)
        weights = np.where(outside[:, None], np.arange(weights.shape[1]) == 0, weights)
        indices = np.where(outside[:, None], extent, indices)
    return indices.astype(np.int32), weights.astype(np.float32)


def _cropped(op: Resize, axis: int) -> bool:
    rank = len(op.sizes)
    return op.coordinates == "tf_crop_and_resize" and (op.roi[axis], op.roi[rank + axis]) != (0, 1)


def source_positions(op: Resize, axis: int, extent: int, size: int, scale: float) -> Array:
    """Return the place in the input, as a fraction, of each of `size` output elements.

    Where a scale was given, extent times scale stands for the output extent, fraction and all.
    """
    x = np.arange(size, dtype=np.float64)
    wide = extent * scale
    match op.coordinates:
        case "asymmetric":
            return x / scale
        case "tf_half_pixel_for_nn":
            return (x + 0.5) / scale
        case "align_corners":
            return x * 0 if size == 1 or wide == 1 else x * (extent - 1) / (wide - 1)
        case "tf_crop_and_resize":
            start, end = op.roi[axis], op.roi[len(op.sizes) + axis]
            if size == 1:
                return x + 0.5 * (start + end) * (extent - 1)
            return start * (extent - 1) + x * (end - start) * (extent - 1) / (size - 1)
        case "pytorch_half_pixel" if size == 1:
            return x
        case "half_pixel_symmetric":
            return extent / 2 * (1 - size / wide) + (x + 0.5) / scale - 0.5
    return (x + 0.5) / scale - 0.5


def rounded(where: Array, rule: str) -> Array:
    """Return positions as whole numbers, by a rule of `NEAREST`."""
    match rule:
        case "floor":
            found = np.floor(where)
        case "ceil":
            found = np.ceil(where)
        case "round_prefer_floor":
            found = np.ceil(where - 0.5)
        case _:
            found = np.floor(where + 0.5)
    return np.asarray(found.astype(np.int64))


def taps(op: Resize, where: Array, scale: float) -> Table:
    """Return the neighbours of each position and their weights, which add up to 1.

    With antialias the kernel is as wide as the output elements lie apart.
    """
    stretch = min(scale, 1.0) if op.antialias else 1.0
    reach = (1 if op.mode == "linear" else 2) / stretch
    count = 2 * int(np.ceil(reach))
    first = np.floor(where).astype(np.int64) - count // 2 + 1
    indices = first[:, None] + np.arange(count)
    distance = np.abs(indices - where[:, None]) * stretch
    weights = np.maximum(1 - distance, 0) if op.mode == "linear" else cubic(distance, op.cubic)
    if op.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return indices, weights


def cubic(distance: Array, a: float) -> Array:
    """Return Keys' cubic convolution kernel at the given distances."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))
