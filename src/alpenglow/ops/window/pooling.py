"""Pooling over windows.  Axes that a layout adds behind spatial ones are carried along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.base.words import FIX_DIMENSIONS
from alpenglow.ir.dims import Dim, is_open, known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    Composite,
    Examples,
    Op,
    Primitive,
    changed_along,
    check_dtype,
    check_rank,
)
from alpenglow.ir.rows import Rows
from alpenglow.ir.types import FLOATS, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Abs, Div, Mul, Pow, Sign, Sub
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Sqrt
from alpenglow.ops.reduction.reduction import as_type, filled, in_floats, lowest, over
from alpenglow.ops.tensor.gather import ScatterElements, added_at
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Broadcast, Pad, Reshape
from alpenglow.ops.window.unpooling import OverlapAdd
from alpenglow.ops.window.window import conv_extent, edged, overhang, windows


class MaxPool(Primitive):
    """The largest element of each window of x[N, C, …]; padding never wins.  ONNX MaxPool.

    `pads` holds the padding before each spatial axis, then that after.
    """

    sample_axes = 0, 0
    layouts = "first"

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil: bool = False

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS | {"i8", "u8"})
        return pooled(self, x, self.kernel, self.strides, self.pads, self.dilations, self.ceil)

    def rows_of(self, ins: Sequence[TensorType | None]) -> Rows | None:
        return pooled_rows(self)

    def with_edges(self, before: int, after: int) -> MaxPool:
        return replace(self, pads=edged(self.pads, before, after))

    def reference(self, x: Array) -> Array:
        patches = padded_windows(self, x, lowest(x.dtype), self.dilations)
        axes = tuple(range(patches.ndim - len(self.kernel), patches.ndim))
        return np.asarray(patches.max(axis=axes))

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Add each element to the first that was the largest of its window, plane by plane."""
        if 0 in x.type.shape:  # windows of padding alone have no such element
            return filled(b, 0, x)
        index = MaxPoolIndex(self.kernel, self.strides, self.pads, self.dilations, self.ceil)
        where, plane = b(index, x), product(x.type.shape[2:])
        rows: Dim = 1
        if known(plane):
            rows = product(x.type.shape[:2])
            column = (*x.type.shape[:2], *[1] * len(self.kernel))
            first = b(Reshape(column), b(Range(rows, 0, int(plane))))
            where = b(Sub(), where, b(Broadcast(where.type.shape), first))
        each = product(dy.type.shape[2:] if known(plane) else dy.type.shape)
        flat = [b(Reshape((rows, each)), v) for v in (where, dy)]
        empty = Value(x.type.with_shape((rows, plane if known(plane) else product(x.type.shape))))
        total = added_at(b, ScatterElements(1, "add"), empty, *flat)
        return b(Reshape(x.type.shape), total)

    @classmethod
    def examples(cls) -> Examples:
        one = (1, 1)
        yield cls((2, 2), (2, 2), (0,) * 4, one), "f32[1,3,6,8]"
        yield cls((3, 3), (2, 2), (1,) * 4, one), "f32[2,5,7,9]"
        yield cls((3, 3), (2, 2), (0,) * 4, one, True), "f32[1,20,8,8]"
        yield cls((3, 2), (1, 2), (0, 1, 1, 0), (2, 1)), "f32[1,4,9,7]"
        yield cls((3,), (2,), (1, 0), (1,)), "f32[1,3,8]"
        yield cls((2, 2, 2), (2, 1, 1), (0,) * 6, (1, 1, 1)), "f32[1,2,4,4,4]"
        yield cls((2, 2), (2, 2), (0,) * 4, one), "f32[0,3,6,8]"
        yield cls((3, 3), (2, 2), (1,) * 4, one), "f32[1,17/16,7,7,16]"
        for dtype in ("f16", "bf16", "f64", "i8", "u8"):
            yield cls((2, 2), (2, 2), (0, 0, 1, 1), one), f"{dtype}[1,3,5,5]"


class MaxPoolIndex(Primitive):
    """Where MaxPool found each element: its row-major index in x[N, C, …], as i64.

    Of several equal elements it is the first, and NaN counts as the largest.  With `column_major`
    the index counts the spatial axes of each channel in column-major order.  ONNX MaxPool, its
    second result.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil: bool = False
    column_major: bool = False

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS | {"i8", "u8"})
        out = pooled(self, x, self.kernel, self.strides, self.pads, self.dilations, self.ceil)
        return out.with_dtype("i64")

    def reference(self, x: Array) -> Array:
        n, c, *spatial = x.shape
        order: Literal["F", "C"] = "F" if self.column_major else "C"
        place = np.arange(np.prod(spatial, dtype=np.int64)).reshape(spatial, order=order)
        channel = np.arange(n * c).reshape(n, c, *[1] * len(spatial)) * place.size
        index = padded_windows(self, channel + place, -1, self.dilations)
        patches = padded_windows(self, x, lowest(x.dtype), self.dilations)
        axes = tuple(range(-len(self.kernel), 0))
        largest = patches.max(axis=axes, keepdims=True)
        hit = ((patches == largest) | (patches != patches)) & (index >= 0)
        flat = (*hit.shape[: -len(self.kernel)], int(np.prod(self.kernel)))
        first = hit.reshape(flat).argmax(axis=-1)[..., None]
        return np.take_along_axis(index.reshape(flat), first, axis=-1)[..., 0]

    @classmethod
    def examples(cls) -> Examples:
        one = (1, 1)
        yield cls((2, 2), (2, 2), (0,) * 4, one), "f32[2,3,6,8]"
        yield cls((3, 3), (2, 2), (1,) * 4, one, True), "f32[1,2,7,8]"
        yield cls((3, 2), (1, 2), (0, 1, 1, 0), (2, 1), False, True), "f32[2,2,9,7]"
        yield cls((3,), (2,), (1, 0), (1,)), "f32[1,3,8]"
        yield cls((2, 2), (1, 1), (0,) * 4, one), np.ones((1, 2, 3, 3), np.float32)
        yield cls((2, 2), (2, 2), (0,) * 4, one), "f32[0,3,6,8]"
        for dtype in ("f16", "bf16", "f64", "i8", "u8"):
            yield cls((2, 2), (2, 2), (0, 0, 1, 1), one), f"{dtype}[1,3,5,5]"


class AveragePool(Primitive):
    """The mean of each window of x[N, C, …].  ONNX AveragePool.

    Padding counts as zeros if `count_pads`, else it is left out of the mean; what hangs over the
    end with `ceil` is never counted.
    """

    sample_axes = 0, 0
    layouts = "first"

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil: bool = False
    count_pads: bool = False

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        return pooled(self, x, self.kernel, self.strides, self.pads, self.dilations, self.ceil)

    def rows_of(self, ins: Sequence[TensorType | None]) -> Rows | None:
        return pooled_rows(self)

    def with_edges(self, before: int, after: int) -> AveragePool:
        return replace(self, pads=edged(self.pads, before, after))

    def reference(self, x: Array) -> Array:
        wide = x.astype(np.result_type(x.dtype, np.float32))
        axes = tuple(range(-len(self.kernel), 0))
        total = padded_windows(self, wide, 0, self.dilations).sum(axis=axes)
        count = self.counts(x.shape).astype(wide.dtype)
        if x.ndim > 2 + len(self.kernel):
            count = count[..., None]
        with np.errstate(all="ignore"):
            return np.asarray(total / count).astype(x.dtype)

    def counts(self, shape: tuple[int, ...]) -> Array:
        """Return of how many elements each window of an x of this shape takes the mean."""
        spatial = len(self.kernel)
        axes = tuple(range(-spatial, 0))
        ones = np.ones((1, 1, *shape[2 : 2 + spatial]), np.int64)
        if not self.count_pads:
            return np.asarray(padded_windows(self, ones, 0, self.dilations).sum(axis=axes))
        edges = zip(self.pads[:spatial], self.pads[spatial:], strict=True)
        ones = np.pad(ones, [(0, 0), (0, 0), *edges], constant_values=1)
        return np.asarray(_overhang_windows(self, ones, shape, 0).sum(axis=axes))

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Divide each element among its window, and add the windows up where they lie."""
        spatial = x.type.shape[2:]
        if any(map(is_open, spatial)):
            raise UnsupportedError(
                "gradient: average_pool of dynamic dimensions is not supported", hint=FIX_DIMENSIONS
            )
        n, c, *places = dy.type.shape
        wide = in_floats(b, dy)
        counts = self.counts((1, 1, *map(int, spatial)))
        count = b.constant(counts.astype(wide.type.numpy))
        share = b(Div(), wide, b(Broadcast(dy.type.shape), count))
        ones = [1] * len(self.kernel)
        taps = b(Reshape((n, c, *ones, *places)), share)
        spread = b(Broadcast((n, c, *self.kernel, *places)), taps)
        return as_type(b, b(self._overlap(x.type, places), spread), x.type.dtype)

    def _overlap(self, x: TensorType, places: list[Dim]) -> OverlapAdd:
        """Return the operator that adds up windows; with `ceil` they reach past the padding."""
        before, spatial = self.pads[: len(self.kernel)], tuple(map(int, x.shape[2:]))
        reach = [
            (int(p) - 1) * s + (k - 1) * d + 1
            for p, s, k, d in zip(places, self.strides, self.kernel, self.dilations, strict=True)
        ]
        after = [max(r - e - a, 0) for r, e, a in zip(reach, spatial, before, strict=True)]
        return OverlapAdd(spatial, self.strides, (*before, *after), self.dilations)

    @classmethod
    def examples(cls) -> Examples:
        one = (1, 1)
        yield cls((2, 2), (2, 2), (0,) * 4, one), "f32[1,3,6,8]"
        yield cls((3, 3), (1, 1), (1,) * 4, one), "f32[2,5,7,9]"
        yield cls((3, 3), (2, 2), (1,) * 4, one, count_pads=True), "f32[2,5,7,9]"
        yield cls((3, 3), (2, 2), (0,) * 4, one, True), "f32[1,20,8,8]"
        yield cls((3, 3), (2, 2), (1,) * 4, one, True, True), "f32[1,20,8,8]"
        yield cls((3,), (2,), (1, 0), (1,)), "f32[1,3,8]"
        yield cls((2, 2, 2), (2, 1, 1), (0,) * 6, (1, 1, 1)), "f32[1,2,4,4,4]"
        yield cls((2, 2), (2, 2), (0,) * 4, one), "f32[0,3,6,8]"
        yield cls((3, 3), (2, 2), (1,) * 4, one), "f32[1,17/16,7,7,16]"
        for dtype in ("f16", "bf16", "f64"):
            yield cls((2, 2), (2, 2), (0, 0, 1, 1), one), f"{dtype}[1,3,5,5]"


class LpPool(Composite):
    """The p-norm of each window of x[N, C, …]: (sum of |x|^p)^(1/p).  ONNX LpPool."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil: bool = False
    p: float = 2

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        if self.p <= 0:
            raise TypeRuleError(f"lp_pool: p is {self.p}, expected more than 0")
        return pooled(self, x, self.kernel, self.strides, self.pads, self.dilations, self.ceil)

    def lower(self, b: Graph, x: Value) -> Value:
        _, mean, full = self._mean(b, x)
        pooled = b(mean, full)
        total = b(Mul(), pooled, filled(b, int(np.prod(self.kernel)), pooled))
        if self.p == 2:
            total = b(Sqrt(), total)
        elif self.p != 1:
            total = b(Pow(), total, filled(b, 1 / self.p, total))
        return as_type(b, total, x.type.dtype)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Elements share the gradient as x |x|^(p - 2) over y^(p - 1); 0 where y is 0."""
        wide = in_floats(b, x)
        (before, after), mean, full = self._mean(b, x)
        shares = in_floats(b, dy)
        if self.p != 1:
            y = b(self, wide)
            none = filled(b, 0, y)
            power = y if self.p == 2 else b(Pow(), y, filled(b, self.p - 1, y))
            shares = b(Where(), b(Equal(), y, none), none, over(b, shares, power))
        dpooled = b(Mul(), shares, filled(b, int(np.prod(self.kernel)), shares))
        dfull = mean.gradient(b, dpooled, full)
        inside = b(Pad(tuple(-n for n in before), tuple(-n for n in after)), dfull)
        slope = wide
        if self.p != 2:
            slope = b(Sign(), wide)
        if self.p not in (1, 2):
            none, size = filled(b, 0, wide), b(Abs(), wide)
            raised = b(Mul(), slope, b(Pow(), size, filled(b, self.p - 1, wide)))
            slope = b(Where(), b(Equal(), size, none), none, raised)
        return as_type(b, b(Mul(), slope, inside), x.type.dtype)

    def _mean(
        self, b: Graph, x: Value
    ) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], AveragePool, Value]:
        """Return zeros to add before and after x, how to pool then, and |x|^p with the zeros."""
        spatial = len(self.kernel)
        before = 0, 0, *self.pads[:spatial]
        after = 0, 0, *(self._after(i) for i in range(spatial))
        full = b(Pad(before, after), powers(b, x, self.p))
        # Zeros are added by hand, so that every window has all its elements.
        mean = AveragePool(self.kernel, self.strides, (0,) * (2 * spatial), self.dilations)
        return (before, after), mean, full

    def _after(self, i: int) -> int:
        """Return how many zeros follow spatial axis i, with those that windows hang over to."""
        spatial = len(self.kernel)
        after = self.pads[spatial + i]
        span = (self.kernel[i] - 1) * self.dilations[i] + 1
        return overhang(span, self.strides[i], after) if self.ceil else after

    @classmethod
    def examples(cls) -> Examples:
        one = (1, 1)
        yield cls((2, 2), (2, 2), (0,) * 4, one), "f32[1,3,6,8]"
        yield cls((3, 3), (2, 2), (1,) * 4, one, True), "f32[1,2,8,7]"
        yield cls((3, 2), (1, 2), (0, 1, 1, 0), (2, 1), False, 1), "f32[1,2,9,7]"
        yield cls((3,), (2,), (1, 0), (1,), False, 3), "f32[1,3,8]"
        yield cls((2, 2), (2, 2), (0,) * 4, one), "f32[0,3,6,8]"
        for dtype in ("f16", "bf16", "f64"):
            yield cls((2, 2), (2, 2), (0, 0, 1, 1), one), f"{dtype}[1,3,5,5]"


Pool = MaxPool | MaxPoolIndex | AveragePool


def powers(b: Graph, x: Value, p: float) -> Value:
    """Return |x|^p, in the type that it should be summed in."""
    wide = in_floats(b, x)
    if p == 2:
        return b(Mul(), wide, wide)
    size = b(Abs(), wide)
    return size if p == 1 else b(Pow(), size, filled(b, p, size))


def pooled(
    op: Op, x: TensorType, kernel: tuple[int, ...], strides: tuple[int, ...],
    pads: tuple[int, ...], dilations: tuple[int, ...], ceil: bool,
) -> TensorType:  # fmt: skip
    """Return the type of x after pooling; raise TypeRuleError if the attributes do not fit it."""
    spatial = len(x.logical) - 2
    check_rank(op, "x", x, 3)
    attributes = (("kernel", kernel, spatial), ("strides", strides, spatial),
                  ("pads", pads, 2 * spatial), ("dilations", dilations, spatial))  # fmt: skip
    for what, value, n in attributes:
        if len(value) != n:
            raise TypeRuleError(f"{op.name}: {len(value)} {what} given, expected {n} for {x}")
    out = [
        conv_extent(op, x.shape[2 + i], kernel[i], strides[i], pads[i], pads[spatial + i],
                    dilations[i], ceil)
        for i in range(spatial)
    ]  # fmt: skip
    if (too_wide := pad_that_holds_a_window(kernel, pads, dilations)) is not None:
        raise TypeRuleError(
            f"{op.name}: a pad is {too_wide}, expected less than the dilated window {kernel}"
        )
    end = 2 + spatial
    return changed_along(op, x, range(2, end), (*x.shape[:2], *out, *x.shape[end:]))


def pad_that_holds_a_window(
    kernel: tuple[int, ...], pads: tuple[int, ...], dilations: tuple[int, ...]
) -> int | None:
    """Return a pad that holds a window and no element of x, which no pooling may have."""
    for i, pad in enumerate(pads):
        axis = i % len(kernel)
        if pad > (kernel[axis] - 1) * dilations[axis]:
            return pad
    return None


def pooled_rows(op: Pool) -> Rows:
    """Return how rows of a pool's result are made of its operand's."""
    pads = op.pads
    return Rows(op.kernel[0], op.strides[0], op.dilations[0], pads[0], pads[len(pads) // 2])


def padded_windows(op: Pool, x: Array, fill: float, dilations: tuple[int, ...]) -> Array:
    """Return the windows of x with `fill` around it, as [N, C, *out, (lanes,) *kernel]."""
    spatial = len(op.kernel)
    edges = zip(op.pads[:spatial], op.pads[spatial:], strict=True)
    around = [(0, 0), (0, 0), *edges, *[(0, 0)] * (x.ndim - 2 - spatial)]
    full = np.pad(x, around, constant_values=fill)
    return _overhang_windows(op, full, x.shape, fill)


def _overhang_windows(op: Pool, full: Array, shape: tuple[int, ...], fill: float) -> Array:
    """Return the windows of the padded `full`; with ceil some may hang over its end."""
    spatial = len(op.kernel)
    extra = []
    for i in range(spatial):
        count = conv_extent(op, shape[2 + i], op.kernel[i], op.strides[i], op.pads[i],
                            op.pads[spatial + i], op.dilations[i], op.ceil)  # fmt: skip
        assert known(count)
        need = (count - 1) * op.strides[i] + (op.kernel[i] - 1) * op.dilations[i] + 1
        extra.append((0, max(need - full.shape[2 + i], 0)))
    lanes = full.ndim - 2 - spatial
    full = np.pad(full, [(0, 0), (0, 0), *extra, *[(0, 0)] * lanes], constant_values=fill)
    if lanes:
        moved = windows(np.moveaxis(full, -1, 0).reshape(-1, *full.shape[1:-1]), op.kernel,
                        op.strides, op.dilations)  # fmt: skip
        split = moved.reshape(full.shape[-1], -1, *moved.shape[1:])
        return np.moveaxis(split, 0, 2 + spatial)
    return windows(full, op.kernel, op.strides, op.dilations)
