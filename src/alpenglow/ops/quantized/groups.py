"""Reals by groups of neighbours, each of which has a scale of its own and whole numbers of 8 bits.

It is how activations are quantized when they are computed, for products by weights of few bits:
what a group needs is known at once, and one large element costs its own group its steps alone.
"""

from __future__ import annotations

import math

import numpy as np

from alpenglow.ir.dims import ceil_div, is_open
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, check_dtype, check_positive, check_rank
from alpenglow.ir.types import TensorType
from alpenglow.ops.elementwise.arithmetic import Abs, Div, Mul, Round
from alpenglow.ops.elementwise.comparison import GreaterOrEqual, Less
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.reduction.reduction import ReduceMax
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice

STEPS = 127
"""The largest whole number; the least is as far from zero."""

LEAST = 2.0**-120
"""A group whose largest element is smaller counts as zeros: it has no reciprocal."""


class RoundGroups(Composite):
    """x[…, K] as groups of `size` neighbours hold it in 8 bits: round(x / scale) * scale.

    The scale is the largest element of the group, whatever its sign, by 127; halves go to even.
    The last group may be smaller.  A group that holds NaN or an infinity becomes NaN.  What
    `accuracy_level` 4 of ONNX Runtime's MatMulNBits allows.  Its gradient is that of x.
    """

    size: int

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, {"f32"})
        check_rank(self, "x", x, 1)
        check_positive(self, size=self.size)
        return x

    def lower(self, b: Graph, x: Value) -> Value:
        *outer, inner = x.type.shape
        count = ceil_div(inner, self.size)
        groups = b(Reshape((*outer, count, self.size)), self._filled(b, x))

        axis = (x.type.rank,)

        def like(v: Value, number: float) -> Value:
            return b(Broadcast(v.type.shape), b.constant(np.float32(number)))

        finite = b(Less(), b(Abs(), groups), like(groups, math.inf))
        numbers = b(Where(), finite, groups, like(groups, 0))
        broken = b(ReduceMax(axis), b(Where(), finite, like(groups, 0), like(groups, 1)))
        largest = b(ReduceMax(axis), b(Abs(), numbers))
        has_steps = b(GreaterOrEqual(), largest, like(largest, LEAST))
        factor = b(Where(), has_steps, b(Div(), like(largest, STEPS), largest), like(largest, 0))
        whole = b(Less(), broken, like(broken, 1))
        scale = b(Div(), largest, like(largest, STEPS))
        scale = b(Where(), whole, scale, like(scale, math.nan))
        factor, scale = (b(Broadcast(groups.type.shape), v) for v in (factor, scale))
        rounded = b(Mul(), b(Round(), b(Mul(), numbers, factor)), scale)
        flat = b(Reshape((*outer, count * self.size)), rounded)
        if flat.type == x.type:
            return flat
        return b(Slice((0,) * x.type.rank, x.type.shape, (1,) * x.type.rank), flat)

    def _filled(self, b: Graph, x: Value) -> Value:
        """Return x with zeros behind it, as many as the last group lacks."""
        inner = x.type.shape[-1]
        lacks = ceil_div(inner, self.size) * self.size - inner
        if not is_open(lacks) and lacks == 0:
            return x
        extents = (*x.type.shape[:-1], lacks)
        return b(Concat(x.type.rank - 1), x, b(Broadcast(extents), b.constant(np.float32(0))))

    def gradient(self, b: Graph, dy: Value, x: Value) -> tuple[Value]:
        # Steps have none, or an infinite one: what is meant is the numbers that are rounded.
        return (dy,)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(32), "f32[3,64]"
        yield cls(16), "f32[2,3,37]"
        yield cls(40), "f32[5]"
        yield cls(16), "f32[0,16]"
        unusual = np.zeros((6, 16), np.float32)
        unusual[1, 3], unusual[2, 5], unusual[3, 7] = np.nan, np.inf, -np.inf
        unusual[4], unusual[5, :3] = 1e-38, (3e38, -3e38, 1.2e36)
        yield cls(16), unusual
