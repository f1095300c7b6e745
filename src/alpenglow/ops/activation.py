"""Activation functions, element by element."""

from __future__ import annotations

from typing import Any

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Elementwise, Examples
from alpenglow.ir.op import check_dtype
from alpenglow.ir.types import FLOATS, SIGNED, TensorType
from alpenglow.ops.arithmetic import Clip
from alpenglow.ops.sample import binary, unary


class Relu(Composite):
    """max(x, 0): a clip open above.  ONNX Relu."""

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS | SIGNED)
        return x

    def lower(self, b: Graph, x: Value) -> Value:
        return b(Clip(low=0.0 if x.type.dtype in FLOATS else 0), x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS | SIGNED)


class LeakyRelu(Elementwise):
    """x where x >= 0, else alpha * x.  ONNX LeakyRelu."""

    alpha: float = 0.01
    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.where(m.lt(x, 0.0), m.mul(x, self.alpha), x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(0.1), FLOATS)


class PRelu(Elementwise):
    """x where x >= 0, else slope * x.  ONNX PRelu, the slope broadcast."""

    dtypes = FLOATS | SIGNED | {"u32", "u64"}

    def scalar(self, m: Any, x: Any, slope: Any) -> Any:
        return m.where(m.lt(x, 0), m.mul(x, slope), x)

    @classmethod
    def examples(cls) -> Examples:
        yield from binary(cls(), FLOATS | {"i32", "i64"})


class Sigmoid(Elementwise):
    """1 / (1 + exp(-x)).  ONNX Sigmoid."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.div(1.0, m.add(m.exp(m.neg(x)), 1.0))

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)


class Tanh(Elementwise):
    """The hyperbolic tangent of x.  ONNX Tanh."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.tanh(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from unary(cls(), FLOATS)
