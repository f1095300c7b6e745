"""Normalisation to mean 0 and deviation 1, by layer, batch, group, …, and to norm 1.

All are composites of reductions and elementwise operators (LayerNorm and RMSNorm, which are
primitives, are in `layer_norm`).  They compute in f32 at least and round once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, Op, check_dtype, check_rank
from alpenglow.ir.types import FLOATS, TensorType
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Div, Mul, Pow, Reciprocal, Sign, Sub
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Sqrt
from alpenglow.ops.reduction.layer_norm import LayerNorm, inverse_root
from alpenglow.ops.reduction.reduction import (
    ReduceMean,
    ReduceSum,
    Reduction,
    as_type,
    filled,
    in_floats,
    over,
)
from alpenglow.ops.reduction.softmax import along, rows
from alpenglow.ops.tensor.movement import Broadcast, Reshape, append_axes
from alpenglow.ops.window.pooling import AveragePool


class BatchNorm(Composite):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, each given by channel (axis 1).

    The four may have another element type than x.  An x of one axis has one channel.  ONNX
    BatchNormalization, in inference.
    """

    epsilon: float = 1e-5

    def infer(
        self, x: TensorType, scale: TensorType, bias: TensorType, mean: TensorType,
        variance: TensorType,
    ) -> TensorType:  # fmt: skip
        check_batch_norm(self, x, scale=scale, bias=bias, mean=mean, variance=variance)
        return x

    def lower(self, b: Graph, *operands: Value) -> Value:
        x, *params = operands
        wide = in_floats(b, x)
        scale, bias, mean, variance = (as_type(b, v, wide.type.dtype) for v in params)
        factor = b(Mul(), scale, inverse_root(b, variance, self.epsilon))
        shift = b(Sub(), bias, b(Mul(), mean, factor))
        return as_type(b, scaled(b, wide, factor, shift), x.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        positive = np.array([0.5, 2, 1, 3, 0.25], np.float32)
        for shape in ("2,5,3,4", "1,5", "3,5,2", "0,5,3"):
            yield cls(), f"f32[{shape}]", "f32[5]", "f32[5]", "f32[5]", positive
        yield cls(0.1), "f32[7]", "f32[1]", "f32[1]", "f32[1]", positive[:1]
        yield cls(), "f16[1,5,3]", "f16[5]", "f16[5]", "f32[5]", positive
        yield cls(), "bf16[1,5,3]", "f32[5]", "f32[5]", "f32[5]", positive
        yield cls(), "f64[1,5,3]", *["f64[5]"] * 3, positive.astype(np.float64)


class InstanceNorm(Composite):
    """Each channel of each x[N, C, …] less its mean, over its deviation; times scale, plus bias.

    scale and bias are given by channel.  ONNX InstanceNormalization.
    """

    epsilon: float = 1e-5

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        check_rank(self, "x", x, 3)
        check_channels(self, "scale", scale, x.shape[1], {x.dtype})
        check_channels(self, "bias", bias, x.shape[1], {x.dtype})
        return x

    def lower(self, b: Graph, x: Value, scale: Value, bias: Value) -> Value:
        return grouped(b, x, scale, bias, x.type.shape[1], self.epsilon)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,3,4,5]", "f32[3]", "f32[3]"
        yield cls(0.1), "f32[1,5,17]", "f32[5]", "f32[5]"
        yield cls(), "f32[0,3,4]", "f32[3]", "f32[3]"
        yield cls(), "f32[2,0,4]", "f32[0]", "f32[0]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(), f"{dtype}[1,3,4,3]", f"{dtype}[3]", f"{dtype}[3]"


class GroupNorm(Composite):
    """As InstanceNorm, but `groups` of neighbouring channels are normalised together.

    scale and bias are given by channel.  ONNX GroupNormalization, opset 21.
    """

    groups: int
    epsilon: float = 1e-5

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        check_rank(self, "x", x, 2)
        count = x.shape[1]
        if self.groups < 1 or (known(count) and count % self.groups):
            raise TypeRuleError(
                f"group_norm: groups is {self.groups}, expected a divisor of the {count} channels"
            )
        check_channels(self, "scale", scale, count, {x.dtype})
        check_channels(self, "bias", bias, count, {x.dtype})
        return x

    def lower(self, b: Graph, x: Value, scale: Value, bias: Value) -> Value:
        return grouped(b, x, scale, bias, self.groups, self.epsilon)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(2), "f32[2,6,4,5]", "f32[6]", "f32[6]"
        yield cls(1, 0.1), "f32[1,5,17]", "f32[5]", "f32[5]"
        yield cls(5), "f32[3,5]", "f32[5]", "f32[5]"
        yield cls(2), "f32[0,4,4]", "f32[4]", "f32[4]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(2), f"{dtype}[1,4,3]", f"{dtype}[4]", f"{dtype}[4]"


class MeanVarianceNorm(Composite):
    """x less its mean, over its deviation, both along `axes`.  ONNX MeanVarianceNormalization."""

    axes: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        ReduceMean(self.axes).infer(x)
        return x

    def lower(self, b: Graph, x: Value) -> Value:
        wide = in_floats(b, x)
        mean = b(ReduceMean(self.axes), wide)
        centred = b(Sub(), wide, b(Broadcast(x.type.shape), mean))
        root = b(Sqrt(), b(ReduceMean(self.axes), b(Mul(), centred, centred)))
        # ONNX's function body has this constant; it keeps what never varies at 0.
        divisor = b(Add(), root, filled(b, 1e-9, root))
        y = b(Div(), centred, b(Broadcast(x.type.shape), divisor))
        return as_type(b, y, x.type.dtype)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """As if what never varies had no deviation to differentiate, which is not smooth there."""
        shape, mean = x.type.shape, ReduceMean(self.axes)
        wide, dwide = in_floats(b, x), in_floats(b, dy)
        centred = b(Sub(), wide, b(Broadcast(shape), b(mean, wide)))
        root = b(Sqrt(), b(mean, b(Mul(), centred, centred)))
        divisor = b(Add(), root, filled(b, 1e-9, root))
        shares = b(Div(), dwide, b(Broadcast(shape), divisor))
        along_y = over(b, b(Div(), b(mean, b(Mul(), shares, centred)), divisor), root)
        dcentred = b(Sub(), shares, b(Mul(), centred, b(Broadcast(shape), along_y)))
        dx = b(Sub(), dcentred, b(Broadcast(shape), b(mean, dcentred)))
        return as_type(b, dx, x.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        yield cls((0, 2, 3)), "f32[2,3,4,5]"
        yield cls((1,)), "f32[3,17]"
        yield cls((0,)), "f32[3,0]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls((0, 1)), f"{dtype}[3,5]"


class LpNorm(Composite):
    """x over the p-norm (p is 1 or 2) along `axis`; 0 where that is 0.  ONNX LpNormalization."""

    axis: int
    p: int = 2

    def infer(self, x: TensorType) -> TensorType:
        if self.p not in (1, 2):
            raise TypeRuleError(f"lp_norm: p is {self.p}, expected 1 or 2")
        return along(self, x, self.axis)

    def lower(self, b: Graph, x: Value) -> Value:
        wide = in_floats(b, x)
        y = b(Mul(), wide, b(Broadcast(x.type.shape), self._factor(b, wide)))
        return as_type(b, y, x.type.dtype)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """0 where the norm is 0."""
        shape, axis = x.type.shape, self.axis % x.type.rank
        wide, dwide = in_floats(b, x), in_floats(b, dy)
        factor = b(Broadcast(shape), self._factor(b, wide))
        y = b(Mul(), wide, factor)
        total = b(ReduceSum((axis,)), b(Mul(), dwide, y))
        slope = b(Sign(), wide) if self.p == 1 else y
        less = b(Mul(), slope, b(Broadcast(shape), total))
        return as_type(b, b(Mul(), factor, b(Sub(), dwide, less)), x.type.dtype)

    def _factor(self, b: Graph, wide: Value) -> Value:
        """Return the factor of each row."""
        size = b(Abs(), wide) if self.p == 1 else b(Mul(), wide, wide)
        total = b(ReduceSum((self.axis % wide.type.rank,)), size)
        norm = total if self.p == 1 else b(Sqrt(), total)
        zero = b(Equal(), norm, filled(b, 0, norm))
        return b(Where(), zero, filled(b, 0, norm), b(Reciprocal(), norm))

    @classmethod
    def examples(cls) -> Examples:
        yield from rows(cls)
        yield cls(0, 1), "f32[3,5]"
        yield cls(1), np.zeros((2, 3), np.float32)


class LocalResponseNorm(Composite):
    """x over (bias + alpha · the sum of x² over `size` channels around / size)^beta.  ONNX LRN."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        check_rank(self, "x", x, 2)
        if self.size < 1:
            raise TypeRuleError(f"local_response_norm: size is {self.size}, expected 1 or more")
        return x

    def lower(self, b: Graph, x: Value) -> Value:
        wide = in_floats(b, x)
        n, c, *spatial = x.type.shape
        before = (self.size - 1) // 2
        after = self.size - 1 - before
        if known(c) and after >= c:  # what lies beyond all channels need not be looked at
            before, after = (min(reach, max(int(c) - 1, 0)) for reach in (before, after))
        window = before + after + 1
        pool = AveragePool((window, 1), (1, 1), (before, 0, after, 0), (1, 1), count_pads=True)
        rows = b(Reshape((n, 1, c, product(spatial))), b(Mul(), wide, wide))
        mean = b(Reshape(x.type.shape), b(pool, rows))
        sized = b(Mul(), mean, filled(b, self.alpha * (window / self.size), mean))
        base = b(Add(), sized, filled(b, self.bias, mean))
        y = b(Div(), wide, b(Pow(), base, filled(b, self.beta, mean)))
        return as_type(b, y, x.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(3, 0.5, 0.5, 2.0), "f32[2,7,3,5]"
        yield cls(4), "f32[1,5,3]"
        yield cls(5), "f32[2,3]"
        yield cls(2**31 - 1, 2e9), "f32[2,3,4]"
        yield cls(3), "f32[0,3,2]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(3), f"{dtype}[1,4,3,3]"


def grouped(b: Graph, x: Value, scale: Value, bias: Value, groups: Dim, epsilon: float) -> Value:
    """Return x[N, C, …] normalised in `groups` of channels, then scaled and shifted by channel."""
    wide = in_floats(b, x)
    n, c, *spatial = x.type.shape
    # A group of each channel for itself has one channel, even where there are none.
    each = 1 if groups is c else c // groups
    rows = b(Reshape((n, groups, each * product(spatial))), wide)
    y = b(Reshape(x.type.shape), b(LayerNorm(2, epsilon), rows))
    return as_type(b, scaled(b, y, in_floats(b, scale), in_floats(b, bias)), x.type.dtype)


def scaled(b: Graph, x: Value, factor: Value, shift: Value) -> Value:
    """Return x times factor plus shift, both given by channel."""
    return b(Add(), b(Mul(), x, across(b, factor, x)), across(b, shift, x))


def across(b: Graph, v: Value, x: Value) -> Value:
    """Return a number for each channel as a tensor of the shape of x."""
    return b(Broadcast(x.type.shape), append_axes(b, v, x.type.rank - 2))


def by_channel(b: Graph, reduction: Callable[..., Reduction], x: Value) -> Value:
    """Return what a reduction says of each channel, axis 1: of one axis there is one channel."""
    axes = tuple(a for a in range(x.type.rank) if a != 1)
    return b(Reshape((channels(x.type),)), b(reduction(axes), x))


def channels(x: TensorType) -> Dim:
    """Return the number of channels: axis 1; a tensor of one axis has one channel."""
    return x.shape[1] if x.rank > 1 else 1


def check_batch_norm(op: Op, x: TensorType, **params: TensorType) -> None:
    """Raise TypeRuleError unless each of `params` holds a number for each channel of x."""
    check_dtype(op, "x", x, FLOATS)
    check_rank(op, "x", x, 1)
    for what, t in params.items():
        check_channels(op, what, t, channels(x), FLOATS)


def check_channels(
    op: Op, what: str, t: TensorType, count: Dim, dtypes: frozenset[str] | set[str]
) -> None:
    """Raise TypeRuleError unless `t` holds one number a channel."""
    check_dtype(op, what, t, dtypes)
    if t.shape != (count,):
        raise TypeRuleError(f"{op.name}: {what} is {t}, expected shape ({count},)")
