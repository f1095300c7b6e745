"""Contractions: matrix product and convolution, as models write them.

Of bytes, i8 and u8 in any mix, they are sums of the products as they stand, in i32, which wraps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, ceil_div, known, product
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Composite, Examples, Primitive, check_dtype, check_rank
from alpenglow.ir.rows import Rows
from alpenglow.ir.types import ALL, FLOATS, HALVES, NUMBERS, Array, TensorType
from alpenglow.ops.arithmetic import Add
from alpenglow.ops.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose, stretch
from alpenglow.ops.reduction import as_type
from alpenglow.ops.window import conv_extent, edged, windows

BYTES = frozenset({"i8", "u8"})
"""What is multiplied to i32, whatever the signs."""


def summed(op: MatMul | Conv, x: TensorType, y: TensorType) -> str:
    """Return the element type of the sums of products of two operands."""
    if {x.dtype, y.dtype} <= BYTES:
        return "i32"
    if x.dtype != y.dtype:
        raise TypeRuleError(f"{op.name}: element types differ: {x} and {y}")
    if op.wide and x.dtype not in HALVES:
        raise TypeRuleError(f"{op.name}: wide sums are those of bf16 and f16, not of {x}")
    return "f32" if op.wide else x.dtype


def work_of_product(ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
    """Return how many multiply-adds x[…, k] times a matrix takes, however that is stored."""
    x = ins[0]
    assert x is not None, "x is there"
    return outs[0].size * x.extents[-1]


class MatMul(Primitive):
    """x[…, M, K] times y[…, K, N], the leading axes equal.  ONNX MatMul, broadcast explicitly.

    Bytes are summed in i32, other integers in their own type; half precision is summed in f32
    and rounded once, unless the result is to be `wide`: the sums in f32.
    """

    walks = "rows"

    wide: bool = False

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        check_dtype(self, "x", x, NUMBERS)
        check_rank(self, "x", x, 2)
        if x.shape[:-2] != y.shape[:-2] or x.shape[-1] != y.shape[-2]:
            raise TypeRuleError(
                f"mat_mul: cannot multiply {x} by {y}; expected […,M,K] and […,K,N] of one type"
            )
        return TensorType(summed(self, x, y), (*x.shape[:-1], y.shape[-1]))

    def reference(self, x: Array, y: Array) -> Array:
        if x.dtype.itemsize == 1:
            # f64 holds the sums exactly and has the faster product.
            return _wrapped(np.matmul(x.astype(np.float64), y.astype(np.float64)))
        if x.dtype.itemsize == 2 and x.dtype.kind not in "iu":
            sums: Array = np.matmul(x.astype(np.float32), y.astype(np.float32))
            return sums if self.wide else sums.astype(x.dtype)
        product: Array = np.matmul(x, y)
        return product

    def gradient(self, b: Graph, dy: Value, x: Value, y: Value) -> tuple[Value, Value]:
        wide_x, wide_y = (as_type(b, v, dy.type.dtype) for v in (x, y))
        dx = b(MatMul(), dy, turned(b, wide_y))
        match y:
            case Value(Node(Transpose(perm=perm))) if perm == _turn(y.type.rank):
                # What has been turned is turned back by its own gradient, which meets this.
                dw = turned(b, b(MatMul(), turned(b, dy), wide_x))
            case _:
                dw = b(MatMul(), turned(b, wide_x), dy)
        return as_type(b, dx, x.type.dtype), as_type(b, dw, y.type.dtype)

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        return work_of_product(ins, outs)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[3,4]", "f32[4,5]"
        yield cls(), "f32[1,40]", "f32[40,70]"
        yield cls(), "f32[2,3,17,9]", "f32[2,3,9,33]"
        yield cls(), "f32[0,4]", "f32[4,5]"
        yield cls(), "f32[3,0]", "f32[0,5]"
        for dtype in sorted(NUMBERS - BYTES - {"f32"}):
            yield cls(), f"{dtype}[3,4]", f"{dtype}[4,5]"
        for a in sorted(BYTES):
            for c in sorted(BYTES):
                yield cls(), f"{a}[3,4]", f"{c}[4,5]"
                yield cls(), f"{a}[2,5,37]", f"{c}[2,37,19]"
        yield cls(), "u8[3,0]", "i8[0,5]"
        for dtype in sorted(HALVES):
            yield cls(wide=True), f"{dtype}[3,40]", f"{dtype}[40,33]"


class Conv(Primitive):
    """Cross-correlation of x[N, C, …] with w[O, C/group, …], plus bias[O] where given.

    `pads` holds the zeros before each spatial axis, then those after; strides and dilations
    default to 1.  ONNX Conv, 1-D to 3-D and beyond.  Bytes are summed in i32, the bias with them;
    half precision is rounded once, unless the result is to be `wide`: then it and the bias are f32.
    """

    sample_axes = 0, 0

    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    group: int = 1
    wide: bool = False

    def infer(self, x: TensorType, w: TensorType, bias: TensorType | None = None) -> TensorType:
        check_dtype(self, "x", x, FLOATS | BYTES)
        check_rank(self, "x", x, 3)
        check_rank(self, "w", w, x.rank, x.rank)
        dtype = summed(self, x, w)
        if bias is not None and bias.dtype != dtype:
            raise TypeRuleError(f"conv: bias is {bias}, expected {dtype} with {x} and {w}")
        spatial = x.rank - 2
        for what, value, n in (("strides", self.strides, spatial), ("pads", self.pads, 2 * spatial),
                               ("dilations", self.dilations, spatial)):  # fmt: skip
            if len(value) not in (0, n):
                raise TypeRuleError(f"conv: {len(value)} {what} given, expected {n} for {x}")
        channels = x.shape[1]
        if channels != w.shape[1] * self.group:
            raise TypeRuleError(
                f"conv: input has {channels} channels but weights expect {w.shape[1] * self.group}"
                f" ({x} with {w} in {self.group} groups)",
                hint="the layout may be NHWC; transpose it to NCHW",
            )
        outputs = w.shape[0]
        if known(outputs) and outputs % self.group:
            raise TypeRuleError(f"conv: {outputs} outputs do not divide into {self.group} groups")
        if bias is not None and bias.shape != (outputs,):
            raise TypeRuleError(f"conv: bias is {bias}, expected shape ({outputs},)")
        pads, steps, spread = self.window(spatial)
        out: list[Dim] = []
        for i in range(spatial):
            out.append(
                conv_extent(self, x.shape[2 + i], w.shape[2 + i], steps[i], pads[i],
                            pads[spatial + i], spread[i])
            )  # fmt: skip
        return TensorType(dtype, (x.shape[0], outputs, *out))

    def window(self, spatial: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return pads, strides and dilations with their defaults filled in."""
        return (
            self.pads or (0,) * (2 * spatial),
            self.strides or (1,) * spatial,
            self.dilations or (1,) * spatial,
        )

    def rows_of(self, ins: Sequence[TensorType | None]) -> Rows | None:
        w = ins[1]
        assert w is not None, "w is there"
        spatial = w.rank - 2
        pads, strides, dilations = self.window(spatial)
        return Rows(w.extents[2], strides[0], dilations[0], pads[0], pads[spatial])

    def with_edges(self, before: int, after: int) -> Conv:
        return replace(self, pads=edged(self.pads, before, after)) if self.pads else self

    def reference(self, x: Array, w: Array, bias: Array | None = None) -> Array:
        spatial = x.ndim - 2
        pads, strides, dilations = self.window(spatial)
        wide = (
            np.dtype(np.float64) if x.dtype.itemsize == 1 else np.result_type(x.dtype, np.float32)
        )
        xs, ws = x.astype(wide), w.astype(wide)
        edges = [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:], strict=True)]
        patches = windows(np.pad(xs, edges), w.shape[2:], strides, dilations)
        groups = []
        per_in, per_out = w.shape[1], w.shape[0] // self.group
        taps = [1, *range(2 + spatial, 2 + 2 * spatial)]
        for g in range(self.group):
            part = patches[:, g * per_in : (g + 1) * per_in]
            kernel = ws[g * per_out : (g + 1) * per_out]
            y = np.tensordot(part, kernel, (taps, list(range(1, 2 + spatial))))
            groups.append(np.moveaxis(y, -1, 1))
        out = np.concatenate(groups, axis=1)
        if bias is not None:
            out = out + bias.astype(wide).reshape(-1, *[1] * spatial)
        if x.dtype.itemsize == 1:
            return _wrapped(out)
        return out.astype(np.float32 if self.wide else x.dtype)

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        w = ins[1]
        assert w is not None, "w is there"
        return outs[0].size * math.prod(w.extents[1:])

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[1,3,5,5]", "f32[4,3,3,3]"
        yield cls((2, 2), (1, 1, 1, 1)), "f32[2,16,9,7]", "f32[40,16,3,3]", "f32[40]"
        yield cls(pads=(0, 1, 2, 1)), "f32[1,20,6,6]", "f32[5,20,3,3]", "f32[5]"
        yield cls(dilations=(2, 3)), "f32[1,8,9,11]", "f32[8,8,3,3]"
        yield cls(group=2), "f32[1,32,5,5]", "f32[64,16,3,3]", "f32[64]"
        yield cls(group=3), "f32[1,6,5,5]", "f32[9,2,3,3]"
        yield cls(pads=(1, 1, 1, 1), group=20), "f32[1,20,6,5]", "f32[20,1,3,3]", "f32[20]"
        yield cls(strides=(2,), pads=(2, 1)), "f32[2,5,11]", "f32[7,5,4]", "f32[7]"
        yield cls(pads=(1, 0, 1, 1, 0, 1)), "f32[1,3,4,5,6]", "f32[6,3,3,2,3]"
        yield cls(), "f32[0,3,5,5]", "f32[4,3,3,3]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(pads=(1, 1, 1, 1)), f"{dtype}[1,5,4,4]", f"{dtype}[6,5,3,3]", f"{dtype}[6]"
        for a in sorted(BYTES):
            for c in sorted(BYTES):
                yield cls(pads=(1, 1, 1, 1)), f"{a}[1,5,4,4]", f"{c}[6,5,3,3]", "i32[6]"
                yield cls((2, 2), group=3), f"{a}[2,6,5,6]", f"{c}[9,2,3,3]"
        yield cls(pads=(1, 1, 1, 1), group=20), "u8[1,20,6,5]", "i8[20,1,3,3]", "i32[20]"
        yield cls(), "u8[2,33,9]", "i8[18,33,1]"
        for dtype in sorted(HALVES):
            yield cls(wide=True), f"{dtype}[1,20,5,4]", f"{dtype}[6,20,3,3]", "f32[6]"
            yield cls(wide=True, group=20), f"{dtype}[1,20,6,5]", f"{dtype}[20,1,3,3]"


class Dilate(Primitive):
    """x with `steps[i] - 1` zeros between neighbours on axis i."""

    steps: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        if len(self.steps) != x.rank or min(self.steps, default=1) < 1:
            raise TypeRuleError(f"dilate: expected a positive step for each axis of {x}: {self}")
        shape = tuple(
            d if s == 1 or d == 0 else (d - 1) * s + 1
            for d, s in zip(x.shape, self.steps, strict=True)
        )
        inner = x.blocked is not None and self.steps[1] == self.steps[-1] == 1
        return TensorType(x.dtype, shape, x.blocked if inner else None)

    def reference(self, x: Array) -> Array:
        shape = [max((d - 1) * s + 1, 0) for d, s in zip(x.shape, self.steps, strict=True)]
        out = np.zeros(shape, x.dtype)
        out[tuple(slice(None, None, s) for s in self.steps)] = x
        return out

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return b(Slice((0,) * x.type.rank, x.type.shape, self.steps), dy)

    @classmethod
    def examples(cls) -> Examples:
        yield cls((1, 1, 2, 3)), "f32[2,3,4,5]"
        yield cls((2,)), "f32[1]"
        yield cls((1, 3)), "f32[4,0]"
        yield cls(()), "f32[]"
        yield cls((1, 1, 2, 1)), "f32[1,20/16,3,16]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls((1, 2)), f"{dtype}[2,3]"


class ConvTranspose(Composite):
    """What Conv with these attributes and w does to gradients: x[N, C, …] with w[C, O/group, …].

    Each element of x adds a multiple of the window w to the result, `strides` apart; of that,
    `pads` is cut off, and `output_padding` is added at the end.  ONNX ConvTranspose.
    """

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    output_padding: tuple[int, ...]
    group: int = 1

    def infer(self, x: TensorType, w: TensorType, bias: TensorType | None = None) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        check_rank(self, "x", x, 3)
        check_rank(self, "w", w, x.rank, x.rank)
        if w.dtype != x.dtype or (bias is not None and bias.dtype != x.dtype):
            raise TypeRuleError(f"conv_transpose: element types differ: {x}, {w}, {bias}")
        n, spatial = x.shape[0], x.rank - 2
        lists = (("strides", self.strides, spatial), ("pads", self.pads, 2 * spatial),
                 ("dilations", self.dilations, spatial),
                 ("output_padding", self.output_padding, spatial))  # fmt: skip
        for what, numbers, count in lists:
            if len(numbers) != count:
                raise TypeRuleError(
                    f"conv_transpose: {len(numbers)} {what} given, expected {count} for {x}"
                )
        if min(*self.strides, *self.dilations, self.group) < 1:
            raise TypeRuleError("conv_transpose: strides, dilations and groups must be positive")
        if x.shape[1] != w.shape[0]:
            raise TypeRuleError(
                f"conv_transpose: input has {x.shape[1]} channels but weights expect {w.shape[0]} "
                f"({x} with {w})",
                hint="the layout may be NHWC; transpose it to NCHW",
            )
        if known(w.shape[0]) and w.shape[0] % self.group:
            raise TypeRuleError(f"conv_transpose: {x} does not divide into {self.group} groups")
        outputs = w.shape[1] * self.group
        if bias is not None and bias.shape != (outputs,):
            raise TypeRuleError(f"conv_transpose: bias is {bias}, expected shape ({outputs},)")
        out = [self._extent(i, x.shape[2 + i], w.shape[2 + i]) for i in range(spatial)]
        return x.with_shape((n, outputs, *out))

    def _extent(self, i: int, extent: Dim, kernel: Dim) -> Dim:
        if not known(kernel) or kernel < 1:
            raise TypeRuleError(f"conv_transpose: the window is {kernel} wide, expected a number")
        cut = self.pads[i] + self.pads[len(self.strides) + i] - self.output_padding[i]
        out = (extent - 1) * self.strides[i] + (kernel - 1) * self.dilations[i] + 1 - cut
        if extent == 0 or (known(out) and out < 1):
            raise TypeRuleError(f"conv_transpose: nothing is left of an axis of {extent}")
        return out

    def lower(self, b: Graph, x: Value, w: Value, bias: Value | None = None) -> Value:
        alone = self.group == 1 and all(d == 1 for d in x.type.shape[2:])
        if alone and max(self.dilations) == 1:
            return self._of_one_pixel(b, x, w, bias)
        if max(self.dilations) == 1 and self._phases_differ(w):
            return self._phase_by_phase(b, x, w, bias)
        if max(self.dilations) == 1:
            each = None if bias is None else self.of_phases(b, bias)
            return self.interleaved(b, x, self.phases(b, w), each, w.type.extents[2:])
        spatial = len(self.strides)
        reach = [(k - 1) * d for k, d in zip(w.type.extents[2:], self.dilations, strict=True)]
        before = [r - p for r, p in zip(reach, self.pads[:spatial], strict=True)]
        after = [r - p + q for r, p, q in
                 zip(reach, self.pads[spatial:], self.output_padding, strict=True)]  # fmt: skip
        if any(s != 1 for s in self.strides):
            x = b(Dilate((1, 1, *self.strides)), x)
        conv, x = self._conv(b, x, before, after)
        return b(conv, x, self._backwards(b, w, (1,) * spatial), bias)

    def _of_one_pixel(self, b: Graph, x: Value, w: Value, bias: Value | None) -> Value:
        """Return the result where x has one pixel: its product with all of the window."""
        spatial, (n, c) = len(self.strides), x.type.shape[:2]
        before = [-p for p in self.pads[:spatial]]
        after = [q - p for p, q in zip(self.pads[spatial:], self.output_padding, strict=True)]
        if any(before) or any(after):
            w = b(Pad((0, 0, *before), (0, 0, *after)), w)
        _, o, *image = w.type.shape
        columns = product(w.type.shape[1:])
        y = b(MatMul(), b(Reshape((n, c)), x), b(Reshape((c, columns)), w))
        if bias is not None:
            each = stretch(b, b(Reshape((o, *[1] * spatial)), bias), (o, *image))
            y = b(Add(), y, stretch(b, b(Reshape((columns,)), each), y.type.shape))
        return b(Reshape((n, o, *image)), y)

    def interleaved(
        self, b: Graph, x: Value, w: Value, bias: Value | None, window: tuple[int, ...],
    ) -> Value:  # fmt: skip
        """Return the result by weights and bias of `phases`, where nothing is dilated.

        Element s m + r of an axis is the sum of w[r + s j] x[m - j] over j, of a window of so many
        elements in all.  So one convolution makes the strides' product of results from an element
        of x, and they are put side by side.
        """
        before, after = self._around(window)
        conv, x = self._conv(b, x, before, after)
        return self._put_together(b, b(conv, x, w, bias), window)

    def _around(self, window: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """Return how much padding the convolution of all phases has before each axis and after."""
        steps, firsts = self.strides, self.pads[: len(window)]
        taps = [ceil_div(k, s) for k, s in zip(window, steps, strict=True)]
        before = [t - 1 - p // s for t, p, s in zip(taps, firsts, steps, strict=True)]
        return before, [-(-end // s) - 1 for end, s in zip(self._ends(window), steps, strict=True)]

    def _ends(self, window: tuple[int, ...]) -> list[int]:
        """Return where the last window ends on each axis, from where what is kept ends."""
        lasts = self.pads[len(window) :]
        return [k - p + q for k, p, q in zip(window, lasts, self.output_padding, strict=True)]

    def _put_together(self, b: Graph, y: Value, window: tuple[int, ...]) -> Value:
        """Return the result of what all phases, one after the other, have of each element of x."""
        steps, firsts, ends = self.strides, self.pads[: len(window)], self._ends(window)
        starts = [p % s for p, s in zip(firsts, steps, strict=True)]
        image = [
            d * s - start - (-end % s)
            for d, s, start, end in zip(y.type.shape[2:], steps, starts, ends, strict=True)
        ]
        return side_by_side(b, y, self.group, steps, starts, image)

    def _phases_differ(self, w: Value) -> bool:
        """Whether phases have windows of several sizes, and weights that are computed.

        Of constants zeros are known, and windows of one size are one convolution.
        """
        uneven = any(k % s for k, s in zip(w.type.extents[2:], self.strides, strict=True))
        return self.group == 1 and uneven and w.array is None

    def _phase_by_phase(self, b: Graph, x: Value, w: Value, bias: Value | None) -> Value:
        """Return the result by a convolution for each phase, of no more taps than it has.

        So weights are read where they are, and 3 x 3 of them two apart are not multiplied as 4 x 4.
        """
        window, spatial = w.type.extents[2:], len(self.strides)
        c, o = w.type.shape[:2]
        before, after = self._around(window)
        parts: list[Value] = []
        for phase in itertools.product(*map(range, self.strides)):
            pairs = list(zip(window, phase, self.strides, strict=True))
            taps = [max(0, ceil_div(k - r, s)) for k, r, s in pairs]
            if 0 in taps:
                none = b.constant(np.zeros((1,) * (spatial + 2), x.type.numpy))
                value = none if bias is None else b(Reshape((1, o, *[1] * spatial)), bias)
                parts.append(b(Broadcast(parts[0].type.shape), value))
                continue
            lasts = [r + s * (t - 1) for t, (_, r, s) in zip(taps, pairs, strict=True)]
            steps = (1, 1, *(-s for s in self.strides))
            part = b(Slice((0, 0, *lasts), (c, o, *taps), steps), w)
            less = [ceil_div(k, s) - t for t, (k, _, s) in zip(taps, pairs, strict=True)]
            conv, seen = self._conv(b, x, [n - m for n, m in zip(before, less, strict=True)], after)
            turned = b(Transpose((1, 0, *range(2, spatial + 2))), part)
            parts.append(b(conv, seen, turned, bias))
        return self._put_together(b, b(Concat(1), *parts), window)

    def _conv(self, b: Graph, x: Value, before: list[int], after: list[int]) -> tuple[Conv, Value]:
        """Return the convolution, and x: what is padded by less than nothing is cut off."""
        spatial = len(before)
        if min(*before, *after) < 0:
            x = b(Pad((0, 0, *before), (0, 0, *after)), x)
            before = after = [0] * spatial
        return Conv((1,) * spatial, (*before, *after), self.dilations, self.group), x

    def phases(self, b: Graph, w: Value, zero: float = 0.0) -> Value:
        """Return w as weights [strides · O, C/group, …] of small windows; past w they are `zero`.

        Those of one phase are every `strides`-th element of w, read backwards.
        """
        return self._backwards(b, w, self.strides, zero)

    def _backwards(self, b: Graph, w: Value, steps: tuple[int, ...], zero: float = 0.0) -> Value:
        """Return every `steps`-th element of w[C, O/group, …], read backwards, as a Conv's w."""
        c, o, *window = w.type.extents
        taps = [-(-k // s) for k, s in zip(window, steps, strict=True)]
        more = [t * s - k for t, s, k in zip(taps, steps, window, strict=True)]
        if any(more):
            w = b(Pad((0,) * w.type.rank, (0, 0, *more), value=zero), w)
        pairs = [d for t, s in zip(taps, steps, strict=True) for d in (t, s)]
        split = b(Reshape((self.group, c // self.group, o, *pairs)), w)
        backwards = [t - 1 for t in taps]
        starts = (0, 0, 0, *[d for t in backwards for d in (t, 0)])
        flips = (1, 1, 1, *(-1, 1) * len(taps))
        flipped = b(Slice(starts, split.type.shape, flips), split)
        at = range(len(taps))
        perm = (0, *[4 + 2 * i for i in at], 2, 1, *[3 + 2 * i for i in at])
        outputs = self.group * math.prod(steps) * o
        return b(Reshape((outputs, c // self.group, *taps)), b(Transpose(perm), flipped))

    def of_phases(self, b: Graph, bias: Value) -> Value:
        """Return the bias of each output as that of each of its phases."""
        (outputs,) = bias.type.shape
        each, count = outputs // self.group, math.prod(self.strides)
        apart = b(Reshape((self.group, 1, each)), bias)
        return b(Reshape((count * outputs,)), b(Broadcast((self.group, count, each)), apart))

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        x, w = ins[:2]
        assert x is not None and w is not None, "both are there"
        # Every element of x meets every weight of its channel; zeros between are not work.
        return x.size * math.prod(w.extents[1:])

    @classmethod
    def examples(cls) -> Examples:
        one, none = (1, 1), (0, 0)
        yield cls(one, (0,) * 4, one, none), "f32[1,3,5,4]", "f32[3,4,3,3]"
        yield cls((2, 2), (1,) * 4, one, one), "f32[2,5,4,3]", "f32[5,7,3,3]", "f32[7]"
        yield cls((2, 3), (0, 1, 2, 1), (2, 1), none, 2), "f32[1,4,5,3]", "f32[4,3,3,2]", "f32[6]"
        yield cls((3,), (2, 2), (1,), (1,)), "f32[1,3,5]", "f32[3,2,2]"
        yield cls((2, 3), (1, 0, 0, 2), one, (1, 2)), "f32[2,5,1,1]", "f32[5,7,3,4]", "f32[7]"
        yield cls((2, 1, 1), (0,) * 6, (1, 1, 1), (0, 0, 0)), "f32[1,2,3,3,2]", "f32[2,2,2,3,2]"
        yield cls(one, (0,) * 4, one, none, 6), "f32[1,6,3,3]", "f32[6,1,3,3]"
        yield cls(one, (0,) * 4, one, none), "f32[0,3,5,4]", "f32[3,4,3,3]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls((2, 2), (0,) * 4, one, none), f"{dtype}[1,3,3,3]", f"{dtype}[3,2,2,2]"


def side_by_side(
    b: Graph, y: Value, group: int, steps: Sequence[int], starts: Sequence[int],
    image: Sequence[Dim],
) -> Value:  # fmt: skip
    """Return y[N, group · steps · O, …], phases of a finer image, side by side.

    Of that an `image` of these extents from `starts` on is returned.
    """
    n, channels, *coarse = y.type.shape
    spatial, outputs = len(steps), channels // math.prod(steps)
    apart = b(Reshape((n, group, *steps, outputs // group, *coarse)), y)
    pairs = [a for i in range(spatial) for a in (3 + spatial + i, 2 + i)]
    beside = b(Transpose((0, 1, 2 + spatial, *pairs)), apart)
    whole = b(Reshape((n, outputs, *(d * s for d, s in zip(coarse, steps, strict=True)))), beside)
    return b(Slice((0, 0, *starts), (n, outputs, *image), (1,) * (2 + spatial)), whole)


def _wrapped(sums: Array) -> Array:
    """Return sums, whole numbers in f64, as i32."""
    return sums.astype(np.int64).astype(np.int32)


def turned(b: Graph, x: Value) -> Value:
    """Return the matrices x[…, m, n] as […, n, m]."""
    return b(Transpose(_turn(x.type.rank)), x)


def _turn(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)
