"""Reading tensors between their elements, at places that are data (ONNX GridSample).

`Sample` reads, `Spread` is its transpose and `SampleSlope` what it changes by with its places; the
other operators compute the places.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    Composite,
    Examples,
    Op,
    Primitive,
    check_choice,
    check_dtype,
    check_each,
    check_rank,
)
from alpenglow.ir.types import ALL, FLOATS, NUMBERS, Array, TensorType
from alpenglow.ir.vocabulary import NUMPY
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.image.resize import narrowed
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import as_type, in_floats
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Slice, Transpose

MODES = ("nearest", "linear", "cubic")
PADDINGS = ("zeros", "border", "reflection")
SHARPNESS = -0.75
"""The coefficient of the cubic kernel."""


class Sampling(Primitive, kind=True):
    """What is read of an image at places, and with what weights.

    `mode` is nearest (halves go to even), linear or cubic.  Outside of the image are zeros, or with
    `padding` border the nearest element, or with reflection the mirror image: at the outermost
    elements if `aligned`, else half an element outside of them.  With `normalized` a place is x, y,
    …, innermost axis first, from -1 to 1 between these ends.

    With `orders` weights are derivatives: of this order by the places on each axis of the image.
    On the outermost elements, and beyond, what is read linearly with a border does not change; nor
    does it, to first order, on those at which an image is mirrored.
    """

    mode: str = "linear"
    padding: str = "zeros"
    aligned: bool = False
    normalized: bool = False
    orders: tuple[int, ...] = ()

    def order(self, axis: int) -> int:
        return self.orders[axis] if self.orders else 0

    def derived(self, axis: int, rank: int) -> tuple[int, ...]:
        """Return the orders, of that of one of `rank` axes one more."""
        return tuple(self.order(i) + (i == axis) for i in range(rank))

    def coordinate(self, axis: int, rank: int) -> int:
        """Return which number of a place stands for an axis of the image."""
        return rank - 1 - axis if self.normalized else axis

    def settings(self) -> tuple[str, str, bool, bool]:
        return self.mode, self.padding, self.aligned, self.normalized

    def check(self, x: TensorType, at: TensorType) -> None:
        """Raise TypeRuleError unless `at` holds places in an image of this type."""
        check_modes(self, self.mode, self.padding)
        check_rank(self, "x", x, 3)
        check_rank(self, "at", at, 3, 3)
        if at.shape[0] != x.shape[0] or at.shape[2] != x.rank - 2:
            wanted = f"[{x.shape[0]}, positions, {x.rank - 2}]"
            raise TypeRuleError(f"{self.name}: at is {at}, expected {wanted} for {x}")
        if 0 in x.shape[2:] and product(at.shape[:2]) != 0:
            raise TypeRuleError(f"{self.name}: x is {x}, expected at least one pixel for {at}")
        if not self.orders:
            return
        check_each(self, x.rank - 2, orders=self.orders)
        if min(self.orders) < 0 or self.mode == "nearest" or x.dtype not in FLOATS:
            raise TypeRuleError(
                f"{self.name}: orders is {self.orders} for mode '{self.mode}' and {x}, expected 0 "
                "or more, mode linear or cubic, and floats"
            )

    def taps(self, at: Array, spatial: Sequence[int]) -> list[list[Tap]]:
        """Return the reads of each position along each axis."""
        rank = len(spatial)
        places = [at[..., self.coordinate(i, rank)] for i in range(rank)]
        return [
            self._taps(p, d, self.order(i))
            for i, (p, d) in enumerate(zip(places, spatial, strict=True))
        ]

    def _taps(self, p: Array, extent: int, order: int) -> list[Tap]:
        slope: Array = np.ones((), p.dtype)
        if self.normalized:
            shift = 0 if self.aligned else 1
            p = ((p + 1) * p.dtype.type(extent - 1 + shift) - shift) * p.dtype.type(0.5)
            slope = slope * p.dtype.type((extent - 1 + shift) / 2)
        if self.mode == "nearest":
            p = np.rint(p)
        low, high = (0.0, extent - 1.0) if self.aligned else (-0.5, extent - 0.5)
        outside = (p < low) | (p > high)
        if self.padding == "border" and self.mode != "cubic":
            p = np.where(outside, np.clip(p, 0, extent - 1), p)
        elif self.padding == "reflection":
            mirrored, turned = reflected(p, low, high)
            slope, p = slope * np.where(outside, turned, 1), np.where(outside, mirrored, p)
        if self.mode == "linear" and self.padding != "zeros":
            slope = slope * ((p > 0) & (p < extent - 1))
        first = p if self.mode == "nearest" else np.floor(p)
        taps = []
        for offset in OFFSETS[self.mode]:
            at = first + first.dtype.type(offset)
            inside = (at >= 0) & (at <= extent - 1)
            if self.padding == "reflection":
                beyond = (at < low) | (at > high)
                at = np.trunc(np.where(beyond, reflected(at, low, high)[0], at))
            if self.padding != "zeros":
                inside = np.ones_like(inside)
            index = np.minimum(np.where(at > 0, at, 0), extent - 1).astype(np.int64)
            share = weight(NUMPY, self.mode, p - first, offset, order)
            if order:
                share = share * slope**order
            taps.append((index, np.broadcast_to(np.asarray(share, p.dtype), p.shape), inside))
        return taps


Tap = tuple[Array, Array, Array]
"""An element that places read along an axis: its index, its weight, and whether it exists."""

OFFSETS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
"""Where the elements that are read lie from the one before a place."""

NEAR = (SHARPNESS + 2, -(SHARPNESS + 3), 0.0, 1.0)
FAR = (SHARPNESS, -5 * SHARPNESS, 8 * SHARPNESS, -4 * SHARPNESS)
"""Keys' cubic kernel by distances up to 1, and from there to 2: polynomials."""


def weight(m: Any, mode: str, share: Any, offset: int, order: int) -> Any:
    """Return the weight of the element at `offset` for a place that is `share` beyond the one at 0.

    With an `order` it is the derivative by the share.
    """
    if mode == "nearest":
        return 1.0
    polynomial: tuple[float, ...] = (
        (-1.0, 1.0) if mode == "linear" else NEAR if offset in (0, 1) else FAR
    )
    for _ in range(order):
        degree = len(polynomial) - 1
        polynomial = tuple(c * (degree - i) for i, c in enumerate(polynomial[:-1])) or (0.0,)
    distance = m.abs(m.sub(share, float(offset)))
    y = m.mul(distance, polynomial[0]) if len(polynomial) > 1 else (
        m.add(m.mul(distance, 0.0), polynomial[0]))  # fmt: skip
    for i, c in enumerate(polynomial[1:], 2):
        y = m.add(y, c) if c else y
        y = m.mul(y, distance) if i < len(polynomial) else y
    return m.neg(y) if order % 2 and offset > 0 else y


class Sample(Sampling):
    """x[N, C, …] at the places at[N, P, R], in elements along its R spatial axes: y[N, C, P].

    How, `Sampling` says.  Places are computed in f32, or f64 where an operand is; so is the sum,
    which is rounded to the type of x once.  An integer is truncated and limited to the range.
    """

    def infer(self, x: TensorType, at: TensorType) -> TensorType:
        check_dtype(self, "x", x, ALL if self.mode == "nearest" else NUMBERS)
        check_dtype(self, "at", at, FLOATS)
        self.check(x, at)
        return x.with_shape((*x.shape[:2], at.shape[1]))

    def reference(self, x: Array, at: Array) -> Array:
        n, c, *spatial = x.shape
        if 0 in x.shape:
            return np.zeros((n, c, at.shape[1]), x.dtype)
        wide = np.dtype(np.float64 if np.float64 in (x.dtype, at.dtype) else np.float32)
        total: Array = np.zeros((n, c, at.shape[1]), x.dtype if self.mode == "nearest" else wide)
        with np.errstate(all="ignore"):
            taps = self.taps(at.astype(wide), spatial)
            for flat, share, valid in combinations(taps, spatial):
                element = np.take_along_axis(x.reshape(n, c, -1), flat[:, None], axis=2)
                value = np.where(valid[:, None], element, np.zeros((), x.dtype))
                if self.mode == "nearest":
                    return value.astype(x.dtype)
                total += value.astype(wide) * share[:, None]
        return narrowed(total, x.dtype)

    def gradient(self, b: Graph, dy: Value, x: Value, at: Value) -> tuple[Value, Value | None]:
        wide = "f64" if "f64" in (x.type.dtype, at.type.dtype) else "f32"
        change, image, places = (as_type(b, v, wide) for v in (dy, x, at))
        spread = Spread(*self.settings(), self.orders, x.type.shape[2:])
        dx = as_type(b, b(spread, change, places), x.type.dtype)
        if self.mode == "nearest":
            return dx, None
        slope = b(SampleSlope(*self.settings(), self.orders), change, image, places)
        return dx, as_type(b, slope, at.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        for mode in MODES:
            for padding in PADDINGS:
                for aligned in (False, True):
                    yield cls(mode, padding, aligned), "f32[2,3,4,5]", "f32[2,21,2]"
                    yield cls(mode, padding, aligned, True), "f32[2,3,4,5]", "f32[2,7,2]"
            yield cls(mode), "f32[1,2,7]", "f32[1,5,1]"
            yield cls(mode, "reflection"), "f32[1,2,1,3]", "f32[1,9,2]"
            yield cls(mode, "border"), "f32[2,1,3,2,4]", "f32[2,3,3]"
            for dtype in sorted(NUMBERS - {"f32"}):
                yield cls(mode), f"{dtype}[1,2,4,4]", "f32[1,5,2]"
            for dtype in sorted(FLOATS - {"f32"}):
                yield cls(mode), "f32[1,2,4,4]", f"{dtype}[1,5,2]"
        yield cls("nearest"), "bool[1,2,4,4]", "f32[1,5,2]"
        yield cls(), "f32[1,2,4,0]", "f32[1,0,2]"
        yield cls(), "f32[0,2,4,4]", "f32[0,3,2]"
        yield cls("cubic", "reflection", orders=(2, 1)), "f32[1,2,4,4]", "f32[1,5,2]"
        far = np.array([[[np.nan, 1], [1e30, 1], [1, -np.inf]]], np.float32)
        yield cls("nearest", "border"), "f32[1,2,4,4]", far
        yield cls("nearest"), "f32[1,2,4,4]", far


def combinations(taps: list[list[Tap]], spatial: Sequence[int]) -> Iterator[Tap]:
    """Yield the elements that places read of an image, by their row-major indices."""
    for chosen in itertools.product(*taps):
        share: Array = np.ones((), chosen[0][1].dtype)
        valid: Array = np.ones((), bool)
        flat: Array = np.zeros((), np.int64)
        for (place, factor, inside), extent in zip(chosen, spatial, strict=True):
            share, valid = share * factor, valid & inside
            flat = flat * extent + place
        yield flat, share, valid


class Spread(Sampling):
    """y[N, C, P] added up in an image[N, C, *extents], as `Sample` with these settings reads it.

    It is the transpose of that: the gradient of the image.
    """

    extents: tuple[Dim, ...] = ()

    def infer(self, y: TensorType, at: TensorType) -> TensorType:
        check_same_reals(self, y=y, at=at)
        check_rank(self, "y", y, 3, 3)
        x = y.with_shape((*y.shape[:2], *self.extents))
        self.check(x, at)
        if y.shape[2] != at.shape[1]:
            raise TypeRuleError(f"spread: y is {y}, expected {at.shape[1]} on axis 2 as in {at}")
        return x

    def reference(self, y: Array, at: Array) -> Array:
        n, c, _ = y.shape
        spatial = [int(d) for d in self.extents]
        total = np.zeros((n, c, int(np.prod(spatial))), y.dtype)
        if not y.size:
            return total.reshape(n, c, *spatial)
        image, channel = np.ogrid[:n, :c]
        with np.errstate(all="ignore"):
            for flat, share, valid in combinations(self.taps(at, spatial), spatial):
                part = np.where(valid[:, None], y * share[:, None], 0)
                np.add.at(total, (image[..., None], channel[..., None], flat[:, None]), part)
        return total.reshape(n, c, *spatial)

    def gradient(self, b: Graph, dx: Value, y: Value, at: Value) -> tuple[Value, Value | None]:
        dy = b(Sample(*self.settings(), self.orders), dx, at)
        if self.mode == "nearest":
            return dy, None
        return dy, b(SampleSlope(*self.settings(), self.orders), y, dx, at)

    @classmethod
    def examples(cls) -> Examples:
        for mode in MODES:
            for padding in PADDINGS:
                yield cls(mode, padding, extents=(4, 5)), "f32[2,3,9]", "f32[2,9,2]"
                yield cls(mode, padding, True, True, (), (4, 5)), "f32[2,20,9]", "f32[2,9,2]"
            yield cls(mode, extents=(7,)), "f64[1,2,5]", "f64[1,5,1]"
        yield cls("linear", "border", extents=(3, 1, 4)), "f32[2,1,3]", "f32[2,3,3]"
        yield cls("cubic", orders=(0, 1), extents=(4, 5)), "f32[1,2,7]", "f32[1,7,2]"
        yield cls(extents=(4, 0)), "f32[1,2,0]", "f32[1,0,2]"
        yield cls(extents=(4, 4)), "f32[0,2,3]", "f32[0,3,2]"


class SampleSlope(Sampling):
    """What the sum of y[N, C, P] · Sample(x[N, C, …], at) changes by with places at[N, P, R]."""

    def infer(self, y: TensorType, x: TensorType, at: TensorType) -> TensorType:
        check_same_reals(self, y=y, x=x, at=at)
        self.check(x, at)
        if self.mode == "nearest":
            raise TypeRuleError("sample_slope: mode is 'nearest', expected linear or cubic")
        if y.shape != (*x.shape[:2], at.shape[1]):
            wanted = y.with_shape((*x.shape[:2], at.shape[1]))
            raise TypeRuleError(f"sample_slope: y is {y}, expected {wanted}")
        return at

    def reference(self, y: Array, x: Array, at: Array) -> Array:
        rank = at.shape[2]
        slopes = np.zeros_like(at)
        with np.errstate(all="ignore"):
            for axis in range(rank):
                read = Sample(*self.settings(), self.derived(axis, rank)).reference(x, at)
                slopes[..., self.coordinate(axis, rank)] = (y * read).sum(axis=1)
        return slopes

    def gradient(
        self, b: Graph, dat: Value, y: Value, x: Value, at: Value
    ) -> tuple[Value, Value, Value]:
        """The slope is a sum over axes of y times what `Sample` of a higher order reads."""
        n, _, places = y.type.shape
        rank = x.type.rank - 2
        parts: list[tuple[Value, Value, Value]] = []
        for axis in range(rank):
            orders, number = self.derived(axis, rank), self.coordinate(axis, rank)
            column = b(Slice((0, 0, number), (n, places, 1), (1, 1, 1)), dat)
            row = b(Reshape((n, 1, places)), column)
            change = b(Broadcast(y.type.shape), row)
            along, settings = b(Mul(), change, y), self.settings()
            parts.append((
                b(Mul(), change, b(Sample(*settings, orders), x, at)),
                b(Spread(*settings, orders, x.type.shape[2:]), along, at),
                b(SampleSlope(*settings, orders), along, x, at),
            ))  # fmt: skip
        first, *rest = parts
        for part in rest:
            first = (b(Add(), first[0], part[0]), b(Add(), first[1], part[1]),
                     b(Add(), first[2], part[2]))  # fmt: skip
        return first

    @classmethod
    def examples(cls) -> Examples:
        for mode in ("linear", "cubic"):
            for padding in PADDINGS:
                yield cls(mode, padding), "f32[2,3,9]", "f32[2,3,4,5]", "f32[2,9,2]"
                yield (cls(mode, padding, True, True), "f32[2,3,17]", "f32[2,3,4,5]",
                       "f32[2,17,2]")  # fmt: skip
            yield cls(mode), "f64[1,2,5]", "f64[1,2,7]", "f64[1,5,1]"
        yield cls("linear", "border"), "f32[2,1,3]", "f32[2,1,3,2,4]", "f32[2,3,3]"
        yield cls("cubic", orders=(0, 1)), "f32[1,2,7]", "f32[1,2,4,5]", "f32[1,7,2]"
        yield cls(), "f32[1,2,0]", "f32[1,2,4,0]", "f32[1,0,2]"
        yield cls(), "f32[1,0,3]", "f32[1,0,4,4]", "f32[1,3,2]"


def check_same_reals(op: Op, **operands: TensorType) -> None:
    """Raise TypeRuleError unless operands have one element type, f32 or f64."""
    first = next(iter(operands.values()))
    check_dtype(op, next(iter(operands)), first, {"f32", "f64"})
    for name, t in operands.items():
        if t.dtype != first.dtype:
            raise TypeRuleError(f"{op.name}: {name} is {t}, expected elements of {first.dtype}")


def reflected(p: Array, low: float, high: float) -> tuple[Array, Array]:
    """Return places mirrored at both ends of an axis until they lie between them, and which way
    they then go: 1 or -1, or 0 where the ends meet."""
    reach = p.dtype.type(high - low)
    if reach == 0:
        return np.full_like(p, low), np.zeros_like(p)
    distance = np.where(p < low, low - p, p - high)
    times = np.trunc(distance / reach)
    rest = distance - times * reach
    # An even number of full turns leaves the place at the end that it went beyond.
    even = np.fmod(times, 2) == 0
    at_low = (p < low) == even
    mirrored = np.where(at_low, low + rest, high - rest).astype(p.dtype)
    return np.asarray(mirrored), np.where(even, -1, 1).astype(p.dtype)


def check_modes(op: Op, mode: str, padding: str) -> None:
    """Raise TypeRuleError unless mode and padding are defined."""
    check_choice(op, MODES, mode=mode)
    check_choice(op, PADDINGS, padding=padding)


class GridSample(Composite):
    """x[N, C, …] at the places of grid[N, *out, R]: y[N, C, *out].  ONNX GridSample.

    The last axis of grid holds a place as x, y, …, innermost axis first, from -1 to 1: the centres
    of the outermost elements if `aligned`, else their outer edges.  `mode` and `padding` are those
    of sample.
    """

    mode: str = "linear"
    padding: str = "zeros"
    aligned: bool = False

    def infer(self, x: TensorType, grid: TensorType) -> TensorType:
        check_dtype(self, "grid", grid, FLOATS)
        check_rank(self, "x", x, 3)
        check_rank(self, "grid", grid, x.rank, x.rank)
        n, *out, rank = grid.shape
        places = grid.with_shape((n, product(out), rank))
        self._sample().infer(x, places)
        return x.with_shape((*x.shape[:2], *out))

    def lower(self, b: Graph, x: Value, grid: Value) -> Value:
        n, *out, rank = grid.type.shape
        y = b(self._sample(), x, b(Reshape((n, product(out), rank)), grid))
        return b(Reshape((*x.type.shape[:2], *out)), y)

    def _sample(self) -> Sample:
        return Sample(self.mode, self.padding, self.aligned, True)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,3,4,5]", "f32[2,3,7,2]"
        yield cls("nearest", "border", True), "f32[1,2,3,4,5]", "f32[1,2,3,2,3]"
        yield cls("cubic", "reflection"), "f32[1,2,9]", "f32[1,4,1]"
        yield cls(), "f32[0,2,4,4]", "f32[0,3,3,2]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(), f"{dtype}[1,2,3,3]", f"{dtype}[1,2,2,2]"
        yield cls("nearest"), "i64[1,2,3,3]", "f32[1,2,2,2]"


class AffineGrid(Composite):
    """The places theta[N, R, R+1] maps a regular grid to: [N, *extents, R].  ONNX AffineGrid.

    A place is x, y, …, innermost axis first, from -1 to 1; `aligned` is as in grid_sample.
    """

    extents: tuple[Dim, ...]
    aligned: bool = False

    def infer(self, theta: TensorType) -> TensorType:
        check_dtype(self, "theta", theta, FLOATS)
        rank = len(self.extents)
        if theta.rank != 3 or theta.shape[1:] != (rank, rank + 1):
            raise TypeRuleError(f"affine_grid: theta is {theta}, expected [N, {rank}, {rank + 1}]")
        return theta.with_shape((theta.shape[0], *self.extents, rank))

    def lower(self, b: Graph, theta: Value) -> Value:
        n, rank, _ = theta.type.shape
        wide = in_floats(b, theta)
        places = self._places().astype(wide.type.numpy)
        base = b(Broadcast((n, *places.shape)), b.constant(places))
        y = b(MatMul(), base, b(Transpose((0, 2, 1)), wide))
        return as_type(b, b(Reshape((n, *self.extents, rank)), y), theta.type.dtype)

    def _places(self) -> Array:
        """Return the regular grid, a row x, y, …, 1 for each place."""
        axes = []
        for d in map(int, self.extents):
            step = 2 / max(d - 1 if self.aligned else d, 1)
            centre = np.arange(d) - (d - 1) / 2
            axes.append(centre * step)
        grid = np.meshgrid(*axes, indexing="ij")
        rows = [a.reshape(-1) for a in (*reversed(grid), np.ones_like(grid[0]))]
        return np.stack(rows, axis=1)

    @classmethod
    def examples(cls) -> Examples:
        yield cls((3, 5)), "f32[2,2,3]"
        yield cls((3, 1), True), "f32[2,2,3]"
        yield cls((2, 3, 4), True), "f32[1,3,4]"
        yield cls((0, 4)), "f32[1,2,3]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls((2, 3)), f"{dtype}[1,2,3]"
