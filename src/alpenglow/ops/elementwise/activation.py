"""Activation functions, element by element."""

from __future__ import annotations

import math
from typing import Any

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Elementwise, Examples, check_dtype, of_one_type
from alpenglow.ir.types import FLOATS, SIGNED, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Mul, Neg
from alpenglow.ops.tensor.movement import Broadcast


class Relu(Composite):
    """max(x, 0): a clip open above.  ONNX Relu."""

    layouts = "all"

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS | SIGNED)
        return x

    def lower(self, b: Graph, x: Value) -> Value:
        return b(Clip(low=0.0 if x.type.dtype in FLOATS else 0), x)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), FLOATS | SIGNED)


class LeakyRelu(Elementwise):
    """x where x >= 0, else alpha * x.  ONNX LeakyRelu."""

    alpha: float = 0.01
    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.where(m.lt(x, 0.0), m.mul(x, self.alpha), x)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(0.1), FLOATS)
        yield from of_one_type(cls(-2.0), {"f32"})


class PRelu(Elementwise):
    """x where x >= 0, else slope * x.  ONNX PRelu, the slope broadcast."""

    dtypes = FLOATS | SIGNED | {"u32", "u64"}

    def scalar(self, m: Any, x: Any, slope: Any) -> Any:
        return m.where(m.lt(x, 0), m.mul(x, slope), x)


class Sigmoid(Elementwise):
    """1 / (1 + exp(-x)).  ONNX Sigmoid."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.div(1.0, m.add(m.exp(m.neg(x)), 1.0))

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Multiply by what x and -x become: the formula has inf / inf far from 0."""
        return b(Mul(), dy, b(Mul(), b(self, x), b(self, b(Neg(), x))))


class Tanh(Elementwise):
    """The hyperbolic tangent of x.  ONNX Tanh."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.tanh(x)


class Elu(Elementwise):
    """x where x >= 0, else alpha * (exp(x) - 1).  ONNX Elu."""

    alpha: float = 1.0
    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.where(m.lt(x, 0.0), m.mul(m.sub(m.exp(x), 1.0), self.alpha), x)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(0.5), FLOATS)
        yield from of_one_type(cls(), {"f32"})


class Celu(Elementwise):
    """x where x >= 0, else alpha * (exp(x / alpha) - 1).  ONNX Celu."""

    alpha: float = 1.0
    dtypes = FLOATS

    def infer(self, *xs: TensorType) -> TensorType:
        if self.alpha == 0:
            raise TypeRuleError("celu: alpha is 0, expected another number")
        return super().infer(*xs)

    def scalar(self, m: Any, x: Any) -> Any:
        below = m.mul(m.sub(m.exp(m.div(x, self.alpha)), 1.0), self.alpha)
        return m.where(m.lt(x, 0.0), below, x)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(2.0), FLOATS)
        yield from of_one_type(cls(), {"f32"})


class Selu(Elementwise):
    """gamma * x, but where x <= 0 gamma * alpha * (exp(x) - 1).  ONNX Selu."""

    alpha: float = 1.6732631921768188
    gamma: float = 1.0507010221481323
    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        below = m.mul(m.sub(m.exp(x), 1.0), self.alpha * self.gamma)
        return m.where(m.le(x, 0.0), below, m.mul(x, self.gamma))

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), FLOATS)
        yield from of_one_type(cls(0.5, 2.0), {"f32"})


class HardSigmoid(Elementwise):
    """alpha * x + beta, limited to [0, 1].  ONNX HardSigmoid."""

    alpha: float = 0.2
    beta: float = 0.5
    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        line = m.add(m.mul(x, self.alpha), self.beta)
        return m.maximum(m.minimum(line, 1.0), 0.0)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(0.25, 0.4), FLOATS)
        yield from of_one_type(cls(), {"f32"})


class HardSwish(Elementwise):
    """x times x / 6 + 1 / 2 limited to [0, 1].  ONNX HardSwish."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        line = m.add(m.mul(x, 1 / 6), 0.5)
        return m.mul(x, m.maximum(m.minimum(line, 1.0), 0.0))


class Softplus(Elementwise):
    """log(1 + exp(x)).  ONNX Softplus.

    It is max(x, 0) + log(1 + e) with e = exp(-|x|), and log(1 + e) = 2 atanh(e / (e + 2)) keeps
    the digits of a small e.
    """

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        e = m.exp(m.neg(m.abs(x)))
        return m.add(m.maximum(x, 0.0), m.mul(m.atanh(m.div(e, m.add(e, 2.0))), 2.0))

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return b(Mul(), dy, b(Sigmoid(), x))


class Softsign(Elementwise):
    """x / (1 + |x|).  ONNX Softsign."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.div(x, m.add(m.abs(x), 1.0))


class ThresholdedRelu(Elementwise):
    """x where x > alpha, else 0.  ONNX ThresholdedRelu."""

    alpha: float = 1.0
    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.where(m.gt(x, self.alpha), x, 0.0)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(0.25), FLOATS)
        yield from of_one_type(cls(), {"f32"})


class Shrink(Elementwise):
    """x + bias below -lambd, x - bias above lambd, 0 between.  ONNX Shrink."""

    lambd: float = 0.5
    bias: float = 0.0
    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        above = m.where(m.gt(x, self.lambd), m.sub(x, self.bias), 0.0)
        return m.where(m.lt(x, -self.lambd), m.add(x, self.bias), above)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(1.5, 0.25), FLOATS)
        yield from of_one_type(cls(), {"f32"})


class Mish(Elementwise):
    """x * tanh(log(1 + exp(x))).  ONNX Mish.

    With e = exp(x) and n = e (e + 2) the tangent is n / (n + 2), which is 1 from 20 on.
    """

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        e = m.exp(m.minimum(x, 20.0))
        n = m.mul(e, m.add(e, 2.0))
        # Whichever of the product and the quotient is computed first, neither overflows.
        return m.where(m.gt(x, 20.0), x, m.mul(x, m.div(n, m.add(n, 2.0))))


class Gelu(Elementwise):
    """x times the share of a normal distribution below x.  ONNX Gelu.

    The share is (1 + erf(x / sqrt(2))) / 2, or with `tanh` the usual approximation of it.
    """

    tanh: bool = False
    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        if self.tanh:
            cubic = m.add(x, m.mul(m.mul(m.mul(x, x), x), 0.044715))
            share = m.tanh(m.mul(cubic, math.sqrt(2 / math.pi)))
        else:
            share = m.erf(m.mul(x, math.sqrt(0.5)))
        return m.mul(m.mul(x, 0.5), m.add(share, 1.0))

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), FLOATS)
        yield from of_one_type(cls(tanh=True), FLOATS)


class Swish(Elementwise):
    """x / (1 + exp(-alpha * x)).  ONNX Swish."""

    alpha: float = 1.0
    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.div(x, m.add(m.exp(m.mul(x, -self.alpha)), 1.0))

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Differentiate x s(alpha x) as a product, for s has a gradient far from 0."""
        line = b(Mul(), x, b(Broadcast(x.type.shape), b.constant(x.type.numpy.type(self.alpha))))
        share = b(Sigmoid(), line)
        slope = Sigmoid().gradient(b, line, line)
        return b(Mul(), dy, b(Add(), share, slope))

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), FLOATS)
        yield from of_one_type(cls(1.5), {"f32"})
