"""Converters for arithmetic on two or more tensors, element by element."""

from __future__ import annotations

import math

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.numbers import apply, wide
from alpenglow.frontends.torch.convert.elementwise import sign_is_set
from alpenglow.frontends.torch.promote import Number
from alpenglow.frontends.torch.table import Made, Operand, Site, axis_of, element, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, FLOATS, holds
from alpenglow.ops.elementwise import (
    arithmetic,
    comparison,
    floating,
    logarithm,
    logic,
    select,
    transcendental,
)
from alpenglow.ops.elementwise.complex import bare_parts
from alpenglow.ops.elementwise.iterated import Gcd
from alpenglow.ops.reduction.reduction import filled
from alpenglow.ops.tensor.gather import Gather


def scaled(s: Site, other: Operand, alpha: Number, dtype: str) -> Operand:
    """Return alpha times an operand; itself if alpha is 1."""
    if isinstance(alpha, int | float | complex) and alpha == 1:
        return other
    value = s.tensor(other, dtype)
    return apply(s.g, arithmetic.Mul(), value, s.filled(alpha, value.type))


def summed(name: str, op: Op) -> None:
    """Register the sum or difference of an operand and a multiple of another."""

    @on(f"aten.{name}.Tensor", f"aten.{name}.Scalar", f"prims.{name}.default")
    def convert(s: Site, x: Operand, other: Operand, alpha: Number = 1) -> Made:
        dtype = s.result.dtype
        return s.apply(op, x, scaled(s, other, alpha, dtype), dtype=dtype)


summed("add", arithmetic.Add())
summed("sub", arithmetic.Sub())


@on("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(s: Site, x: Operand, other: Operand, alpha: Number = 1) -> Made:
    dtype = s.result.dtype
    return s.apply(arithmetic.Sub(), other, scaled(s, x, alpha, dtype), dtype=dtype)


def paired(op: Op, *targets: str) -> None:
    """Register an operator on two operands, computed in the element type of the result."""

    @on(*targets)
    def convert(s: Site, x: Operand, other: Operand) -> Made:
        return s.apply(op, x, other, dtype=s.result.dtype)


paired(arithmetic.Mul(), "aten.mul.Tensor", "aten.mul.Scalar", "prims.mul.default")


# ── quotients and remainders ──


@on("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", "prims.div.default")
def div(s: Site, x: Operand, other: Operand) -> Made:
    return s.apply(arithmetic.Div(), x, other, dtype=s.result.dtype)


@on("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(s: Site, x: Operand, other: Operand, rounding_mode: str | None) -> Made:
    if rounding_mode == "floor":
        return floor_divide(s, x, other)
    dtype = s.result.dtype
    if rounding_mode is None or dtype not in FLOATS:
        return div(s, x, other)
    # Halves are rounded before the fraction goes: a quotient of 2.999 is 3.
    quotient = s.cast(s.apply(arithmetic.Div(), x, other, dtype=wide(dtype)), dtype)
    return s.g(floating.Trunc(), quotient)


@on("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(s: Site, x: Operand, other: Operand) -> Made:
    """Divide as Python does: of integers, and of floats by way of the remainder."""
    dtype = s.result.dtype
    if dtype not in FLOATS:
        return _floored_integers(s, *s.operands(x, other, dtype=dtype))
    a, b = s.operands(x, other, dtype=wide(dtype))
    return s.cast(_floored(s, a, b), dtype)


def _floored_integers(s: Site, a: Value, b: Value) -> Value:
    """Return the quotient of integers rounded down: 1 less than truncated if a rest turns signs."""
    g, zero = s.g, filled(s.g, 0, a)
    rest = g(arithmetic.Fmod(), a, b)
    apart = g(logic.BitNot(), g(comparison.Equal(), rest, zero))
    turned = g(logic.BitXor(), g(comparison.Less(), b, zero), g(comparison.Less(), rest, zero))
    less = s.cast(g(logic.BitAnd(), apart, turned), a.type.dtype)
    return g(arithmetic.Sub(), g(arithmetic.Div(), a, b), less)


def _floored(s: Site, a: Value, b: Value) -> Value:
    """Return the quotient of floats rounded down, as Python's // makes it."""
    g, zero, one = s.g, filled(s.g, 0, a), filled(s.g, 1, a)
    rest = g(arithmetic.Fmod(), a, b)
    quotient = g(arithmetic.Div(), g(arithmetic.Sub(), a, rest), b)
    turned = g(logic.BitXor(), g(comparison.Less(), b, zero), g(comparison.Less(), rest, zero))
    apart = g(logic.BitNot(), g(comparison.Equal(), rest, zero))
    less = g(arithmetic.Sub(), quotient, one)
    quotient = g(select.Where(), g(logic.BitAnd(), apart, turned), less, quotient)
    down = g(arithmetic.Floor(), quotient)
    far = g(comparison.Greater(), g(arithmetic.Sub(), quotient, down), filled(g, 0.5, a))
    nearest = g(select.Where(), far, g(arithmetic.Add(), down, one), down)
    plain = g(arithmetic.Div(), a, b)
    infinite = g(arithmetic.Floor(), plain)  # which is flat, as all else here
    signed = g(select.Where(), sign_is_set(s, plain), filled(g, -0.0, a), zero)
    nearest = g(select.Where(), g(comparison.Equal(), quotient, zero), signed, nearest)
    return g(select.Where(), g(comparison.Equal(), b, zero), infinite, nearest)


paired(arithmetic.Mod(), "aten.remainder.Tensor", "aten.remainder.Scalar",
       "aten.remainder.Scalar_Tensor", "prims.remainder.default")  # fmt: skip
paired(arithmetic.Fmod(), "aten.fmod.Tensor", "aten.fmod.Scalar", "prims.fmod.default")


# ── powers ──


@on("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar", "prims.pow.default")
def power(s: Site, x: Operand, exponent: Operand) -> Made:
    dtype = s.result.dtype
    if isinstance(x, Value) and isinstance(exponent, int | float):
        whole = s.cast(x, dtype)
        if exponent in (0, 1):
            return whole if exponent else s.filled(1, s.result)
        if exponent in (2, 3):
            square = apply(s.g, arithmetic.Mul(), whole, whole)
            return square if exponent == 2 else apply(s.g, arithmetic.Mul(), square, whole)
        if dtype in FLOATS and exponent in (0.5, -0.5, -1, -2):
            y = _simple_power(s, s.cast(x, wide(dtype)), float(exponent))
            return s.cast(y, dtype)
    return s.apply(arithmetic.Pow(), x, exponent, dtype=dtype)


def _simple_power(s: Site, x: Value, exponent: float) -> Value:
    """Return x raised to 1/2, -1/2, -1 or -2: as PyTorch does, by roots and quotients."""
    y = s.g(transcendental.Sqrt(), x) if abs(exponent) == 0.5 else x
    y = s.g(arithmetic.Mul(), x, x) if exponent == -2 else y
    return y if exponent == 0.5 else s.g(arithmetic.Reciprocal(), y)


@on("aten.xlogy.Tensor", "aten.xlogy.Scalar_Self", "aten.xlogy.Scalar_Other")
def x_log_y(s: Site, x: Operand, other: Operand) -> Made:
    return s.apply(logarithm.XLogY(), x, other, dtype=s.result.dtype)


@on("aten.special_xlog1py.default", "aten.special_xlog1py.self_scalar",
    "aten.special_xlog1py.other_scalar")  # fmt: skip
def x_log1p_y(s: Site, x: Operand, other: Operand) -> Made:
    return s.apply(logarithm.XLog1pY(), x, other, dtype=s.result.dtype)


# ── extremes ──


def extreme(name: str, op: Op, ahead: Op) -> None:
    """Register the larger or smaller of two: NaN if either is, and with f only if both are.

    Equal operands of the first have half the gradient each; with f the first operand has it all.
    """

    @on(f"aten.{name}imum.default", f"aten.{name}.other", f"prims.{name}imum.default")
    def convert(s: Site, x: Value, other: Value) -> Made:
        return s.apply(op, x, other, dtype=s.result.dtype)

    @on(f"aten.f{name[:3]}.default", f"prims.f{name[:3]}.default")
    def of_numbers(s: Site, x: Value, other: Value) -> Made:
        dtype = s.result.dtype
        a, b = s.operands(x, other, dtype=dtype)
        if dtype not in FLOATS:
            return apply(s.g, op, a, b)
        first = s.g(logic.BitOr(), s.g(ahead, a, b), s.g(comparison.IsNaN(), b))
        return s.g(select.Where(), first, a, b)


extreme("max", arithmetic.Maximum(), comparison.GreaterOrEqual())
extreme("min", arithmetic.Minimum(), comparison.LessOrEqual())


@on("aten.clamp.default", "aten.clamp.Tensor", "aten.clamp_min.default", "aten.clamp_min.Tensor",
    "aten.clamp_max.default", "aten.clamp_max.Tensor")  # fmt: skip
def clamp(s: Site, x: Value, min: Operand | None = None, max: Operand | None = None) -> Made:
    dtype = s.result.dtype
    y = s.operands(x, dtype=dtype)[0]
    limits = _limits(min, max, dtype)
    if limits is not None:
        return s.g(arithmetic.Clip(*limits, closed=True), y)
    if min is not None:
        y = _limited(s, arithmetic.Maximum(), y, min)
    return y if max is None else _limited(s, arithmetic.Minimum(), y, max)


def _limited(s: Site, op: Op, x: Value, limit: Operand) -> Value:
    """Return x, or a limit that is beyond it or NaN: of equal ones x has all of the gradient."""
    x, limit = s.operands(x, limit, dtype=x.type.dtype)
    if x.type.dtype not in FLOATS:
        return apply(s.g, op, x, limit)
    beyond = comparison.Greater() if isinstance(op, arithmetic.Maximum) else comparison.Less()
    taken = s.g(logic.BitOr(), s.g(beyond, limit, x), s.g(comparison.IsNaN(), limit))
    return s.g(select.Where(), taken, limit, x)


def _limits(low: Operand | None, high: Operand | None, dtype: str) -> tuple[float, float] | None:
    """Return two limits that are numbers for a clip of floats, else None."""
    numbers: list[float] = []
    for limit, absent in ((low, -math.inf), (high, math.inf)):
        number = absent if limit is None else limit
        if dtype not in FLOATS or not isinstance(number, int | float):
            return None
        if not math.isinf(number) and (number != number or not holds(dtype, number)):
            return None
        numbers.append(float(number))
    return numbers[0], numbers[1]


@on("aten.hardtanh.default")
def hardtanh(s: Site, x: Value, min_val: Number = -1, max_val: Number = 1) -> Made:
    """Of integers the limits lose their fractions; of floats, a limit has no gradient."""
    low, high = (element(v, x.type.dtype) for v in (min_val, max_val))
    limits = _limits(low, high, x.type.dtype)
    return clamp(s, x, low, high) if limits is None else s.g(arithmetic.Clip(*limits), x)


paired(Gcd(), "aten.gcd.default", "prims.gcd.default")


# ── lengths, angles, signs and neighbours ──


@on("aten.hypot.default", "prims.hypot.default")
def hypot(s: Site, x: Value, other: Value) -> Made:
    """Return the length of (x, other): infinite if either is, whatever the other."""
    a, b = s.operands(x, other, dtype=s.result.dtype)
    endless = s.g(logic.BitOr(), s.g(comparison.IsInf(), a), s.g(comparison.IsInf(), b))
    return s.g(select.Where(), endless, filled(s.g, math.inf, a),
               s.g(transcendental.Hypot(), a, b))  # fmt: skip


@on("aten.logaddexp.default")
def log_add_exp(s: Site, x: Value, other: Value) -> Made:
    """m + log(1 + exp(l - m)), where m is the operand whose real part is larger, l the other.

    Nothing on the way is infinite unless an operand is, so the gradient is never 0 times infinity.
    """
    g, (a, b) = s.g, s.operands(x, other, dtype=wide(s.result.dtype))
    sizes = [bare_parts(g, v)[0] if v.type.dtype in COMPLEX else v for v in (a, b)]
    ahead = g(comparison.GreaterOrEqual(), *sizes)
    most, least = g(select.Where(), ahead, a, b), g(select.Where(), ahead, b, a)
    endless = g(logic.BitAnd(), g(comparison.IsInf(), sizes[0]), g(comparison.Equal(), *sizes))
    apart = apply(g, arithmetic.Sub(), least, most)
    apart = g(select.Where(), endless, filled(g, 0, apart), apart)
    rest = apply(g, logarithm.Log1p(), apply(g, transcendental.Exp(), apart))
    return s.cast(apply(g, arithmetic.Add(), most, rest), s.result.dtype)


@on("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(s: Site, x: Operand, other: Operand) -> Made:
    size = s.g(arithmetic.Abs(), s.operands(x, dtype=s.result.dtype)[0])
    sign = s.tensor(other, s.result.dtype)
    negative = s.broadcast(sign_is_set(s, sign))[0]
    return s.g(select.Where(), negative, s.g(arithmetic.Neg(), size), size)


paired(floating.NextAfter(), "aten.nextafter.default", "prims.nextafter.default")
paired(transcendental.Atan2(), "aten.atan2.default", "prims.atan2.default")


@on("aten.addcmul.default")
def addcmul(s: Site, x: Value, tensor1: Value, tensor2: Value, value: Number = 1) -> Made:
    return _added(s, x, tensor1, tensor2, value, arithmetic.Mul())


@on("aten.addcdiv.default")
def addcdiv(s: Site, x: Value, tensor1: Value, tensor2: Value, value: Number = 1) -> Made:
    return _added(s, x, tensor1, tensor2, value, arithmetic.Div())


def _added(s: Site, x: Value, a: Value, b: Value, value: Number, op: Op) -> Value:
    """Return x and `value` times what an operator makes of a and b; halves are rounded once."""
    dtype = wide(s.result.dtype)
    if dtype == "bool":
        raise UnsupportedError("dtype is bool, expected an integer, float or complex dtype")
    y = s.apply(op, scaled(s, a, value, dtype), b, dtype=dtype)
    return s.cast(s.apply(arithmetic.Add(), x, y, dtype=dtype), s.result.dtype)


@on("prims.fma.default")
def fma(s: Site, a: Value, b: Value, c: Value) -> Made:
    """a·b + c, which Dynamo traces where an optimizer calls addcmul; eager rounds the product."""
    return _added(s, c, a, b, 1, arithmetic.Mul())


@on("aten.addr.default")
def addr(s: Site, x: Value, vec1: Value, vec2: Value, beta: Number = 1, alpha: Number = 1) -> Made:
    """Add an outer product; x counts for nothing where beta is 0, not even its NaN."""
    dtype = wide(s.result.dtype)
    beta, alpha = element(beta, dtype), element(alpha, dtype)
    column = s.reshaped(vec1, (*vec1.type.shape, 1))
    y = s.apply(arithmetic.Mul(), scaled(s, column, alpha, dtype), vec2, dtype=dtype)
    if beta != 0:
        y = s.apply(arithmetic.Add(), scaled(s, x, beta, dtype), y, dtype=dtype)
    return s.cast(y, s.result.dtype)


@on("aten.linalg_cross.default")
def cross(s: Site, x: Value, other: Value, dim: int = -1) -> Made:
    """Return the cross products along an axis of three: x turned by one and by two places."""
    dtype = wide(s.result.dtype)
    a, b = s.operands(x, other, dtype=dtype)
    axis = axis_of(dim, a.type.rank)

    def turned(v: Value, places: int) -> Value:
        order = s.g.constant(np.array([(i + places) % 3 for i in range(3)]))
        return s.g(Gather(axis), v, order)

    first, second = (apply(s.g, arithmetic.Mul(), turned(a, i), turned(b, 3 - i)) for i in (1, 2))
    return s.cast(apply(s.g, arithmetic.Sub(), first, second), s.result.dtype)
