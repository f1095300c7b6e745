"""Normalisation along the last axes: by mean and deviation, or by the root of the mean square.

Both are primitives, because one kernel that keeps a row at hand is far better than its parts.  They
compute in f32 at least and round once.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, Op, Primitive, check_dtype, normal_axis
from alpenglow.ir.types import FLOATS, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Reciprocal, Sub
from alpenglow.ops.elementwise.transcendental import Sqrt
from alpenglow.ops.reduction.reduction import (
    ReduceMean,
    ReduceSum,
    as_type,
    filled,
    in_floats,
    widened,
)
from alpenglow.ops.reduction.softmax import along, rows
from alpenglow.ops.tensor.movement import Broadcast


class LayerNorm(Primitive):
    """x less its mean, over its deviation, along `axis` and all after it; times scale, plus bias.

    The variance is that of the whole population, and `epsilon` is added to it.  scale and bias
    have the shape of the normalised axes.  ONNX LayerNormalization, its first result.
    """

    axis: int
    epsilon: float = 1e-5

    def infer(
        self, x: TensorType, scale: TensorType | None = None, bias: TensorType | None = None
    ) -> TensorType:
        out = along(self, x, self.axis)
        for what, t in (("scale", scale), ("bias", bias)):
            check_trailing(self, what, t, x, self.axis)
        return out

    def reference(self, x: Array, scale: Array | None = None, bias: Array | None = None) -> Array:
        wide = widened(x)
        axes = tuple(range(self.axis % x.ndim, x.ndim))
        count = np.prod([x.shape[a] for a in axes], dtype=np.int64).astype(wide.dtype)
        with np.errstate(all="ignore"):
            centred = wide - wide.sum(axis=axes, keepdims=True) / count
            variance = (centred * centred).sum(axis=axes, keepdims=True) / count
            y = centred / np.sqrt(variance + np.asarray(self.epsilon, wide.dtype))
        y = y if scale is None else y * scale.astype(wide.dtype)
        y = y if bias is None else y + bias.astype(wide.dtype)
        return np.asarray(y).astype(x.dtype)

    def gradient(
        self, b: Graph, dy: Value, x: Value, scale: Value | None = None, bias: Value | None = None
    ) -> tuple[Value, Value, Value]:
        """With n the normalised x, d its gradient: (d - mean d - n · mean of n d) / deviation."""
        wide, axis = in_floats(b, dy), self.axis % x.type.rank
        n = b(LayerNorm(self.axis, self.epsilon), in_floats(b, x))
        axes, stretch = tuple(range(axis, x.type.rank)), Broadcast(x.type.shape)
        d = wide if scale is None else b(Mul(), wide, b(stretch, in_floats(b, scale)))
        mean = b(stretch, b(ReduceMean(axes), d))
        slope = b(Mul(), n, b(stretch, b(ReduceMean(axes), b(Mul(), n, d))))
        centred = b(Sub(), b(Sub(), d, mean), slope)
        dx = b(Mul(), centred, b(stretch, self._over_deviation(b, in_floats(b, x), axes)))
        before = ReduceSum(tuple(range(axis)), False)
        dscale, dbias = b(before, b(Mul(), wide, n)), b(before, wide)
        gradients = (as_type(b, v, x.type.dtype) for v in (dx, dscale, dbias))
        return next(gradients), next(gradients), next(gradients)

    def _over_deviation(self, b: Graph, x: Value, axes: tuple[int, ...]) -> Value:
        centred = b(Sub(), x, b(Broadcast(x.type.shape), b(ReduceMean(axes), x)))
        return inverse_root(b, b(ReduceMean(axes), b(Mul(), centred, centred)), self.epsilon)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(-1), "f32[3,17]"
        yield cls(1), "f32[2,40]", "f32[40]", "f32[40]"
        yield cls(2, 0.1), "f32[2,3,4,5]", "f32[4,5]"
        yield cls(0), "f32[7]", None, "f32[7]"
        yield cls(1), "f32[0,4]", "f32[4]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(-1), f"{dtype}[3,8]", f"{dtype}[8]", f"{dtype}[8]"


class LayerMoments(Composite):
    """The mean along `axis` and all after it, and 1 over the deviation, both f32.

    What ONNX LayerNormalization offers as its second and third result.
    """

    axis: int
    epsilon: float = 1e-5

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        check_dtype(self, "x", x, FLOATS)
        axis = normal_axis(self, self.axis, x.rank)
        t = TensorType("f32", (*x.shape[:axis], *[1] * (x.rank - axis)))
        return t, t

    def lower(self, b: Graph, x: Value) -> tuple[Value, Value]:
        wide = in_floats(b, x)
        axes = tuple(range(self.axis % x.type.rank, x.type.rank))
        mean = b(ReduceMean(axes), wide)
        centred = b(Sub(), wide, b(Broadcast(x.type.shape), mean))
        deviation = inverse_root(b, b(ReduceMean(axes), b(Mul(), centred, centred)), self.epsilon)
        return as_type(b, mean, "f32"), as_type(b, deviation, "f32")

    @classmethod
    def examples(cls) -> Examples:
        yield from rows(cls)
        yield cls(1, 0.5), "f32[3,7]"


class RMSNorm(Primitive):
    """x over the root of its mean square along `axis` and all after it; times scale.

    `epsilon` is added to the mean square.  scale has the shape of the normalised axes.  ONNX
    RMSNormalization.
    """

    axis: int
    epsilon: float = 1e-5

    def infer(self, x: TensorType, scale: TensorType | None = None) -> TensorType:
        out = along(self, x, self.axis)
        check_trailing(self, "scale", scale, x, self.axis)
        return out

    def reference(self, x: Array, scale: Array | None = None) -> Array:
        wide = widened(x)
        axes = tuple(range(self.axis % x.ndim, x.ndim))
        count = np.prod([x.shape[a] for a in axes], dtype=np.int64).astype(wide.dtype)
        with np.errstate(all="ignore"):
            mean = (wide * wide).sum(axis=axes, keepdims=True) / count
            y = wide / np.sqrt(mean + np.asarray(self.epsilon, wide.dtype))
            y = y if scale is None else y * scale.astype(wide.dtype)
        return np.asarray(y).astype(x.dtype)

    def gradient(
        self, b: Graph, dy: Value, x: Value, scale: Value | None = None
    ) -> tuple[Value, Value]:
        """With n the normalised x, d its gradient: (d - n · mean of n d) / root."""
        wide, given, axis = in_floats(b, dy), in_floats(b, x), self.axis % x.type.rank
        axes, stretch = tuple(range(axis, x.type.rank)), Broadcast(x.type.shape)
        over = inverse_root(b, b(ReduceMean(axes), b(Mul(), given, given)), self.epsilon)
        n = b(Mul(), given, b(stretch, over))
        d = wide if scale is None else b(Mul(), wide, b(stretch, in_floats(b, scale)))
        slope = b(Mul(), n, b(stretch, b(ReduceMean(axes), b(Mul(), n, d))))
        dx = b(Mul(), b(Sub(), d, slope), b(stretch, over))
        dscale = b(ReduceSum(tuple(range(axis)), False), b(Mul(), wide, n))
        return as_type(b, dx, x.type.dtype), as_type(b, dscale, x.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(-1), "f32[3,17]", "f32[17]"
        yield cls(1, 0.1), "f32[2,3,5]", "f32[3,5]"
        yield cls(-1), "f32[5,40]"
        yield cls(0), "f32[0]", "f32[0]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(-1), f"{dtype}[3,8]", f"{dtype}[8]"


def inverse_root(b: Graph, x: Value, epsilon: float) -> Value:
    """Return 1 / sqrt(x + epsilon)."""
    return b(Reciprocal(), b(Sqrt(), b(Add(), x, filled(b, epsilon, x))))


def check_trailing(op: Op, what: str, t: TensorType | None, x: TensorType, axis: int) -> None:
    """Raise TypeRuleError unless `t`, if there is one, has the type of x from `axis` on."""
    wanted = x.with_shape(x.shape[normal_axis(op, axis, x.rank) :])
    if t is not None and t != wanted:
        raise TypeRuleError(f"{op.name}: {what} is {t}, expected {wanted}")
