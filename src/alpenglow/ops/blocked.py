"""Contractions on blocked tensors and packed weights: what the register-tiled kernels compute.

The layout pass rewrites Conv and MatMul into these.  Weights are packed by ordinary operators on
constants, which constant folding evaluates at compile time.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, ceil_div, known
from alpenglow.ir.op import Examples, Primitive, check_rank
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.contraction import Conv, MatMul
from alpenglow.ops.movement import Pack, Unpack
from alpenglow.ops.window import conv_extent


class PackConv(Primitive):
    """w[O, I, …] as [O/width, I/lanes, …, lanes, width], zeros where a block is not full."""

    lanes: int
    width: int

    def infer(self, w: TensorType) -> TensorType:
        check_rank(self, "w", w, 3)
        o, i, *taps = w.shape
        blocks = (ceil_div(o, self.width), ceil_div(i, self.lanes))
        return w.with_shape((*blocks, *taps, self.lanes, self.width))

    def reference(self, w: Array) -> Array:
        o, i, *taps = w.shape
        ob, ib = -(-o // self.width), -(-i // self.lanes)
        full = np.zeros((ob * self.width, ib * self.lanes, *taps), w.dtype)
        full[:o, :i] = w
        split = full.reshape(ob, self.width, ib, self.lanes, *taps)
        order = (0, 2, *range(4, 4 + len(taps)), 3, 1)
        return np.ascontiguousarray(split.transpose(order))

    @classmethod
    def examples(cls) -> Examples:
        yield cls(16, 32), "f32[40,20,3,3]"
        yield cls(1, 16), "f32[7,3,5]"


class PackMatrix(Primitive):
    """w[K, N] as [N/width, K, width], zeros where the last panel is not full."""

    width: int

    def infer(self, w: TensorType) -> TensorType:
        check_rank(self, "w", w, 2, 2)
        return w.with_shape((ceil_div(w.shape[1], self.width), w.shape[0], self.width))

    def reference(self, w: Array) -> Array:
        k, n = w.shape
        panels = -(-n // self.width)
        full = np.zeros((k, panels * self.width), w.dtype)
        full[:, :n] = w
        return np.ascontiguousarray(full.reshape(k, panels, self.width).transpose(1, 0, 2))

    @classmethod
    def examples(cls) -> Examples:
        yield cls(32), "f32[7,40]"


class Ungroup(Primitive):
    """Weights w[O, I, …] of a convolution in `group` groups as those of one group, [O, I*group, …].

    What joins two groups is zero.  It pays where groups are too narrow to fill vectors.
    """

    group: int

    def infer(self, w: TensorType) -> TensorType:
        check_rank(self, "w", w, 3)
        return w.with_shape((w.shape[0], w.shape[1] * self.group, *w.shape[2:]))

    def reference(self, w: Array) -> Array:
        outputs, inputs = w.shape[0] // self.group, w.shape[1]
        full = np.zeros((w.shape[0], inputs * self.group, *w.shape[2:]), w.dtype)
        for g in range(self.group):
            rows = slice(g * outputs, (g + 1) * outputs)
            full[rows, g * inputs : (g + 1) * inputs] = w[rows]
        return full

    @classmethod
    def examples(cls) -> Examples:
        yield cls(3), "f32[6,2,3,3]"


class ConvBlocked(Primitive):
    """Convolution without padding of x by weights from PackConv, into blocks of `lanes`.

    x is blocked, [N, C/lanes, …, lanes], or plain [N, C, …] with weights packed for one lane.
    `channels` and `outputs` are the logical numbers of input and output channels.  With several
    groups each group fills its blocks, in and out.  With several `bands` the weights are those of
    so many groups on the diagonal of one: what lies off it is zero and need not be read.
    """

    channels: Dim
    outputs: Dim
    lanes: int
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int = 1
    bands: int = 1

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        spatial = len(self.strides)
        plain = x.blocked is None
        if x.rank != spatial + 3 - plain or w.rank != spatial + 4 or x.dtype != w.dtype:
            raise TypeRuleError(f"conv_blocked: {x} does not go with weights {w}")
        lanes = 1 if plain else x.shape[-1]
        if self.channels != (x.shape[1] if plain else x.blocked):
            raise TypeRuleError(f"conv_blocked: {x} does not have {self.channels} channels")
        if w.shape[-2] != lanes or ceil_div(self.channels // self.group, lanes) != w.shape[1]:
            raise TypeRuleError(f"conv_blocked: {x} in {self.group} groups, weights {w}")
        if ceil_div(self.outputs, w.shape[-1]) != w.shape[0]:
            raise TypeRuleError(f"conv_blocked: {self.outputs} outputs do not fill {w}")
        out = [
            conv_extent(self, x.shape[2 + i], w.shape[2 + i], self.strides[i], 0, 0,
                        self.dilations[i])
            for i in range(spatial)
        ]  # fmt: skip
        blocks = ceil_div(self.outputs, self.lanes)
        return TensorType(x.dtype, (x.shape[0], blocks, *out, self.lanes), self.outputs)

    def reference(self, x: Array, w: Array) -> Array:
        spatial = len(self.strides)
        ob, ib, *taps, lanes, width = w.shape
        order = (0, w.ndim - 1, 1, w.ndim - 2, *range(2, 2 + spatial))
        plain_w = w.transpose(order).reshape(ob * width, ib * lanes, *taps)
        assert known(self.outputs) and known(self.channels)
        if x.ndim == spatial + 3:
            # Unspecified lanes must not reach the sum, not even as NaN times zero.
            x = Unpack(self.channels).reference(x)
            plain_w = plain_w[:, : self.channels // self.group]
        conv = Conv(self.strides, (), self.dilations, self.group)
        y = conv.reference(x, plain_w[: self.outputs])
        return Pack(self.lanes).reference(y)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(32, 40, 16, (1, 1), (1, 1)), "f32[1,32/16,9,20,16]", "f32[2,2,3,3,16,32]"
        yield cls(3, 20, 16, (2, 2), (1, 1)), "f32[2,3,9,11]", "f32[1,3,3,3,1,32]"
        yield cls(64, 64, 16, (1, 1), (2, 2), 2), "f32[1,64/16,7,7,16]", "f32[2,2,3,3,16,32]"
        yield cls(16, 16, 8, (1,), (1,)), "f32[1,16/8,30,8]", "f32[1,2,1,8,16]"
        for bands, width in ((4, 32), (3, 16)):
            w = np.arange(120 * (60 // bands), dtype=np.float32).reshape(120, 60 // bands, 1, 1)
            packed = PackConv(16, width).reference(Ungroup(bands).reference(np.sin(w)))
            op = cls(60, 120, 16, (1, 1), (1, 1), 1, bands)
            yield op, "f32[1,60/16,5,9,16]", packed


class DepthwiseBlocked(Primitive):
    """Each channel of x[N, C/lanes, …, lanes] convolved with its own w[C/lanes, …, lanes]."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        spatial = len(self.strides)
        fits = x.rank == spatial + 3 and w.rank == spatial + 2 and x.blocked is not None
        if not fits or x.shape[1] != w.shape[0] or x.shape[-1] != w.shape[-1]:
            raise TypeRuleError(f"depthwise_blocked: {x} does not go with weights {w}")
        out = [
            conv_extent(self, x.shape[2 + i], w.shape[1 + i], self.strides[i], 0, 0,
                        self.dilations[i])
            for i in range(spatial)
        ]  # fmt: skip
        return TensorType(x.dtype, (*x.shape[:2], *out, x.shape[-1]), x.blocked)

    def reference(self, x: Array, w: Array) -> Array:
        n, blocks, *_, lanes = x.shape
        plain = np.moveaxis(x, -1, 2).reshape(n, blocks * lanes, *x.shape[2:-1])
        taps = np.moveaxis(w, -1, 1).reshape(blocks * lanes, 1, *w.shape[1:-1])
        y = Conv(self.strides, (), self.dilations, blocks * lanes).reference(plain, taps)
        return Pack(lanes).reference(y)

    @classmethod
    def examples(cls) -> Examples:
        yield cls((1, 1), (1, 1)), "f32[1,20/16,9,8,16]", "f32[2,3,3,16]"
        yield cls((2, 2), (1, 2)), "f32[2,16/16,9,9,16]", "f32[1,3,3,16]"


class MatMulPacked(Primitive):
    """x[…, M, K] times a matrix of `columns` columns from PackMatrix: [N/width, K, width]."""

    columns: Dim

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        check_rank(self, "x", x, 2)
        check_rank(self, "w", w, 3, 3)
        if x.dtype != w.dtype or x.shape[-1] != w.shape[1]:
            raise TypeRuleError(f"mat_mul_packed: {x} does not go with weights {w}")
        if ceil_div(self.columns, w.shape[2]) != w.shape[0]:
            raise TypeRuleError(f"mat_mul_packed: {self.columns} columns do not fill {w}")
        return x.with_shape((*x.shape[:-1], self.columns))

    def reference(self, x: Array, w: Array) -> Array:
        assert known(self.columns)
        matrix = w.transpose(1, 0, 2).reshape(w.shape[1], -1)[:, : self.columns]
        return MatMul().reference(x, np.broadcast_to(matrix, (*x.shape[:-2], *matrix.shape)))

    @classmethod
    def examples(cls) -> Examples:
        yield cls(40), "f32[3,7]", "f32[2,7,32]"
        yield cls(33), "f32[2,17,20]", "f32[3,20,16]"
        yield cls(16), "f32[1,100]", "f32[1,100,16]"
