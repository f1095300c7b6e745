"""Putting windows back: the inverses of pooling and of cutting out windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.base.words import FIX_DIMENSIONS
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, Primitive, check_dtype, check_rank
from alpenglow.ir.types import ALL, FLOATS, NUMBERS, Array, TensorType
from alpenglow.ops.reduction.reduction import widened
from alpenglow.ops.tensor.gather import Gather, ScatterElements
from alpenglow.ops.tensor.movement import Broadcast, Pad, Reshape, Transpose
from alpenglow.ops.window.window import conv_extent, windows


class OverlapAdd(Primitive):
    """The windows x[N, C, *kernel, *places] added up where they lie in an image [N, C, *extents].

    `strides` are the distances of windows, `dilations` those of their taps, and `pads` what lies
    around the image, before each axis, then after: what falls there is dropped.  ONNX Col2Im.
    """

    extents: tuple[Dim, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, NUMBERS)
        rank = len(self.extents)
        check_rank(self, "x", x, 2 + 2 * rank, 2 + 2 * rank)
        lists = (("strides", self.strides, rank), ("pads", self.pads, 2 * rank),
                 ("dilations", self.dilations, rank))  # fmt: skip
        for what, numbers, count in lists:
            if len(numbers) != count:
                raise TypeRuleError(f"overlap_add: {len(numbers)} {what}, expected {count}")
        for i, d in enumerate(self.extents):
            places = conv_extent(self, d, x.shape[2 + i], self.strides[i], self.pads[i],
                                 self.pads[rank + i], self.dilations[i])  # fmt: skip
            extent = x.shape[2 + rank + i]
            if known(places) and known(extent) and places != extent:
                raise TypeRuleError(
                    f"overlap_add: {x} has {extent} windows on axis {i}, expected {places}"
                )
        return x.with_shape((*x.shape[:2], *self.extents))

    def reference(self, x: Array) -> Array:
        rank = len(self.extents)
        wide = widened(x)
        kernel, places = x.shape[2 : 2 + rank], x.shape[2 + rank :]
        inner = tuple(map(int, self.extents))
        full = [d + a + b for d, a, b in
                zip(inner, self.pads[:rank], self.pads[rank:], strict=True)]  # fmt: skip
        y = np.zeros((*x.shape[:2], *full), wide.dtype)
        for tap in np.ndindex(*kernel):
            where: tuple[Any, ...] = tuple(
                slice(t * d, t * d + (p - 1) * s + 1 if p else t * d, s)
                for t, d, p, s in zip(tap, self.dilations, places, self.strides, strict=True)
            )
            y[..., *where] += wide[:, :, *tap]
        cut: tuple[Any, ...] = tuple(
            slice(a, a + d) for a, d in zip(self.pads, inner, strict=False)
        )
        return np.asarray(y[..., *cut].astype(x.dtype))

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Cut the windows out again: read the image at their places, and zeros around it."""
        if not x.type.static or not dy.type.static:
            raise UnsupportedError(
                "gradient: overlap_add of dynamic dimensions is not supported", hint=FIX_DIMENSIONS
            )
        n, c, *image = dy.type.extents
        rank, size = len(image), int(np.prod(image, dtype=np.int64))
        edges = zip(self.pads[:rank], self.pads[rank:], strict=True)
        place = np.arange(size).reshape(1, 1, *image)
        place = np.pad(place, [(0, 0), (0, 0), *edges], constant_values=size)
        index = windows(place, x.type.extents[2 : 2 + rank], self.strides, self.dilations)[0, 0]
        flat = b(Pad((0, 0, 0), (0, 0, 1)), b(Reshape((n, c, size)), dy))
        cut = b(Gather(2), flat, b.constant(np.ascontiguousarray(index)))
        taps, places = range(2 + rank, 2 + 2 * rank), range(2, 2 + rank)
        return b(Transpose((0, 1, *taps, *places)), cut)

    @classmethod
    def examples(cls) -> Examples:
        one, none = (1, 1), (0,) * 4
        yield cls((5, 6), one, none, one), "f32[2,3,2,3,4,4]"
        yield cls((5, 20), (2, 1), (1, 0, 1, 2), (1, 2)), "f32[1,2,3,2,3,20]"
        yield cls((7,), (3,), (1, 0), (2,)), "f32[1,2,2,2]"
        yield cls((4, 3, 5), (1, 2, 1), (0,) * 6, (1, 1, 1)), "f32[1,1,2,1,2,3,2,4]"
        yield cls((5, 6), one, none, one), "f32[0,3,2,3,4,4]"
        for dtype in sorted(NUMBERS - {"f32"}):
            yield cls((4, 4), one, none, one), f"{dtype}[1,2,2,2,3,3]"


class MaxUnpool(Composite):
    """Zeros of the given shape with the elements of x at the row-major indices.  ONNX MaxUnpool.

    Of several elements with one index the last one stays.
    """

    shape: tuple[Dim, ...]

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        check_dtype(self, "x", x, ALL)
        check_dtype(self, "indices", indices, {"i32", "i64"})
        if indices.shape != x.shape:
            raise TypeRuleError(f"max_unpool: indices is {indices}, expected the shape of x {x}")
        if product(self.shape) == 0 and product(x.shape) != 0:
            raise TypeRuleError(
                f"max_unpool: shape is {self.shape}, expected at least one element for {x}"
            )
        return x.with_shape(self.shape)

    def lower(self, b: Graph, x: Value, indices: Value) -> Value:
        count = product(x.type.shape)
        zero = b.constant(np.zeros((), x.type.numpy))
        empty = b(Broadcast((product(self.shape),)), zero)
        flat, places = b(Reshape((count,)), x), b(Reshape((count,)), indices)
        return b(Reshape(self.shape), b(ScatterElements(0), empty, places, flat))

    @classmethod
    def examples(cls) -> Examples:
        at = np.array([[[5, 7], [13, 15]]])
        yield cls((1, 4, 4)), "f32[1,2,2]", at
        yield cls((1, 4, 4)), "f32[1,2,2]", at.astype(np.int32) * 0
        yield cls((0, 4)), "f32[0,2]", "i64[0,2]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls((1, 4, 4)), f"{dtype}[1,2,2]", at
