"""Contractions on blocked tensors and packed weights: what the register-tiled kernels compute.

The layout pass rewrites Conv and MatMul into these.  Weights are packed by operators on constants
(`ops/tensor/packing.py`), which constant folding evaluates at compile time.

Of narrow types, x is u8 and weights i8, summed in i32; or both are bf16, summed in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, ceil_div, is_open, known
from alpenglow.ir.op import Examples, Op, Primitive, check_each, check_positive, check_rank
from alpenglow.ir.rows import Rows
from alpenglow.ir.types import Array, TensorType
from alpenglow.machines.vector.operators.layout import Blocked, Pack, Unpack, channels, logical_size
from alpenglow.ops.product.contraction import Conv, MatMul, work_of_product
from alpenglow.ops.tensor.packing import DOTS, PackConv, PackMatrix
from alpenglow.ops.window.window import conv_extent, edged

SUMS = {"u8": ("i8", "i32"), "bf16": ("bf16", "f32")}
"""The weights that go with such an x, and what the sums are."""

PACKED = frozenset({("f32", "f32"), *((x, w) for x, (w, _) in SUMS.items())})
"""The operands, x and weights, that there are packed forms for."""

PRODUCTS = PACKED | {("f64", "f64")}
"""The operands of products of matrices that there are packed forms for."""

FEW = 8
"""Vectors up to which their product with a matrix waits for its elements: it is never packed."""


STRIDES = (1, 2, 3, 4)
"""The steps along rows that the kernel of plain depthwise convolutions has shuffles for."""

LONGEST = 1 << 13
"""Terms of a sum of products for which a panel of an operand that is computed is packed.

It lies on the stack, and in a cache.
"""

PLAIN = ("f32", "f64", "i32")
"""Element types that are multiplied one number a lane."""

MULTIPLIED = frozenset({*PLAIN, "i8", "u8", "bf16"})
"""Operands of matrix products that there are kernels for with panels that are packed on the way."""

WRITTEN = 49
"""Taps of a plain depthwise convolution up to which few channels pay: they are all written out."""


def sliding_axis(taps: Sequence[Dim], places: Sequence[Dim]) -> int:
    """Return the spatial axis along which neighbours share weights.

    The last one that is more than one place under one tap: columns become rows.
    """
    axes = range(len(taps) - 1, -1, -1)
    longer = (a for a in axes if any(is_open(d) or d != 1 for d in (taps[a], places[a])))
    return next(longer, len(taps) - 1)


def summed(op: Op, x: TensorType, w: TensorType) -> str:
    """Return the element type of sums of products."""
    weights, sums = SUMS.get(x.dtype, (x.dtype, x.dtype))
    if w.dtype != weights:
        raise unfit(op, x, w, f"weights of {weights}")
    return sums


def ranks(spatial: int, x: TensorType, dots: int) -> str:
    """Return the ranks that a blocked convolution expects, and element type of a plain image."""
    if x.is_plain:
        return f"plain f32 of rank {spatial + 2} and weights of rank {spatial + 4}"
    return f"ranks {spatial + 3} and {spatial + 4 + (dots > 1)}"


def unfit(op: Op, x: TensorType, w: TensorType, expected: str) -> TypeRuleError:
    """Return the error of an image or matrix x and weights w that do not fit."""
    return TypeRuleError(f"{op.name}: x is {x} and w is {w}, expected {expected}")


class Ungroup(Primitive):
    """Weights w[O, I, …] of a convolution in `group` groups as those of one group, [O, I*group, …].

    What joins two groups is zero.  It pays where groups are too narrow to fill vectors.
    """

    group: int

    def infer(self, w: TensorType) -> TensorType:
        check_rank(self, "w", w, 3)
        check_positive(self, group=self.group)
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
        yield cls(2), "f32[6,2,3]"


class ConvBlocked(Primitive):
    """Convolution of x by weights from PackConv, into blocks of `lanes`.

    x is blocked, [N, C/lanes, …, lanes], or plain [N, C, …] with weights packed for one lane.
    `channels` and `outputs` are the logical numbers of input and output channels.  With several
    groups each group fills its blocks, in and out.  With several `bands` the weights are those of
    so many groups on the diagonal of one: what lies off it is zero and need not be read.

    There is no padding but `edges`: zeros before and after the first of several spatial axes.
    """

    sample_axes = 0, 0
    layouts = "first"

    channels: Dim
    outputs: Dim
    lanes: int
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int = 1
    bands: int = 1
    edges: tuple[int, int] = (0, 0)

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        spatial = len(self.strides)
        check_positive(self, lanes=self.lanes, group=self.group, bands=self.bands)
        if self.bands > 1 and (self.channels % self.bands or self.outputs % self.bands):
            raise TypeRuleError(
                f"conv_blocked: bands is {self.bands}, expected a divisor of {self.channels} "
                f"channels and {self.outputs} outputs"
            )
        check_each(self, spatial, dilations=self.dilations)
        plain = x.is_plain
        dtype, dots = summed(self, x, w), DOTS.get(x.dtype, 1)
        fits = w.rank == spatial + 4 + (dots > 1) and not (plain and dots > 1)
        if x.rank != spatial + 3 - plain or not fits:
            raise unfit(self, x, w, ranks(spatial, x, dots))
        lanes = 1 if plain else x.shape[-1]
        *_, steps, width = w.shape[: spatial + 4]
        if self.channels != x.logical[1]:
            raise TypeRuleError(f"conv_blocked: x is {x}, expected {self.channels} channels")
        blocks = ceil_div(self.channels // self.group, lanes)
        if steps * dots != lanes or blocks != w.shape[1]:
            raise unfit(self, x, w, f"w with {blocks} blocks of {lanes} channels")
        panels = ceil_div(self.outputs, width)
        if panels != w.shape[0] or (dots > 1 and w.shape[-1] != dots):
            raise unfit(self, x, w, f"w with {panels} panels of {width} outputs by {dots}")
        if any(self.edges) and spatial < 2:
            raise TypeRuleError(
                f"conv_blocked: edges is {self.edges} with {spatial} spatial axes, expected 2 axes"
            )
        out = [
            conv_extent(self, x.shape[2 + i], w.shape[2 + i], self.strides[i],
                        *(self.edges if i == 0 else (0, 0)), self.dilations[i])
            for i in range(spatial)
        ]  # fmt: skip
        blocks = ceil_div(self.outputs, self.lanes)
        return TensorType(dtype, (x.shape[0], blocks, *out, self.lanes), Blocked(self.outputs))

    def rows_of(self, ins: Sequence[TensorType | None]) -> Rows | None:
        w = ins[1]
        assert w is not None, "w is there"
        return Rows(w.extents[2], self.strides[0], self.dilations[0], *self.edges)

    def with_edges(self, before: int, after: int) -> ConvBlocked:
        return replace(self, edges=(before, after))

    def reference(self, x: Array, w: Array) -> Array:
        spatial = len(self.strides)
        if x.dtype.name == "bfloat16":
            x, w = x.astype(np.float32), w.astype(np.float32)
        if w.ndim == spatial + 5:
            w = w.swapaxes(-1, -2).reshape(*w.shape[:-3], -1, w.shape[-2])
        ob, ib, *taps, lanes, width = w.shape
        order = (0, w.ndim - 1, 1, w.ndim - 2, *range(2, 2 + spatial))
        plain_w = w.transpose(order).reshape(ob * width, ib * lanes, *taps)
        assert known(self.outputs) and known(self.channels)
        if x.ndim == spatial + 3:
            # Unspecified lanes must not reach the sum, not even as NaN times zero.
            x = Unpack(self.channels).reference(x)
            plain_w = plain_w[:, : self.channels // self.group]
        before, after = ((edge, *[0] * (spatial - 1)) for edge in self.edges)
        conv = Conv(self.strides, (*before, *after), self.dilations, self.group)
        y = conv.reference(x, plain_w[: self.outputs])
        return Pack(self.lanes).reference(y)

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        x, w = ins[:2]
        assert x is not None and w is not None, "both are there"
        taps = math.prod(w.extents[2 : 2 + len(self.strides)])
        return logical_size(outs[0]) * (channels(x) // (self.group * self.bands)) * taps

    @classmethod
    def examples(cls) -> Examples:
        yield cls(32, 40, 16, (1, 1), (1, 1)), "f32[1,32/16,9,20,16]", "f32[2,2,3,3,16,32]"
        yield cls(3, 20, 16, (2, 2), (1, 1)), "f32[2,3,9,11]", "f32[1,3,3,3,1,32]"
        yield cls(64, 64, 16, (1, 1), (2, 2), 2), "f32[1,64/16,7,7,16]", "f32[2,2,3,3,16,32]"
        yield cls(16, 16, 8, (1,), (1,)), "f32[1,16/8,30,8]", "f32[1,2,1,8,16]"
        yield cls(32, 40, 16, (1, 1), (1, 1)), "u8[1,32/16,9,20,16]", "i8[2,2,3,3,4,32,4]"
        w = PackConv(16, 16, 4).reference(_bytes(16, 22, 2, 1))
        yield cls(22, 16, 16, (1, 2), (1, 1)), "u8[2,22/16,3,7,16]", w
        w = PackConv(4, 32, 4).reference(_bytes(20, 3, 3, 3))
        yield cls(3, 20, 16, (2, 2), (1, 1)), "u8[2,3/4,9,11,4]", w
        yield cls(32, 32, 8, (1,), (2,), 2), "u8[1,32/8,9,8]", "i8[4,2,3,2,8,4]"
        yield cls(20, 16, 16, (1, 1), (1, 1)), "bf16[1,20/16,5,9,16]", "bf16[1,2,3,3,8,16,2]"
        for edges, stride, dilation in (((1, 1), 1, 1), ((3, 0), 2, 1), ((2, 5), 1, 2)):
            op = cls(20, 40, 16, (stride, 1), (dilation, 1), edges=edges)
            yield op, "f32[1,20/16,4,9,16]", "f32[2,2,3,2,16,32]"
        op = cls(32, 40, 16, (1, 1), (1, 1), edges=(1, 2))
        yield op, "u8[1,32/16,4,20,16]", "i8[2,2,3,3,4,32,4]"
        for bands, width in ((4, 32), (3, 16)):
            w = np.arange(120 * (60 // bands), dtype=np.float32).reshape(120, 60 // bands, 1, 1)
            packed = PackConv(16, width).reference(Ungroup(bands).reference(np.sin(w)))
            op = cls(60, 120, 16, (1, 1), (1, 1), 1, bands)
            yield op, "f32[1,60/16,5,9,16]", packed


class ConvPlanar(Primitive):
    """Convolution without padding of bytes by fours, x[N, C/4, …, 4], into plain images, i32.

    w is [O, C/4, …, 4], zeros where the last four are not full.  It pays for few outputs.
    """

    layouts = "all"

    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        spatial = len(self.strides)
        check_each(self, spatial, dilations=self.dilations)
        dtype = summed(self, x, w)
        fits = x.dtype == "u8" and x.rank == w.rank == spatial + 3 and not x.is_plain
        if not fits or x.shape[-1] != 4 or (x.shape[1], 4) != (w.shape[1], w.shape[-1]):
            raise unfit(self, x, w, "u8 in blocks of 4 channels, and as many blocks in w")
        out = [
            conv_extent(self, x.shape[2 + i], w.shape[2 + i], self.strides[i], 0, 0,
                        self.dilations[i])
            for i in range(spatial)
        ]  # fmt: skip
        return TensorType(dtype, (x.shape[0], w.shape[0], *out))

    def rows_of(self, ins: Sequence[TensorType | None]) -> Rows | None:
        w = ins[1]
        assert w is not None, "w is there"
        return Rows(w.extents[2], self.strides[0], self.dilations[0])

    def reference(self, x: Array, w: Array) -> Array:
        channels = 4 * x.shape[1]
        plain, taps = (Unpack(channels).reference(v) for v in (x, w))
        return Conv(self.strides, (), self.dilations).reference(plain, taps)

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        x, w = ins[:2]
        assert x is not None and w is not None, "both are there"
        return outs[0].size * channels(x) * math.prod(w.extents[2:-1])

    @classmethod
    def examples(cls) -> Examples:
        for inputs, outputs, shape, taps in (
            (8, 3, "9,50", (3, 5)), (5, 8, "6,20", (1, 3)), (3, 1, "4,16", (2, 1)),
        ):  # fmt: skip
            w = Pack(4).reference(_bytes(outputs, inputs, *taps))
            yield cls((1, 1), (1, 1)), f"u8[2,{inputs}/4,{shape},4]", w
        w = Pack(4).reference(_bytes(2, 4, 3))
        yield cls((1,), (2,)), "u8[1,4/4,21,4]", w


class DepthwiseBlocked(Primitive):
    """Each channel of x[N, C/lanes, …, lanes] convolved with its own w[C/lanes, …, lanes].

    Weights of bytes may have taps of the last axis side by side: w[C/lanes, …, taps/4, lanes, 4],
    zeros past the `taps` that there are.
    """

    sample_axes = 0, 0
    layouts = "first"

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    taps: int = 0

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        spatial = len(self.strides)
        check_each(self, spatial, dilations=self.dilations)
        dtype, grouped = summed(self, x, w), self.taps > 0
        fits = x.rank == spatial + 3 and not x.is_plain
        fits = fits and w.rank == spatial + 2 + grouped and (x.dtype == "u8" or not grouped)
        if not fits or (x.shape[1], x.shape[-1]) != (w.shape[0], w.shape[spatial + 1]):
            raise unfit(self, x, w, f"x of rank {spatial + 3} and the same blocks in w")
        taps = list(w.shape[1 : 1 + spatial])
        if grouped:
            if taps[-1] != ceil_div(self.taps, 4) or w.shape[-1] != 4:
                raise unfit(self, x, w, f"w with {ceil_div(self.taps, 4)} groups of 4 taps")
            taps[-1] = self.taps
        out = [
            conv_extent(self, x.shape[2 + i], taps[i], self.strides[i], 0, 0, self.dilations[i])
            for i in range(spatial)
        ]
        return TensorType(dtype, (*x.shape[:2], *out, x.shape[-1]), x.layout)

    def rows_of(self, ins: Sequence[TensorType | None]) -> Rows | None:
        w = ins[1]
        assert w is not None, "w is there"
        taps = self.taps if self.taps and len(self.strides) == 1 else w.extents[1]
        return Rows(taps, self.strides[0], self.dilations[0])

    def reference(self, x: Array, w: Array) -> Array:
        n, blocks, *_, lanes = x.shape
        if x.dtype.name == "bfloat16":
            x, w = x.astype(np.float32), w.astype(np.float32)
        if self.taps:
            flat = w.swapaxes(-1, -2).reshape(*w.shape[:-3], -1, lanes)
            w = flat[..., : self.taps, :]
        plain = np.moveaxis(x, -1, 2).reshape(n, blocks * lanes, *x.shape[2:-1])
        taps = np.moveaxis(w, -1, 1).reshape(blocks * lanes, 1, *w.shape[1:-1])
        y = Conv(self.strides, (), self.dilations, blocks * lanes).reference(plain, taps)
        return Pack(lanes).reference(y)

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        w = ins[1]
        assert w is not None, "w is there"
        taps = math.prod(w.extents[1 : 1 + len(self.strides)])
        if self.taps:
            taps = taps // w.extents[len(self.strides)] * self.taps
        return logical_size(outs[0]) * taps

    @classmethod
    def examples(cls) -> Examples:
        yield cls((1, 1), (1, 1)), "f32[1,20/16,9,8,16]", "f32[2,3,3,16]"
        yield cls((2, 2), (1, 2)), "f32[2,16/16,9,9,16]", "f32[1,3,3,16]"
        yield cls((2, 2), (1, 2)), "u8[2,16/16,9,9,16]", "i8[1,3,3,16]"
        yield cls((1, 1), (1, 1)), "bf16[1,20/16,9,8,16]", "bf16[2,3,3,16]"
        for taps in (1, 3, 4, 5, 7, 9):
            w = np.zeros((2, 2, 16, -(-taps // 4) * 4), np.int8)
            w[..., :taps] = _bytes(*w.shape)[..., :taps]
            w = w.reshape(2, 2, 16, -1, 4).swapaxes(2, 3)
            for stride in (1, 2, 3):
                op = cls((1, stride), (2, 1), taps)
                yield op, "u8[1,20/16,6,13,16]", w
        for stride in (1, 2):
            yield cls((stride,), (1,), 4), "u8[1,8/8,9,8]", "i8[1,1,8,4]"


class DepthwisePlanar(Primitive):
    """Each channel of x[N, …, spatial] convolved with its own w[…, taps], on plain images.

    What stands between the batch and the spatial axes, one axis or several, are the channels.
    `pads` holds the zeros before each spatial axis, then those after.  x and w are f32, or u8 and
    i8, summed in i32.
    """

    sample_axes = 0, 0

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        spatial = len(self.strides)
        check_each(self, spatial, dilations=self.dilations)
        check_each(self, 2 * spatial, pads=self.pads)
        lead = w.rank - spatial
        dtype = summed(self, x, w)
        fits = x.dtype in ("f32", "u8") and x.rank == w.rank + 1 and lead > 0
        if not fits or x.shape[1 : 1 + lead] != w.shape[:lead]:
            raise unfit(self, x, w, "x of f32 or u8, and w with the same channels")
        out = [
            conv_extent(self, x.shape[1 + lead + i], w.shape[lead + i], self.strides[i],
                        self.pads[i], self.pads[spatial + i], self.dilations[i])
            for i in range(spatial)
        ]  # fmt: skip
        return TensorType(dtype, (*x.shape[: 1 + lead], *out))

    def rows_of(self, ins: Sequence[TensorType | None]) -> Rows | None:
        w = ins[1]
        assert w is not None, "w is there"
        spatial = len(self.strides)
        if w.rank - spatial > 1:
            return None  # rows are a later axis
        pads = self.pads
        return Rows(w.extents[1], self.strides[0], self.dilations[0], pads[0], pads[spatial])

    def with_edges(self, before: int, after: int) -> DepthwisePlanar:
        return replace(self, pads=edged(self.pads, before, after))

    def reference(self, x: Array, w: Array) -> Array:
        lead = w.ndim - len(self.strides)
        channels = math.prod(w.shape[:lead])
        conv = Conv(self.strides, self.pads, self.dilations, channels)
        taps = w.reshape(channels, 1, *w.shape[lead:])
        y = conv.reference(x.reshape(len(x), channels, *x.shape[1 + lead :]), taps)
        return y.reshape(*x.shape[: 1 + lead], *y.shape[2:])

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        w = ins[1]
        assert w is not None, "w is there"
        return outs[0].size * math.prod(w.extents[-len(self.strides) :])

    @classmethod
    def examples(cls) -> Examples:
        yield cls((1, 1), (1, 1, 1, 1), (1, 1)), "f32[1,3,7,7]", "f32[3,3,3]"
        yield cls((1, 1), (1, 0, 2, 1), (1, 2)), "f32[2,2,3,30,37]", "f32[2,3,3,3]"
        yield cls((2, 2), (1, 1, 1, 1), (1, 1)), "f32[1,5,28,56]", "f32[5,3,3]"
        yield cls((2, 2), (0, 0, 1, 2), (2, 1)), "f32[1,2,31,17]", "f32[2,2,5]"
        yield cls((3, 1), (4, 4, 4, 4), (1, 1)), "f32[1,2,5,3]", "f32[2,2,2]"
        yield cls((1, 3), (0, 0, 0, 0), (1, 1)), "f32[1,2,5,9]", "f32[2,3,3]"
        yield cls((2,), (1, 1), (1,)), "f32[1,2,9]", "f32[2,3]"
        for stride in (1, 2, 3, 4, 5):
            yield cls((2, stride), (1, 0, 0, 2), (1, 2)), "u8[2,3,7,37]", _bytes(3, 2, 3)
            yield cls((1, stride), (0, 3, 0, 1), (1, 1)), "f32[1,2,1,41]", "f32[2,1,4]"


def _bytes(*shape: int) -> Array:
    """Return some i8, for examples."""
    return (np.arange(math.prod(shape)).reshape(shape) * 37 % 256 - 128).astype(np.int8)


class MatMulPacked(Primitive):
    """x[…, M, K] times a matrix of `columns` columns from PackMatrix: [N/width, K, width].

    With several `dots` the matrix is [N/width, K/dots, width, dots].
    """

    walks = "rows"

    columns: Dim

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        check_rank(self, "x", x, 2)
        dtype, dots = summed(self, x, w), DOTS.get(x.dtype, 1)
        check_rank(self, "w", w, 3 + (dots > 1), 3 + (dots > 1))
        steps, panels = ceil_div(x.shape[-1], dots), ceil_div(self.columns, w.shape[2])
        if steps != w.shape[1] or (dots > 1 and w.shape[3] != dots):
            raise unfit(self, x, w, f"w with {steps} steps of {dots} rows")
        if panels != w.shape[0]:
            raise unfit(self, x, w, f"w with {panels} panels of {w.shape[2]} columns")
        return TensorType(dtype, (*x.shape[:-1], self.columns))

    def reference(self, x: Array, w: Array) -> Array:
        assert known(self.columns)
        if x.dtype.name == "bfloat16":
            x, w = x.astype(np.float32), w.astype(np.float32)
        if w.ndim == 4:
            w = w.swapaxes(2, 3).reshape(w.shape[0], -1, w.shape[2])[:, : x.shape[-1]]
        matrix = w.transpose(1, 0, 2).reshape(w.shape[1], -1)[:, : self.columns]
        return MatMul().reference(x, np.broadcast_to(matrix, (*x.shape[:-2], *matrix.shape)))

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        return work_of_product(ins, outs)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(40), "f32[3,7]", "f32[2,7,32]"
        yield cls(33), "f32[2,17,20]", "f32[3,20,16]"
        yield cls(16), "f32[1,100]", "f32[1,100,16]"
        for rows, inner, columns, width in ((3, 7, 40, 32), (1, 99, 16, 16), (5, 2, 20, 16)):
            w = PackMatrix(width, 4).reference(_bytes(inner, columns))
            yield cls(columns), f"u8[{rows},{inner}]", w
        yield cls(33), "u8[2,17,20]", "i8[3,5,16,4]"
        yield cls(33), "f64[2,17,20]", "f64[5,20,8]"
        yield cls(40), "bf16[3,8]", "bf16[2,4,32,2]"
        yield cls(33), "bf16[2,17,20]", "bf16[3,10,16,2]"
