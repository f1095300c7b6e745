"""Contractions: matrix product and convolution, as models write them.

Of bytes, i8 and u8 in any mix, they are sums of the products as they stand, in i32, which wraps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_rank
from alpenglow.ir.rows import Rows
from alpenglow.ir.types import FLOATS, HALVES, NUMBERS, Array, TensorType
from alpenglow.ops.reduction.reduction import as_type
from alpenglow.ops.tensor.movement import Transpose
from alpenglow.ops.window.window import conv_extent, edged, windows

BYTES = frozenset({"i8", "u8"})
"""The types whose products are summed in i32, whatever their signs."""


def summed(op: MatMul | Conv, x: TensorType, y: TensorType) -> str:
    """Return the element type of the sums of products of two operands."""
    if {x.dtype, y.dtype} <= BYTES:
        return "i32"
    if x.dtype != y.dtype:
        raise TypeRuleError(
            f"{op.name}: operands are {x} and {y}, expected one dtype, or i8 and u8"
        )
    if op.wide and x.dtype not in HALVES:
        raise TypeRuleError(f"{op.name}: wide is True for {x}, expected operands of bf16 or f16")
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
                f"mat_mul: operands are {x} and {y}, expected […,M,K] and […,K,N] of one dtype"
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
            raise TypeRuleError(
                f"conv: weights have {outputs} outputs, expected a multiple of group {self.group}"
            )
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


def _wrapped(sums: Array) -> Array:
    """Return sums, whole numbers in f64, as i32."""
    return sums.astype(np.int64).astype(np.int32)


def turned(b: Graph, x: Value) -> Value:
    """Return the matrices x[…, m, n] as […, n, m]."""
    return b(Transpose(_turn(x.type.rank)), x)


def _turn(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)
