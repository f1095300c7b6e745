"""Reading tensors between their elements, at places that are data (ONNX GridSample, DeformConv).

`Sample` reads; the other operators compute the places.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    Composite,
    Examples,
    Op,
    Primitive,
    check_dtype,
    check_each,
    check_rank,
)
from alpenglow.ir.types import ALL, FLOATS, NUMBERS, Array, TensorType
from alpenglow.ops.arithmetic import Add, Mul
from alpenglow.ops.contraction import Conv, MatMul
from alpenglow.ops.movement import Broadcast, Reshape, Transpose
from alpenglow.ops.reduction import as_type, in_floats
from alpenglow.ops.resize import cubic, narrowed
from alpenglow.ops.window import conv_extent

MODES = ("nearest", "linear", "cubic")
PADDINGS = ("zeros", "border", "reflection")
SHARPNESS = -0.75
"""The coefficient of the cubic kernel."""


class Sample(Primitive):
    """x[N, C, …] at the places at[N, P, R], in elements along its R spatial axes: y[N, C, P].

    `mode` is nearest (halves go to even), linear or cubic.  Outside of x are zeros, or with
    `padding` border the nearest element, or with reflection the mirror image: at the outermost
    elements if `aligned`, else half an element outside of them.  With `normalized` a place is x, y,
    …, innermost axis first, from -1 to 1 between these ends.  Places are computed in f32, or f64
    where an operand is; so is the sum, which is rounded to the type of x once.  An integer is
    truncated and limited to the range.
    """

    mode: str = "linear"
    padding: str = "zeros"
    aligned: bool = False
    normalized: bool = False

    def infer(self, x: TensorType, at: TensorType) -> TensorType:
        check_dtype(self, "x", x, ALL if self.mode == "nearest" else NUMBERS)
        check_dtype(self, "at", at, FLOATS)
        check_rank(self, "x", x, 3)
        check_modes(self, self.mode, self.padding)
        check_rank(self, "at", at, 3, 3)
        if at.shape[0] != x.shape[0] or at.shape[2] != x.rank - 2 or x.blocked is not None:
            raise TypeRuleError(f"sample: places {at} do not fit {x}; expected [N, P, R]")
        if 0 in x.shape[2:] and product(at.shape[:2]) != 0:
            raise TypeRuleError(f"sample: {x} has nothing to read")
        return x.with_shape((*x.shape[:2], at.shape[1]))

    def reference(self, x: Array, at: Array) -> Array:
        n, c, *spatial = x.shape
        if 0 in x.shape:
            return np.zeros((n, c, at.shape[1]), x.dtype)
        wide = np.dtype(np.float64 if np.float64 in (x.dtype, at.dtype) else np.float32)
        total: Array = np.zeros((n, c, at.shape[1]), x.dtype if self.mode == "nearest" else wide)
        with np.errstate(all="ignore"):
            places = at[..., ::-1] if self.normalized else at
            taps = [self._taps(places[..., i].astype(wide), d) for i, d in enumerate(spatial)]
            for chosen in np.ndindex(*(len(t) for t in taps)):
                weight: Array = np.ones((), wide)
                valid: Array = np.ones((), bool)
                flat: Array = np.zeros((), np.int64)
                for axis, (tap, extent) in enumerate(zip(chosen, spatial, strict=True)):
                    place, share, inside = taps[axis][tap]
                    weight, valid = weight * share, valid & inside
                    flat = flat * extent + place
                element = np.take_along_axis(x.reshape(n, c, -1), flat[:, None], axis=2)
                value = np.where(valid[:, None], element, np.zeros((), x.dtype))
                if self.mode == "nearest":
                    return value.astype(x.dtype)
                total += value.astype(wide) * weight[:, None]
        return narrowed(total, x.dtype)

    def _taps(self, p: Array, extent: int) -> list[tuple[Array, Array, Array]]:
        """Return index, weight and validity of each element that a place on an axis reads."""
        if self.normalized:
            shift = 0 if self.aligned else 1
            p = ((p + 1) * p.dtype.type(extent - 1 + shift) - shift) * p.dtype.type(0.5)
        if self.mode == "nearest":
            p = np.rint(p)
        low, high = (0.0, extent - 1.0) if self.aligned else (-0.5, extent - 0.5)
        outside = (p < low) | (p > high)
        if self.padding == "border" and self.mode != "cubic":
            p = np.where(outside, np.clip(p, 0, extent - 1), p)
        elif self.padding == "reflection":
            p = np.where(outside, reflected(p, low, high), p)
        first = p if self.mode == "nearest" else np.floor(p)
        offsets = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[self.mode]
        taps = []
        for offset in offsets:
            at = first + first.dtype.type(offset)
            inside = (at >= 0) & (at <= extent - 1)
            if self.padding == "reflection":
                beyond = (at < low) | (at > high)
                at = np.trunc(np.where(beyond, reflected(at, low, high), at))
            if self.padding != "zeros":
                inside = np.ones_like(inside)
            index = np.minimum(np.where(at > 0, at, 0), extent - 1).astype(np.int64)
            distance = np.abs(p - first - offset)
            share = 1 - distance
            if self.mode == "cubic":
                share = np.where(np.isnan(distance), distance, cubic(distance, SHARPNESS))
            taps.append((index, share.astype(p.dtype), inside))
        return taps

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
        far = np.array([[[np.nan, 1], [1e30, 1], [1, -np.inf]]], np.float32)
        yield cls("nearest", "border"), "f32[1,2,4,4]", far
        yield cls("nearest"), "f32[1,2,4,4]", far


def reflected(p: Array, low: float, high: float) -> Array:
    """Return places mirrored at both ends of an axis until they lie between them."""
    reach = p.dtype.type(high - low)
    if reach == 0:
        return np.full_like(p, low)
    distance = np.where(p < low, low - p, p - high)
    times = np.trunc(distance / reach)
    rest = distance - times * reach
    # An even number of full turns leaves the place at the end that it went beyond.
    at_low = (p < low) == (np.fmod(times, 2) == 0)
    return np.asarray(np.where(at_low, low + rest, high - rest).astype(p.dtype))


def check_modes(op: Op, mode: str, padding: str) -> None:
    """Raise TypeRuleError unless mode and padding are defined."""
    for what, choice, choices in (("mode", mode, MODES), ("padding", padding, PADDINGS)):
        if choice not in choices:
            raise TypeRuleError(f"{op.name}: {what} '{choice}' is not {', '.join(choices)}")


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


class DeformConv(Composite):
    """A convolution each of whose taps is read elsewhere by an offset, between elements linearly.

    x[N, C, …], w[O, C/group, *kernel], offset[N, G·K·R, *out] for K taps, R axes and G groups of
    channels that share offsets, and optionally bias[O] and mask[N, G·K, *out], a factor for each
    tap.  ONNX DeformConv.
    """

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int = 1
    offset_group: int = 1

    def infer(
        self, x: TensorType, w: TensorType, offset: TensorType,
        bias: TensorType | None = None, mask: TensorType | None = None,
    ) -> TensorType:  # fmt: skip
        check_dtype(self, "x", x, FLOATS)
        conv = Conv(self.strides, self.pads, self.dilations, self.group)
        y = conv.infer(x, w, bias)
        rank, taps = x.rank - 2, product(w.shape[2:])
        check_each(self, rank, strides=self.strides, dilations=self.dilations)
        check_each(self, 2 * rank, pads=self.pads)
        groups = self.offset_group
        channels = x.shape[1]
        if groups < 1 or (known(channels) and channels % groups):
            raise TypeRuleError(f"deform_conv: {x} does not divide into {groups} groups of offsets")
        out = tuple(
            conv_extent(self, x.shape[2 + i], w.shape[2 + i], self.strides[i], self.pads[i],
                        self.pads[rank + i], self.dilations[i])
            for i in range(rank)
        )  # fmt: skip
        for what, t, per_tap in (("offset", offset, rank), ("mask", mask, 1)):
            wanted = x.with_shape((x.shape[0], taps * (groups * per_tap), *out))
            if t is not None and t != wanted:
                raise TypeRuleError(f"deform_conv: {what} is {t}, expected {wanted}")
        return y

    def lower(
        self, b: Graph, x: Value, w: Value, offset: Value,
        bias: Value | None = None, mask: Value | None = None,
    ) -> Value:  # fmt: skip
        n, c, *spatial = x.type.shape
        groups = self.offset_group
        out, kernel = (tuple(map(int, v.type.shape[2:])) for v in (offset, w))
        taps, places, rank = int(np.prod(kernel)), int(np.prod(out)), len(kernel)
        batch = n * groups
        moves = b(Reshape((batch, taps, rank, places)), in_floats(b, offset))
        moves = b(Transpose((0, 1, 3, 2)), moves)
        start = b.constant(self._starts(kernel, out).astype(moves.type.numpy))
        at = b(Add(), moves, b(Broadcast(moves.type.shape), start))
        split = b(Reshape((batch, c // groups, *spatial)), x)
        read = b(Sample(), split, b(Reshape((batch, taps * places, rank)), at))
        if mask is not None:
            factor = b(Reshape((batch, 1, taps * places)), mask)
            read = b(Mul(), read, b(Broadcast(read.type.shape), factor))
        columns = b(Reshape((n, c * taps, places)), read)
        rows = b(Reshape((w.type.shape[0], w.type.shape[1] * taps, 1)), w)
        y = b(Conv((1,), (0, 0), (1,), self.group), columns, rows, bias)
        return b(Reshape((n, w.type.shape[0], *out)), y)

    def _starts(self, kernel: tuple[int, ...], out: tuple[int, ...]) -> Array:
        """Return where each tap of each place is read without an offset: [K, P, R]."""
        starts = []
        for i, (k, o) in enumerate(zip(kernel, out, strict=True)):
            line = np.add.outer(np.arange(k) * self.dilations[i] - self.pads[i],
                                np.arange(o) * self.strides[i])  # fmt: skip
            shape = [1] * (2 * len(kernel))
            shape[i], shape[len(kernel) + i] = k, o
            wide = np.broadcast_to(line.reshape(shape), (*kernel, *out))
            starts.append(wide.reshape(int(np.prod(kernel)), int(np.prod(out))))
        return np.stack(starts, axis=-1)

    @classmethod
    def examples(cls) -> Examples:
        one, none = (1, 1), (0,) * 4
        yield cls(one, none, one), "f32[1,3,5,6]", "f32[4,3,2,3]", "f32[1,12,4,4]"
        yield (cls((2, 1), (1, 0, 0, 1), (1, 2), 2, 2), "f32[2,4,5,6]", "f32[6,2,3,2]",
               "f32[2,24,2,5]", "f32[6]", "f32[2,12,2,5]")  # fmt: skip
        yield cls((2,), (1, 1), (1,)), "f32[1,2,7]", "f32[3,2,3]", "f32[1,3,4]", "f32[3]"
        yield cls(one, none, one), "f32[0,3,5,6]", "f32[4,3,2,3]", "f32[0,12,4,4]"
        for t in sorted(FLOATS - {"f32"}):
            yield cls(one, none, one), f"{t}[1,2,3,3]", f"{t}[2,2,2,2]", f"{t}[1,8,2,2]"
