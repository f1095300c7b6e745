"""Rounding as storing in few bits rounds, with a gradient: what training for few bits computes.

Nothing is stored.  A graph that rounds so in floats is trained, and becomes one that stores
(`alpenglow.quant.aware`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    SHAPES,
    Elementwise,
    Examples,
    Op,
    check_arity,
    check_choice,
    check_dtype,
)
from alpenglow.ir.types import DTYPES, TensorType
from alpenglow.ops.quantized.quantize import QUANTIZED_INTS, bounds, check_scale

ROUNDED = QUANTIZED_INTS | {"i32"}
SIGNED = ("i4", "i8", "i16")

SMALLEST = 2.0**-126
"""The smallest scale: the least normal number of f32."""

FRACTION = (1 << 23) - 1
"""The bits of an f32 that are 0 in a power of two."""


class FakeQuantize(Elementwise):
    """dequantize(quantize(x)) in f32: x rounded to what `dtype` holds of it.

    That is (q - zero_point) * scale, where q is round(x / scale) + zero_point, limited to what
    `dtype` holds; halves go to even.  Steps of i32, those of a bias, are counted in f64.  NaN stays
    NaN, where an integer would be some number.

    The gradient goes straight through to x where q is not limited, and is 0 elsewhere and for NaN
    (Bengio, Léonard and Courville, 2013; Jacob et al., 2018).  Scale and zero point have none.
    """

    dtype: str

    def infer(self, *xs: TensorType) -> TensorType:
        check_arity(self, len(xs))
        check_operands(self, self.dtype, *xs)
        return xs[0]

    def scalar(self, m: Any, x: Any, scale: Any, zero_point: Any) -> Any:
        moved, zero = moved_steps(m, self.dtype, x, scale, zero_point)
        low, high = bounds(self.dtype)
        near = m.minimum(m.maximum(moved, low), high)
        return m.mul(m.cast(m.sub(near, zero), "f32"), scale)

    def gradient(
        self, b: Graph, dy: Value, x: Value, scale: Value, zero_point: Value
    ) -> tuple[Value, None, None]:
        return b(StraightThrough(self.dtype), dy, x, scale, zero_point), None, None

    @classmethod
    def examples(cls) -> Examples:
        for shape in SHAPES:
            yield cls("u8"), f"f32[{shape}]", f"f32[{shape}]", f"u8[{shape}]"
        for dtype in sorted(ROUNDED):
            x = np.array([0, 0.5, 1.5, -2.5, 3e9, -3e9, np.inf, 20], np.float32)
            scale = np.array([1, 1, 1, 1, 0.5, 2, 1, 0.1], np.float32)
            yield cls(dtype), x, scale, np.arange(8).astype(DTYPES[dtype])
            yield cls(dtype), "f32[3,7]", "f32[3,7]", f"{dtype}[3,7]"
        edges = np.array([np.nan, -np.inf, 127.4, 127.5, -128.5, -128.6], np.float32)
        yield cls("i8"), edges, np.ones(6, np.float32), np.zeros(6, np.int8)


class StraightThrough(Elementwise):
    """dy where fake_quantize does not limit x, and 0 elsewhere and where x is NaN."""

    dtype: str

    def infer(self, *xs: TensorType) -> TensorType:
        check_arity(self, len(xs))
        dy, *operands = xs
        check_operands(self, self.dtype, *operands)
        if dy != xs[1]:
            raise TypeRuleError(f"straight_through: dy is {dy}, expected {xs[1]} as x")
        return dy

    def scalar(self, m: Any, dy: Any, x: Any, scale: Any, zero_point: Any) -> Any:
        moved, _ = moved_steps(m, self.dtype, x, scale, zero_point)
        low, high = bounds(self.dtype)
        return m.where(m.bit_and(m.ge(moved, low), m.le(moved, high)), dy, 0.0)

    def gradient(
        self, b: Graph, dy: Value, before: Value, x: Value, scale: Value, zero_point: Value
    ) -> tuple[Value, None, None, None]:
        return b(self, dy, x, scale, zero_point), None, None, None

    @classmethod
    def examples(cls) -> Examples:
        for op, x, *rest in FakeQuantize.examples():
            kind = x if isinstance(x, str) else np.arange(x.size, dtype=np.float32)
            yield cls(op.dtype), kind, x, *rest


class SymmetricScale(Elementwise):
    """The scale in which the greatest step of `dtype` is x, which is not negative.

    With `power2` it is the next power of two.  It is 1 where x is 0, and 2^-126 at least.  There is
    no gradient: steps count as constant.
    """

    dtype: str
    power2: bool = False
    dtypes = frozenset({"f32"})

    def infer(self, *xs: TensorType) -> TensorType:
        check_choice(self, SIGNED, dtype=self.dtype)
        return super().infer(*xs)

    def scalar(self, m: Any, x: Any) -> Any:
        scale = m.maximum(m.div(x, bounds(self.dtype)[1]), SMALLEST)
        scale = m.where(m.eq(x, 0.0), 1.0, scale)
        if not self.power2:
            return scale
        over = m.add(m.bits(scale, "i32"), FRACTION)
        return m.bits(m.bit_and(over, ~FRACTION), "f32")

    def gradient(self, b: Graph, dy: Value, x: Value) -> None:
        return None

    @classmethod
    def examples(cls) -> Examples:
        edges = np.array([0, 1e-44, 127, 127.00001, 1, 3e38, 7, 32767], np.float32)
        for dtype in SIGNED:
            for power2 in (False, True):
                yield cls(dtype, power2), edges
                yield cls(dtype, power2), "f32[3,7]"


def moved_steps(m: Any, dtype: str, x: Any, scale: Any, zero_point: Any) -> tuple[Any, Any]:
    """Return round(x / scale) + zero_point and the zero point, as floats that hold `dtype`."""
    wide = "f64" if dtype == "i32" else "f32"
    x, scale, zero = (m.cast(v, wide) for v in (x, scale, zero_point))
    return m.add(m.round(m.div(x, scale)), zero), zero


def check_operands(
    op: Op, dtype: str, x: TensorType, scale: TensorType, zero_point: TensorType
) -> None:
    """Raise TypeRuleError unless x and its scales are f32 and its zero points of a `dtype` that
    there is."""
    check_choice(op, ROUNDED, dtype=dtype)
    check_dtype(op, "x", x, {"f32"})
    check_dtype(op, "scale", scale, {"f32"})
    check_scale(op, x, scale)
    if zero_point != x.with_dtype(dtype):
        raise TypeRuleError(
            f"{op.name}: zero_point is {zero_point}, expected {x.with_dtype(dtype)}"
        )
