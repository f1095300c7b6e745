"""Resampling: Resize in all its modes, one axis after the other.

An axis is resampled by a table of `taps` source positions and weights for each output element,
made at compile time.  Nearest needs one position and no weight: it is a Gather.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, estimate, is_open, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    Composite,
    Examples,
    Primitive,
    changed_along,
    check_choice,
    check_dtype,
    check_rank,
    normal_axis,
)
from alpenglow.ir.types import ALL, DTYPES, FLOATS, NUMBERS, Array, TensorType, holds
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.image.resampling import Rule, computed_table, keys_kernel, positions, rounded
from alpenglow.ops.reduction.reduction import ReduceSum, as_type
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast, Pad, Reshape
from alpenglow.ops.tensor.places import clamped
from alpenglow.ops.tensor.sum_at import SumAt

COORDINATES = (
    "asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


class Interpolate(Primitive):
    """Weighted sums along `axis`: out[a, i, b] = sum_t weights[t, i] · x[a, indices[t, i], b].

    The sum is made in f32 (f64 if x is) and rounded once to `dtype`; to an integer it is truncated
    and limited to the range.  Indices are clamped as in gather.
    """

    layouts = "first"

    axis: int
    dtype: str

    def infer(self, x: TensorType, indices: TensorType, weights: TensorType) -> TensorType:
        check_dtype(self, "x", x, NUMBERS)
        check_dtype(self, "indices", indices, {"i32"})
        check_dtype(self, "weights", weights, {"f32"})
        check_rank(self, "indices", indices, 2, 2)
        axis = normal_axis(self, self.axis, x.rank)
        if indices.shape != weights.shape:
            raise TypeRuleError(f"interpolate: weights is {weights}, expected as indices {indices}")
        if x.shape[axis] == 0 and indices.shape[1] != 0:
            raise TypeRuleError(f"interpolate: x is {x}, expected an element on axis {axis}")
        check_choice(self, NUMBERS, dtype=self.dtype)
        shape = tuple(indices.shape[1] if i == axis else d for i, d in enumerate(x.shape))
        return changed_along(self, x, (axis,), shape).with_dtype(self.dtype)

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

    def gradient(
        self, b: Graph, dy: Value, x: Value, indices: Value, weights: Value
    ) -> tuple[Value | None, None, Value]:
        wide = as_type(b, dy, "f64" if x.type.dtype == "f64" else "f32")
        dw = summed_products(b, self.axis, wide, as_type(b, x, wide.type.dtype), indices)
        if x.type.dtype not in FLOATS:
            return None, None, dw
        dx = b(SumAt(self.axis, x.type.shape[self.axis]), wide, indices, weights)
        return as_type(b, dx, x.type.dtype), None, dw

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


def summed_products(b: Graph, axis: int, along: Value, read: Value, indices: Value) -> Value:
    """Return, for each tap and element along `axis`, the sum of its products with what was read.

    These are the gradients of weights, f32[taps, elements].
    """
    axis %= along.type.rank
    taken = b(Gather(axis), read, indices)
    shape = along.type.shape
    one = b(Reshape((*shape[:axis], 1, *shape[axis:])), along)
    products = b(Mul(), taken, b(Broadcast(taken.type.shape), one))
    others = tuple(i for i in range(taken.type.rank) if i not in (axis, axis + 1))
    return as_type(b, b(ReduceSum(others, False), products), "f32")


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
    """

    layouts = "first"

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
        check_choice(self, ("nearest", "linear", "cubic"), mode=self.mode)
        check_choice(self, COORDINATES, coordinates=self.coordinates)
        check_choice(self, NEAREST, nearest=self.nearest)
        for what, value, n in (("sizes", self.sizes, x.rank), ("scales", self.scales, x.rank),
                               ("roi", self.roi, 2 * x.rank)):  # fmt: skip
            if len(value) != n and (value or what == "sizes"):
                raise TypeRuleError(f"resize: {len(value)} {what} given, expected {n} for {x}")
        if self.coordinates == "tf_crop_and_resize" and not self.roi:
            raise TypeRuleError("resize: roi is missing, expected with tf_crop_and_resize")
        if not holds(x.dtype, self._outside(x)):
            raise TypeRuleError(
                f"resize: extrapolation is {self.extrapolation}, expected a value of {x.dtype}"
            )
        for axis, (d, size) in enumerate(zip(x.shape, self.sizes, strict=True)):
            if (known(size) and size < 0) or (d == 0 and size != 0):
                wanted = "0 as in x" if d == 0 else "0 or more"
                raise TypeRuleError(f"resize: sizes[{axis}] is {size}, expected {wanted}")
        resized = (axis for axis, d in enumerate(x.shape) if d != self.sizes[axis])
        return changed_along(self, x, resized, self.sizes)

    def lower(self, b: Graph, x: Value) -> Value:
        t = x.type
        axes = [a for a in range(t.rank) if not unchanged(self, t.shape[a], a)]
        # What shrinks most comes first and leaves the others less to do.  Of axes that shrink alike
        # the outer ones do, of others the inner ones: adding up whole rows is cheap, and picking
        # elements out of rows is not, so there should be few rows then.
        growth = {a: _growth(t.shape[a], self.sizes[a]) for a in axes}
        for axis in sorted(axes, key=lambda a: (growth[a], a if growth[a] < 1 else -a)):
            axes.remove(axis)
            wide = "f64" if t.dtype == "f64" else "f32"
            x = self._resampled(b, x, axis, wide if axes else t.dtype)
        return x

    def _outside(self, x: TensorType) -> float:
        """Return the element that lies outside of the region."""
        return self.extrapolation if x.dtype in FLOATS else float(np.trunc(self.extrapolation))

    def _resampled(self, b: Graph, x: Value, axis: int, to: str) -> Value:
        """Return x resampled along one axis, as elements of type `to` unless taken as they are."""
        extent = x.type.shape[axis]
        if is_computed(self, x.type, axis):
            scale = scale_of(self, extent, axis)
            at, share = computed_table(b, rule_of(self, axis), x, axis, self.sizes[axis], scale)
            return (
                b(Gather(axis), x, at) if share is None else b(Interpolate(axis, to), x, at, share)
            )
        table = axis_table(self, x.type, axis)
        assert table is not None, f"axis {axis} of {x.type} stays as it is"
        indices, weights = table
        if (indices == int(extent)).any():
            # An index just past the end stands for what lies outside of the region.
            after = tuple(int(a == axis) for a in range(x.type.rank))
            x = b(Pad((0,) * x.type.rank, after, value=self._outside(x.type)), x)
        if self.mode == "nearest":
            return b(Gather(axis), x, b.constant(indices[:, 0].copy()))
        constants = (b.constant(part.T.copy()) for part in (indices, weights))
        return b(Interpolate(axis, to), x, *constants)

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
        yield cls((7, 3), mode="cubic", cubic=-0.5), "f32[4,5]"
        yield cls((0, 4)), "f32[0,2]"
        yield cls((6,), (2.3,), coordinates="half_pixel_symmetric"), "f32[3]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls((4,)), f"{dtype}[3]"
        for dtype in sorted(FLOATS | {"u8", "i8", "i32"} - {"f32"}):
            yield cls((4, 5), mode="cubic"), f"{dtype}[3,2]"


def _growth(extent: Dim, size: Dim) -> float:
    """Return by how much an axis grows; what is not known yet counts as if it stayed."""
    if not known(extent) or not known(size):
        return 1.0
    return estimate(size) / max(estimate(extent), 1)



Table = tuple[Array, Array]
"""For each output element: source indices, i32[out, taps], and weights, f32[out, taps]."""


def axis_table(op: Resize, t: TensorType, axis: int) -> Table | None:
    """Return how `axis` of a tensor of type t is resampled; None if nothing changes there.

    The index one past the end stands for the extrapolation value.
    """
    extent, size = t.shape[axis], op.sizes[axis]
    if unchanged(op, extent, axis):
        return None
    assert known(extent) and known(size), (
        f"resize: axis {axis} of {t} must have a number before it is lowered"
    )
    extent, size = int(extent), int(size)  # an open one that passes for a number becomes it
    rule = rule_of(op, axis)
    scale = op.scales[axis] if op.scales else size / max(extent, 1)
    # Scales and roi are in single precision; to that, 1 / 0.33333334 is 3 and not just below.
    steps = np.arange(size, dtype=np.float64)
    exact = positions(rule, steps, extent, size, scale, size == 1)
    where = exact.astype(np.float32).astype(np.float64)
    if op.mode == "nearest":
        indices = rounded(where, op.nearest).astype(np.int64)[:, None]
        weights = np.ones_like(indices, np.float32)
    else:
        indices, weights = taps(rule, where, scale)
        if op.exclude_outside:
            weights = np.where((indices < 0) | (indices >= extent), 0, weights)
            weights = weights / weights.sum(axis=1, keepdims=True)
    indices = np.clip(indices, 0, max(extent - 1, 0))
    if op.coordinates == "tf_crop_and_resize":
        outside = (where < 0) | (where > extent - 1)
        weights = np.where(outside[:, None], np.arange(weights.shape[1]) == 0, weights)
        indices = np.where(outside[:, None], extent, indices)
    return indices.astype(np.int32), weights.astype(np.float32)


def unchanged(op: Resize, extent: Dim, axis: int) -> bool:
    """Whether nothing changes along an axis."""
    same = extent == op.sizes[axis] and (not op.scales or op.scales[axis] == 1.0)
    return same and not _cropped(op, axis)


def rule_of(op: Resize, axis: int) -> Rule:
    """Return what a Resize says of one axis."""
    start, end = (op.roi[axis], op.roi[len(op.sizes) + axis]) if op.roi else (0.0, 1.0)
    return Rule(op.mode, op.coordinates, op.nearest, op.cubic, op.exclude_outside, op.antialias,
                start, end)  # fmt: skip


def scale_of(op: Resize, extent: Dim, axis: int) -> float | None:
    """Return the scale of an axis, if it is the same whatever open extents are."""
    if op.scales:
        return op.scales[axis]
    size = op.sizes[axis]
    if isinstance(size, int) and isinstance(extent, int):
        return size / max(extent, 1)
    times = size // extent if is_open(extent) else None
    return float(times) if isinstance(times, int) else None


def is_computed(op: Resize, t: TensorType, axis: int) -> bool:
    """Whether the program computes the table of an axis: it is open, and there is a way."""
    extent = t.shape[axis]
    if not is_open(extent) and not is_open(op.sizes[axis]):
        return False
    # What lies outside of a region is marked by numbers of the extent, and the rule that was made
    # for nearest shifts even what keeps its extent.
    if op.coordinates in ("tf_crop_and_resize", "tf_half_pixel_for_nn"):
        return False
    # The number of taps must be known.
    return not op.antialias or scale_of(op, extent, axis) is not None


def _cropped(op: Resize, axis: int) -> bool:
    rank = len(op.sizes)
    return op.coordinates == "tf_crop_and_resize" and (op.roi[axis], op.roi[rank + axis]) != (0, 1)


def taps(rule: Rule, where: Array, scale: float) -> Table:
    """Return the neighbours of each position and their weights, which add up to 1."""
    stretch = rule.stretch(scale)
    count = 2 * int(np.ceil(rule.reach(scale)))
    first = np.floor(where).astype(np.int64) - count // 2 + 1
    indices = first[:, None] + np.arange(count)
    distance = np.abs(indices - where[:, None]) * stretch
    if rule.mode == "linear":
        weights = np.maximum(1 - distance, 0)
    else:
        weights = cubic(distance, rule.cubic)
    if rule.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return indices, weights


def cubic(distance: Array, a: float) -> Array:
    """Return Keys' cubic convolution kernel at the given distances."""
    near, far = keys_kernel(distance, a)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))
