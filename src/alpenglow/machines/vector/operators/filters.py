"""Gradients of the weights of convolutions, of blocked tensors and as blocked weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import ceil_div
from alpenglow.ir.op import Examples, Primitive, check_each, check_positive, check_rank
from alpenglow.ir.types import Array, TensorType
from alpenglow.machines.vector.operators.layout import Pack, channels, logical_size
from alpenglow.ops.tensor.packing import PackConv
from alpenglow.ops.window.conv_filter import ConvFilter


class ConvFilterBlocked(Primitive):
    """ConvFilter of one group, as PackConv has weights: [O/lanes, C/inner, *taps, inner, lanes].

    dy is blocked, [N, O/lanes, …, lanes], and x too, [N, C/inner, …, inner]; or x is plain, without
    padding along its last axis, and inner is 1.  There are so many `outputs` and `inputs`; what is
    beyond them is 0.
    """

    layouts = "all"

    outputs: int
    inputs: int
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    def infer(self, x: TensorType, dy: TensorType) -> TensorType:
        spatial = len(self.taps)
        check_each(self, spatial, strides=self.strides, dilations=self.dilations)
        plain = x.is_plain
        fits = x.dtype == dy.dtype == "f32" and not dy.is_plain
        fits = fits and (channels(dy), channels(x)) == (self.outputs, self.inputs)
        if not fits or x.rank != spatial + 3 - plain or dy.rank != spatial + 3:
            raise TypeRuleError(
                f"conv_filter_blocked: x is {x} and dy is {dy}, expected f32 images of "
                f"{self.inputs} and {self.outputs} channels, dy in blocks"
            )
        logical = self._logical
        pixels = TensorType("f32", (x.shape[0], 1, *x.shape[2 : 2 + spatial]))
        places = TensorType("f32", (dy.shape[0], 1, *dy.shape[2 : 2 + spatial]))
        logical.infer(pixels, places)
        if plain and (self.pads[spatial - 1] or self.pads[-1]):
            raise TypeRuleError(
                f"conv_filter_blocked: pads is {self.pads}, expected 0 along the last axis of a "
                f"plain image, {x}"
            )
        inner = 1 if plain else x.shape[-1]
        return x.with_shape((dy.shape[1], x.shape[1], *self.taps, inner, dy.shape[-1]))

    @property
    def _logical(self) -> ConvFilter:
        return ConvFilter(self.taps, self.strides, self.pads, self.dilations)

    def reference(self, x: Array, dy: Array) -> Array:
        rank = len(self.taps) + 3
        wide = [np.moveaxis(a, -1, 2).reshape(len(a), -1, *a.shape[2:-1]) if a.ndim == rank else a
                for a in (x, dy)]  # fmt: skip
        dw = self._logical.reference(*wide)[: self.outputs, : self.inputs]
        inner = x.shape[-1] if x.ndim == rank else 1
        return PackConv(inner, dy.shape[-1]).reference(dw)

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        x, dy = ins
        assert x is not None and dy is not None, "both are there"
        return logical_size(dy) * channels(x) * math.prod(self.taps)

    @classmethod
    def examples(cls) -> Examples:
        three = (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)
        yield cls(32, 32, *three), "f32[2,32/16,7,9,16]", "f32[2,32/16,7,9,16]"
        yield cls(48, 16, *three), "f32[2,16/16,30,5,16]", "f32[2,48/16,30,5,16]"
        yield cls(40, 16, *three), "f32[1,16/8,3,70,8]", "f32[1,40/8,3,70,8]"
        yield cls(37, 20, *three), "f32[2,20/16,7,9,16]", "f32[2,37/16,7,9,16]"
        yield (
            cls(32, 16, (3, 2), (2, 2), (1, 1, 2, 0), (1, 2)),
            "f32[3,16/16,9,8,16]",
            "f32[3,32/16,5,4,16]",
        )
        one = (1, 1), (1, 1), (0,) * 4, (1, 1)
        yield cls(16, 32, *one), "f32[3,32/16,5,9,16]", "f32[3,16/16,5,9,16]"
        yield cls(9, 21, *one), "f32[3,21/16,5,9,16]", "f32[3,9/16,5,9,16]"
        yield (
            cls(16, 32, (1, 1), (2, 2), (0,) * 4, (1, 1)),
            "f32[3,32/16,5,9,16]",
            "f32[3,16/16,3,5,16]",
        )
        yield (
            cls(64, 3, (7, 7), (2, 2), (3, 0, 3, 0), (1, 1)),
            "f32[2,3,14,18]",
            "f32[2,64/16,7,6,16]",
        )
        yield cls(16, 3, (5,), (1,), (0, 0), (2,)), "f32[2,3,20]", "f32[2,16/16,12,16]"
        yield cls(5, 3, (5,), (1,), (0, 0), (2,)), "f32[2,3,20]", "f32[2,5/16,12,16]"
        yield cls(16, 16, (3,), (1,), (1, 1), (1,)), "f32[2,16/16,20,16]", "f32[2,16/16,20,16]"
        yield cls(16, 16, (3, 2, 3), (1, 1, 2), (1, 0, 1, 1, 0, 1), (1,) * 3), (
            "f32[1,16/16,4,5,6,16]"), "f32[1,16/16,4,4,3,16]"  # fmt: skip


class UnpackConv(Primitive):
    """The weights that PackConv packed, those of an output in a row: [outputs, inputs · taps]."""

    outputs: int
    inputs: int

    def infer(self, w: TensorType) -> TensorType:
        check_rank(self, "w", w, 5)
        check_positive(self, outputs=self.outputs, inputs=self.inputs)
        ob, ib, *taps, lanes, width = w.shape
        wanted = ceil_div(self.outputs, width), ceil_div(self.inputs, lanes)
        if wanted != (ob, ib):
            raise TypeRuleError(f"unpack_conv: w is {w}, expected to begin with {wanted} blocks")
        return w.with_shape((self.outputs, self.inputs * math.prod(taps)))

    def reference(self, w: Array) -> Array:
        ob, ib, *taps, lanes, width = w.shape
        order = (0, w.ndim - 1, 1, w.ndim - 2, *range(2, 2 + len(taps)))
        full = w.transpose(order).reshape(ob * width, ib * lanes, *taps)
        return full[: self.outputs, : self.inputs].reshape(self.outputs, -1)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(40, 20), "f32[2,2,3,3,16,32]"
        yield cls(7, 3), "f32[1,3,5,1,16]"


class DepthwiseFilter(Primitive):
    """The gradient of DepthwiseBlocked's weights, [1, C/lanes, *taps, lanes], there blocked.

    x[N, C/lanes, …, lanes] is what is convolved, without padding, and dy, blocked alike, the
    gradient of the result.
    """

    layouts = "all"

    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    def infer(self, x: TensorType, dy: TensorType) -> TensorType:
        spatial = len(self.taps)
        check_each(self, spatial, strides=self.strides, dilations=self.dilations)
        fits = x.dtype == dy.dtype == "f32" and not x.is_plain and x.layout == dy.layout
        if not fits or x.rank != spatial + 3 or x.shape[1] != dy.shape[1]:
            raise TypeRuleError(
                f"depthwise_filter: x is {x} and dy is {dy}, expected f32 in the same blocks"
            )
        pixels, places = (
            TensorType("f32", (t.shape[0], 1, *t.shape[2 : 2 + spatial])) for t in (x, dy)
        )
        self._of(1).infer(pixels, places)
        return TensorType("f32", (1, x.shape[1], *self.taps, x.shape[-1]), x.layout)

    def _of(self, channels: int) -> ConvFilter:
        return ConvFilter(
            self.taps, self.strides, (0, 0) * len(self.taps), self.dilations, channels
        )

    def reference(self, x: Array, dy: Array) -> Array:
        wide = [np.moveaxis(a, -1, 2).reshape(len(a), -1, *a.shape[2:-1]) for a in (x, dy)]
        dw = self._of(wide[0].shape[1]).reference(*wide)
        return Pack(x.shape[-1]).reference(dw.swapaxes(0, 1))

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        dy = ins[1]
        assert dy is not None, "dy is there"
        return logical_size(dy) * math.prod(self.taps)

    @classmethod
    def examples(cls) -> Examples:
        yield cls((3, 3), (1, 1), (1, 1)), "f32[2,20/16,9,8,16]", "f32[2,20/16,7,6,16]"
        yield cls((3, 2), (2, 1), (1, 2)), "f32[1,16/8,9,8,8]", "f32[1,16/8,4,6,8]"
        yield cls((5, 5), (2, 2), (1, 1)), "f32[2,16/16,9,9,16]", "f32[2,16/16,3,3,16]"
        yield cls((7, 7), (1, 1), (1, 1)), "f32[1,16/16,9,8,16]", "f32[1,16/16,3,2,16]"
        yield cls((4,), (1,), (1,)), "f32[2,8/8,12,8]", "f32[2,8/8,9,8]"
