"""Convolutions whose taps are read at places that are data (ONNX DeformConv)."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, check_dtype, check_each
from alpenglow.ir.types import FLOATS, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.image.sampling import Sample
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.reduction.reduction import in_floats
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Transpose
from alpenglow.ops.window.window import conv_extent


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
            raise TypeRuleError(
                f"deform_conv: offset_group is {groups}, expected a divisor of {channels} channels"
            )
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
        """Return the positions that each tap reads without an offset: [K, P, R]."""
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
