"""Between floats and integers with a scale and a zero point: real = (q - zero_point) * scale.

Scales and zero points are operands stretched to the shape of what they belong to, so that one
operator serves a scale a tensor, an axis or a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    SHAPES,
    Composite,
    Elementwise,
    Examples,
    Op,
    check_arity,
    check_choice,
    check_dtype,
)
from alpenglow.ir.types import DTYPES, NAMES, NARROW_FLOATS, NARROW_INTS, TensorType, width
from alpenglow.ops.elementwise.arithmetic import Clip, Div, Neg, Sub
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.select import Where, limited
from alpenglow.ops.reduction.reduction import ReduceMax, ReduceMin
from alpenglow.ops.tensor.movement import Broadcast

REALS = frozenset({"f32", "f16", "bf16"})
SCALES = REALS | {"i32", "f8e8m0"}
QUANTIZED_INTS = frozenset({"i8", "u8", "i16", "u16"}) | NARROW_INTS
QUANTIZED_FLOATS = NARROW_FLOATS - {"f8e8m0"}
QUANTIZED = QUANTIZED_INTS | QUANTIZED_FLOATS
PRECISIONS = REALS | {"f64"}
STEPS = frozenset({"i8", "u8", "i16", "u16"})

ROUNDER = 1.5 * 2**23
ROUNDER_BITS = 0x4B400000
"""A float whose last bit is worth 1, and its bits: plus n, they are those of the float plus n."""


FITS = 2.0**30
"""Products below this fit i32, also rounded and with a zero point added."""

FACTORS: Mapping[str, tuple[frozenset[str], str]] = {
    "even": (frozenset({"i32", "f32"}), "f32"),
    "single": (frozenset({"i32", "i64"}), "f64"),
    "single_away": (frozenset({"i32"}), "f64"),
    "double": (frozenset({"i32"}), "f64"),
    "double_up": (frozenset({"i32"}), "f64"),
}
"""For each way to round a product to a step, see `Requantize`: what x may be, and the type of the
multiplier."""


class Quantize(Elementwise):
    """round(x / scale) + zero_point, limited to what `dtype` holds.  ONNX QuantizeLinear.

    Halves go to even.  Division is that of `precision`, whatever the types.  Where `dtype` is a
    float, x / scale + zero_point is rounded once; what it cannot hold is limited if `saturate`.
    """

    dtype: str
    saturate: bool = True
    precision: str = "f32"

    def infer(self, *xs: TensorType) -> TensorType:
        check_arity(self, len(xs))
        x, scale, zero_point = xs
        check_choice(self, QUANTIZED, dtype=self.dtype)
        check_choice(self, PRECISIONS, precision=self.precision)
        check_dtype(self, "x", x, REALS | {"i32"})
        check_scale(self, x, scale)
        if zero_point != x.with_dtype(self.dtype):
            raise TypeRuleError(
                f"quantize: zero_point is {zero_point}, expected {x.with_dtype(self.dtype)}"
            )
        return zero_point

    def scalar(self, m: Any, x: Any, scale: Any, zero_point: Any) -> Any:
        if self.dtype in NARROW_FLOATS:
            moved = m.add(self._quotient(m, x, scale), m.cast(zero_point, "f32"))
            return m.cast(limited(m, moved, self.dtype) if self.saturate else moved, self.dtype)
        low, high = bounds(self.dtype)
        moved = m.add(m.round(self._quotient(m, x, scale)), m.cast(zero_point, "f32"))
        near = m.minimum(m.maximum(moved, low), high)
        return m.cast(m.cast(near, "i32"), self.dtype)

    def _quotient(self, m: Any, x: Any, scale: Any) -> Any:
        """Return x / scale as an f32, rounded to the precision asked for first."""
        if self.precision in ("f32", "f64"):
            quotient = m.div(m.cast(x, self.precision), m.cast(scale, self.precision))
            return m.cast(quotient, "f32")
        a, b = (m.cast(m.cast(m.cast(v, "f32"), self.precision), "f32") for v in (x, scale))
        return m.cast(m.cast(m.div(a, b), self.precision), "f32")

    @classmethod
    def examples(cls) -> Examples:
        for shape in SHAPES:
            yield cls("u8"), f"f32[{shape}]", f"f32[{shape}]", f"u8[{shape}]"
        for precision in sorted(PRECISIONS):
            for dtype in ("i8", "f8e4m3fn"):
                yield cls(dtype, False, precision), "f16[9]", "f32[9]", f"{dtype}[9]"
        yield cls("f8e5m2"), "f32[9]", "f8e8m0[9]", "f8e5m2[9]"
        for dtype in sorted(QUANTIZED):
            x = np.array([0, 0.5, 1.5, -2.5, 3e9, -3e9, np.inf, 20], np.float32)
            scale = np.array([1, 1, 1, 1, 0.5, 2, 1, 0.1], np.float32)
            yield cls(dtype), x, scale, np.arange(8).astype(DTYPES[dtype])
            for real in sorted(REALS | {"i32"}):
                kind = "f32" if real == "i32" else real
                yield cls(dtype), f"{real}[3,7]", f"{kind}[3,7]", f"{dtype}[3,7]"


class Dequantize(Elementwise):
    """(x - zero_point) * scale, as `dtype`.  ONNX DequantizeLinear.

    The difference is taken in i32, that of floats in f32, the product in f32.
    """

    dtype: str = "f32"

    def infer(self, *xs: TensorType) -> TensorType:
        check_arity(self, len(xs))
        x, scale, zero_point = xs
        check_choice(self, REALS, dtype=self.dtype)
        check_dtype(self, "x", x, QUANTIZED | {"i32"})
        check_scale(self, x, scale)
        if zero_point != x:
            raise TypeRuleError(f"dequantize: zero_point is {zero_point}, expected {x}")
        return x.with_dtype(self.dtype)

    def scalar(self, m: Any, x: Any, scale: Any, zero_point: Any) -> Any:
        exact = "f32" if NAMES.get(x.dtype, x.dtype) in NARROW_FLOATS else "i32"
        steps = m.sub(m.cast(x, exact), m.cast(zero_point, exact))
        return m.mul(m.cast(steps, "f32"), m.cast(scale, "f32"))

    @classmethod
    def examples(cls) -> Examples:
        for shape in SHAPES:
            yield cls(), f"u8[{shape}]", f"f32[{shape}]", f"u8[{shape}]"
        for dtype in sorted(QUANTIZED | {"i32"}):
            for real in sorted(REALS):
                yield cls(real), f"{dtype}[3,7]", f"{real}[3,7]", f"{dtype}[3,7]"
        yield cls("f16"), "i8[5]", "f32[5]", "i8[5]"


class Requantize(Elementwise):
    """round(x * multiplier) + zero_point, limited to [low, high]: integers of another scale.

    x holds sums of products, in i32, or reals, whose multiplier is the reciprocal of a scale.  The
    product is taken in f32, halves go to even, and what is no number becomes `low`.  The bounds
    are those of `dtype`, or of an activation, in steps.  That it `fits` promises that all
    products are smaller than 2^30, and that none is no number.

    With another `rounding` the product is one of integers: of x in i32 or i64, and the first 31
    bits of a multiplier in f64, which is 0 or at least 2^-32.  "single" shifts it once, and halves
    go up; the multiplier is less than 2^14, an i64 less than 2^47.  "single_away" shifts it once,
    too, and halves go away from zero; the multiplier is less than 2^30.  "double" shifts it by 31
    bits and from there to the result, where halves go away from zero; the multiplier is less than
    2^30.  TFLite's reference kernels do so, and firmware (gemmlowp,
    `MultiplyByQuantizedMultiplier`).
    "double_up" is the same but that halves go up, as LiteRT's own products of matrices (ruy) do.
    """

    dtype: str
    low: int
    high: int
    fits: bool = False
    rounding: str = "even"

    def infer(self, *xs: TensorType) -> TensorType:
        check_arity(self, len(xs))
        x, multiplier, zero_point = xs
        check_choice(self, STEPS, dtype=self.dtype)
        least, most = bounds(self.dtype)
        if not least <= self.low <= self.high <= most:
            raise TypeRuleError(
                f"requantize: low is {self.low} and high {self.high}, expected an interval within "
                f"{least:g} to {most:g}"
            )
        check_choice(self, FACTORS, rounding=self.rounding)
        sums, factors = FACTORS[self.rounding]
        check_dtype(self, "x", x, sums)
        if multiplier != x.with_dtype(factors) or zero_point != x.with_dtype(self.dtype):
            raise TypeRuleError(
                f"requantize: multiplier is {multiplier} and zero_point {zero_point}, expected "
                f"{x.with_dtype(factors)} and {x.with_dtype(self.dtype)} with {x}"
            )
        return zero_point

    def scalar(self, m: Any, x: Any, multiplier: Any, zero_point: Any) -> Any:
        if self.rounding != "even":
            steps = m.add(self._shifted(m, x, multiplier), m.cast(zero_point, "i64"))
            return m.cast(m.minimum(m.maximum(steps, self.low), self.high), self.dtype)
        zero = m.cast(zero_point, "f32")
        steps = m.mul(m.cast(x, "f32"), multiplier)
        low, high = m.sub(float(self.low), zero), m.sub(float(self.high), zero)
        # These comparisons are false for NaN, and each choice is one instruction.
        above = m.where(m.gt(steps, low), steps, low)
        near = m.where(m.lt(above, high), above, high)
        # There is nothing below the unit in a float of this size: adding rounds to it.
        moved = m.bits(m.add(near, ROUNDER), "i32")
        whole = m.add(m.sub(moved, ROUNDER_BITS), m.cast(zero_point, "i32"))
        return m.cast(whole, self.dtype)

    def _shifted(self, m: Any, x: Any, multiplier: Any) -> Any:
        """Return round(x * multiplier) as an i64, by integers."""
        x, bits = m.cast(x, "i64"), m.bits(multiplier, "i64")
        # An f64 has 52 bits behind its first one, and 1023 for the exponent 0.
        digits = m.add(m.shift_right(m.bit_and(bits, (1 << 52) - 1), 22), 1 << 30)
        digits = m.where(m.gt(bits, 0), digits, 0)
        exponent = m.sub(m.shift_right(bits, 52), 1022)
        if self.rounding == "single":
            # The last 16 bits of x are multiplied apart, for the product of all has no room.
            low = m.shift_right(m.mul(m.bit_and(x, (1 << 16) - 1), digits), 16)
            high = m.add(m.mul(m.shift_right(x, 16), digits), low)
            return _rounded(m, high, m.sub(15, exponent))
        if self.rounding == "single_away":
            return _rounded_away(m, m.mul(x, digits), m.sub(31, exponent))
        left = m.maximum(exponent, 0)
        first = _rounded(m, m.mul(x, digits), m.sub(31, left))
        if self.rounding == "double_up":
            return _rounded(m, m.mul(first, 2), m.add(m.sub(left, exponent), 1))
        return _rounded_away(m, first, m.sub(left, exponent))

    def gradient(
        self, b: Graph, dy: Value, x: Value, multiplier: Value, zero_point: Value
    ) -> tuple[None, None, None]:
        return None, None, None

    @classmethod
    def examples(cls) -> Examples:
        sums = np.array([0, 1, 3, -5, 2**31 - 1, -(2**31), 255, 1000003], np.int32)
        halves = np.array([0.5, 1.5, -2.5, np.nan, np.inf, -np.inf, 3e9, 0.49999997], np.float32)
        for dtype in sorted(STEPS):
            least, most = map(int, bounds(dtype))
            half = np.full(8, 0.5, np.float32)
            zero = np.arange(8).astype(DTYPES[dtype])
            yield cls(dtype, least, most), sums, half, zero
            yield cls(dtype, least, most), halves, half * 2, zero
            yield cls(dtype, 3, 100), "i32[2,17]", "f32[2,17]", f"{dtype}[2,17]"
            yield cls(dtype, 0, most), "f32[3,7]", "f32[3,7]", f"{dtype}[3,7]"
            yield cls(dtype, least, most, fits=True), "i32[2,17]", "f32[2,17]", f"{dtype}[2,17]"
            for rounding in ("single", "single_away", "double", "double_up"):
                op = cls(dtype, least, most, rounding=rounding)
                for factor in (0.5, 0.3, 2.0**-20, 0.0, 1.75, 2.0**-31):
                    yield op, sums, np.full(8, factor), zero
            single = cls(dtype, least, most, rounding="single")
            yield single, sums.astype(np.int64) * 1000, np.linspace(1e-9, 0.9, 8), zero
        for shape in SHAPES:
            yield cls("u8", 0, 255), f"i32[{shape}]", f"f32[{shape}]", f"u8[{shape}]"


class DynamicQuantize(Composite):
    """x as u8 with the scale that its own range asks for: quantized x, scale, zero point.

    The range is that of x and 0, its width divided by 255 the scale; a range of 0 has scale 1.
    ONNX DynamicQuantizeLinear.
    """

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        check_dtype(self, "x", x, {"f32"})
        return x.with_dtype("u8"), TensorType("f32", ()), TensorType("u8", ())

    def lower(self, b: Graph, x: Value) -> tuple[Value, Value, Value]:
        scale, zero = measured(b, x)
        spread = [b(Broadcast(x.type.shape), v) for v in (scale, zero)]
        return b(Quantize("u8"), x, *spread), scale, zero

    @classmethod
    def examples(cls) -> Examples:
        for shape in SHAPES:
            yield cls(), f"f32[{shape}]"
        yield cls(), np.array([1, 2.5, 4], np.float32)
        yield cls(), np.zeros(3, np.float32)


def measured(b: Graph, x: Value) -> tuple[Value, Value]:
    """Return the scale that the range of x and 0 asks for, and the zero point as u8."""
    axes = tuple(range(x.type.rank))
    low = b(Clip(high=0.0), b(ReduceMin(axes, False), x))
    high = b(Clip(low=0.0), b(ReduceMax(axes, False), x))
    width, one, none = (b.constant(np.float32(v)) for v in (255, 1, 0))
    exact = b(Div(), b(Sub(), high, low), width)
    scale = b(Where(), b(Equal(), exact, none), one, exact)
    return scale, b(Quantize("u8"), b(Neg(), low), scale, b.constant(np.uint8(0)))


def _rounded(m: Any, x: Any, bits: Any) -> Any:
    """Return x / 2^bits of an i64 as an integer, halves up.  `bits` is 1 to 63."""
    return m.shift_right(m.add(m.shift_right(x, m.sub(bits, 1)), 1), 1)


def _rounded_away(m: Any, x: Any, bits: Any) -> Any:
    """Return x / 2^bits of an i64 below 2^62 as an integer, halves away from zero."""
    sign = m.shift_right(x, 63)
    size = m.shift_right(m.mul(m.sub(m.bit_xor(x, sign), sign), 2), bits)
    return m.sub(m.bit_xor(m.shift_right(m.add(size, 1), 1), sign), sign)


def bounds(dtype: str) -> tuple[float, float]:
    """Return the least and the greatest number of an integer type."""
    bits, half = width(dtype), 0.5 * (dtype[0] == "i")
    return -half * 2.0**bits, (1 - half) * 2.0**bits - 1


def check_scale(op: Op, x: TensorType, scale: TensorType) -> None:
    check_dtype(op, "scale", scale, SCALES)
    if scale.with_dtype(x.dtype) != x:
        raise TypeRuleError(
            f"{op.name}: scale is {scale}, expected {x.with_dtype(scale.dtype)} with {x}"
        )
