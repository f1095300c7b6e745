"""Losses: how far what a model says is from what is true (ONNX NegativeLogLikelihoodLoss, …)."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Elementwise, Examples, check_choice, check_dtype, check_rank
from alpenglow.ir.types import FLOATS, TensorType
from alpenglow.ops.elementwise.arithmetic import Clip, Div, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.logarithm import Log1p
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Log
from alpenglow.ops.reduction.reduction import ReduceSum, as_type, filled, in_floats
from alpenglow.ops.tensor.gather import Gather, GatherElements
from alpenglow.ops.tensor.movement import Reshape
from alpenglow.ops.tensor.places import INDICES

REDUCTIONS = ("none", "sum", "mean")


class BinaryCrossEntropy(Elementwise):
    """-t log(x) - (1 - t) log(1 - x), logarithms of at least -100.  PyTorch binary_cross_entropy.

    The gradient by x is (x - t) / (x (1 - x)) with a divisor of at least 1e-12, as in PyTorch: the
    formula has none where x is 0 or 1, which saturated sigmoids are.
    """

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any, t: Any) -> Any:
        of_rest = m.maximum(Log1p().scalar(m, m.neg(x)), -100.0)
        of_x = m.maximum(m.log(x), -100.0)
        return m.sub(m.mul(m.sub(t, 1.0), of_rest), m.mul(t, of_x))

    def gradient(self, b: Graph, dy: Value, x: Value, t: Value) -> list[Value]:
        dy, wide, target = (in_floats(b, v) for v in (dy, x, t))
        rest = b(Sub(), filled(b, 1, wide), wide)
        divisor = b(Clip(low=1e-12), b(Mul(), wide, rest))
        dx = b(Div(), b(Mul(), dy, b(Sub(), wide, target)), divisor)
        logs = (b(Clip(low=-100.0), v) for v in (b(Log1p(), b(Neg(), wide)), b(Log(), wide)))
        dt = b(Mul(), dy, b(Sub(), *logs))
        return [as_type(b, v, x.type.dtype) for v in (dx, dt)]


class NegativeLogLikelihoodLoss(Composite):
    """-weight[target[n, i]] · x[n, target[n, i], i]: x[N, C, …] at the class that is the target.

    Each weight is 1 if `weight`[C] is absent, and 0 where the target is a number in `ignored`,
    which need be no class.  `reduction` is none, sum, or mean, the sum over the sum of the
    weights.  ONNX NegativeLogLikelihoodLoss.
    """

    reduction: str = "mean"
    ignored: tuple[int, ...] = ()

    def infer(
        self, x: TensorType, target: TensorType, weight: TensorType | None = None
    ) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        check_rank(self, "x", x, 2)
        check_dtype(self, "target", target, INDICES)
        check_choice(self, REDUCTIONS, reduction=self.reduction)
        batch, classes, *rest = x.shape
        if target.shape != (batch, *rest):
            raise TypeRuleError(f"{self.name}: target is {target}, expected [{batch},…] for {x}")
        if weight is not None and weight != x.with_shape((classes,)):
            wanted = x.with_shape((classes,))
            raise TypeRuleError(f"{self.name}: weight is {weight}, expected {wanted}")
        if classes == 0:
            raise TypeRuleError(f"{self.name}: x is {x}, expected at least one class on axis 1")
        return x.with_shape(target.shape if self.reduction == "none" else ())

    def lower(self, b: Graph, x: Value, target: Value, weight: Value | None = None) -> Value:
        wide = in_floats(b, x)
        shape = target.type.shape
        place = b(Reshape((shape[0], 1, *shape[1:])), target)
        loss = b(Neg(), b(Reshape(shape), b(GatherElements(1), wide, place)))
        if weight is None:
            share = filled(b, 1, loss)
        else:
            share = b(Gather(0), as_type(b, weight, wide.type.dtype), target)
            loss = b(Mul(), loss, share)
        for number in self.ignored:
            # A target outside the classes may have read anything.
            void = b(Equal(), target, filled(b, number, target))
            loss, share = (b(Where(), void, filled(b, 0, v), v) for v in (loss, share))
        if self.reduction != "none":
            axes = tuple(range(loss.type.rank))
            loss = b(ReduceSum(axes, False), loss)
            if self.reduction == "mean":
                loss = b(Div(), loss, b(ReduceSum(axes, False), share))
        return as_type(b, loss, x.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        target = np.array([[1, 0, 4], [2, 2, 3]])
        for reduction in REDUCTIONS:
            yield cls(reduction), "f32[2,5,3]", target
            yield cls(reduction, (2,)), "f32[2,5,3]", target, "f32[5]"
        yield cls("mean", (-1, 9)), "f32[3,5]", np.array([-1, 4, 9], np.int32)
        yield cls("sum"), "f32[2,3,2,1,2]", "i64[2,2,1,2]"
        yield cls("sum"), "f32[0,3]", "i64[0]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls("none"), f"{dtype}[2,5,3]", target, f"{dtype}[5]"
