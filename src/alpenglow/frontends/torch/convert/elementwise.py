"""Converters for functions of one tensor, element by element."""

from __future__ import annotations

import math

from alpenglow.frontends.numbers import apply, wide
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, FLOATS, UNSIGNED
from alpenglow.ops.elementwise import (
    activation,
    arithmetic,
    comparison,
    floating,
    logarithm,
    logic,
    normal,
    select,
    transcendental,
)
from alpenglow.ops.elementwise.complex import Angle
from alpenglow.ops.reduction.reduction import filled

SMALL = {"f32": 1e-4, "f64": 1e-8}
"""Numbers whose square, over 6, does not change 1."""


def one(name: str, op: Op, prim: str = "") -> None:
    """Register an operator on one tensor, computed in the element type of the result."""

    @on(f"aten.{name}.default", f"prims.{prim or name}.default")
    def convert(s: Site, x: Value) -> Made:
        return apply(s.g, op, s.cast(x, s.result.dtype))


def activated(name: str, op: Op) -> None:
    """Register an activation, for which there is no primitive operator of PyTorch."""

    @on(f"aten.{name}.default")
    def convert(s: Site, x: Value) -> Made:
        return s.g(op, x)


activated("relu", activation.Relu())
activated("silu", activation.Swish())
activated("mish", activation.Mish())
activated("hardswish", activation.HardSwish())
activated("hardsigmoid", activation.HardSigmoid(1 / 6, 0.5))


@on("aten.elu.default")
def elu(s: Site, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Made:
    """x times a scale, but where x <= 0 alpha times that times exp(input_scale x) - 1."""
    if scale == 1 and input_scale == 1:
        return s.g(activation.Elu(float(alpha)), x)
    y = s.cast(x, wide(x.type.dtype))
    below, low = _low_part(s, y)
    low = s.apply(logarithm.Expm1(), s.apply(arithmetic.Mul(), low, float(input_scale)))
    low = s.apply(arithmetic.Mul(), low, float(alpha) * float(scale))
    high = s.apply(arithmetic.Mul(), y, float(scale))
    return s.cast(s.g(select.Where(), below, low, high), s.result.dtype)


@on("aten.celu.default")
def celu(s: Site, x: Value, alpha: float = 1) -> Made:
    """x, but where x <= 0 alpha times exp(x / alpha) - 1."""
    y = s.cast(x, wide(x.type.dtype))
    below, low = _low_part(s, y)
    if alpha == 1:
        low = s.g(logarithm.Expm1(), low)
    else:
        low = s.g(logarithm.Expm1(), s.apply(arithmetic.Div(), low, float(alpha)))
        low = s.apply(arithmetic.Mul(), low, float(alpha))
    return s.cast(s.g(select.Where(), below, low, y), s.result.dtype)


def _low_part(s: Site, y: Value) -> tuple[Value, Value]:
    """Return where y <= 0, and y there, else 0.

    The slope of exp may be infinite above 0, and 0 times that is NaN.  The line above 0
    has its slope at NaN, too.
    """
    below = s.g(comparison.LessOrEqual(), y, filled(s.g, 0, y))
    return below, s.g(select.Where(), below, y, filled(s.g, 0, y))


@on("aten.sigmoid.default")
def sigmoid(s: Site, x: Value) -> Made:
    return apply(s.g, activation.Sigmoid(), s.cast(x, s.result.dtype))


one("tanh", activation.Tanh())
one("exp", transcendental.Exp())
one("log", transcendental.Log())
one("sqrt", transcendental.Sqrt())
one("sin", transcendental.Sin())
one("cos", transcendental.Cos())
one("tan", transcendental.Tan())
one("asin", transcendental.Asin())
one("acos", transcendental.Acos())
one("atan", transcendental.Atan())
one("sinh", transcendental.Sinh())
one("cosh", transcendental.Cosh())
one("asinh", transcendental.Asinh())
one("acosh", transcendental.Acosh())
one("atanh", transcendental.Atanh())
one("exp2", logarithm.Exp2())
one("expm1", logarithm.Expm1())
one("log1p", logarithm.Log1p())
one("log2", logarithm.Log2())
one("log10", logarithm.Log10())
one("erf", transcendental.Erf())
one("erfc", normal.Erfc())
one("erfinv", normal.Erfinv(), "erf_inv")
one("special_erfcx", normal.Erfcx(), "erfcx")
one("special_ndtri", normal.Ndtri(), "ndtri")
one("special_log_ndtr", normal.LogNdtr())
one("neg", arithmetic.Neg())
one("reciprocal", arithmetic.Reciprocal())


@on("aten.rsqrt.default", "prims.rsqrt.default")
def rsqrt(s: Site, x: Value) -> Made:
    root = apply(s.g, transcendental.Sqrt(), s.cast(x, wide(s.result.dtype)))
    return s.cast(apply(s.g, arithmetic.Reciprocal(), root), s.result.dtype)


@on("aten.logit.default")
def logit(s: Site, x: Value, eps: float | None = None) -> Made:
    """Return log(x / (1 - x)), of x limited to eps … 1 - eps if that is given."""
    y = s.cast(x, wide(s.result.dtype))
    one = filled(s.g, 1, y)
    if eps is not None:
        y = s.g(arithmetic.Clip(eps, 1 - eps, closed=True), y)
    odds = s.g(arithmetic.Div(), y, s.g(arithmetic.Sub(), one, y))
    return s.cast(s.g(transcendental.Log(), odds), s.result.dtype)


@on("aten.sinc.default")
def sinc(s: Site, x: Value) -> Made:
    """Return sin(pi x) / (pi x): in x so small that it is 1 by its series, which has a slope."""
    g, dtype = s.g, s.result.dtype
    p = s.apply(arithmetic.Mul(), s.cast(x, wide(dtype)), math.pi, dtype=wide(dtype))
    one = filled(g, 1, p)
    size = apply(g, arithmetic.Abs(), p)
    small = g(comparison.Less(), size, filled(g, SMALL[size.type.dtype], size))
    square = apply(g, arithmetic.Mul(), p, p)
    series = apply(g, arithmetic.Sub(), one,
                   apply(g, arithmetic.Mul(), square, filled(g, 1 / 6, p)))  # fmt: skip
    other = g(select.Where(), small, one, p)
    quotient = apply(g, arithmetic.Div(), apply(g, transcendental.Sin(), other), other)
    return s.cast(g(select.Where(), small, series, quotient), dtype)


@on("aten.gelu.default")
def gelu(s: Site, x: Value, approximate: str = "none") -> Made:
    return s.g(activation.Gelu(approximate == "tanh"), x)


@on("aten.leaky_relu.default")
def leaky_relu(s: Site, x: Value, negative_slope: float = 0.01) -> Made:
    return s.g(activation.LeakyRelu(float(negative_slope)), x)


# ── roundings, signs and parts ──


def whole(name: str, op: Op) -> None:
    """Register an operator that leaves integers as they are."""

    @on(f"aten.{name}.default", f"prims.{name}.default")
    def convert(s: Site, x: Value) -> Made:
        return s.g(op, x) if x.type.dtype in FLOATS else x


whole("floor", arithmetic.Floor())
whole("ceil", arithmetic.Ceil())
whole("round", arithmetic.Round())
whole("trunc", floating.Trunc())


@on("aten.frac.default")
def frac(s: Site, x: Value) -> Made:
    return s.g(arithmetic.Sub(), x, s.g(floating.Trunc(), x))


@on("aten.abs.default", "prims.abs.default")
def absolute(s: Site, x: Value) -> Made:
    return x if x.type.dtype == "bool" else apply(s.g, arithmetic.Abs(), x)


@on("aten.sign.default", "prims.sign.default")
def sign(s: Site, x: Value) -> Made:
    """Return the sign; that of NaN is 0 in PyTorch."""
    if x.type.dtype not in FLOATS:
        return x if x.type.dtype == "bool" else s.g(arithmetic.Sign(), x)
    undefined = s.g(comparison.IsNaN(), x)
    return s.g(select.Where(), undefined, filled(s.g, 0, x), s.g(arithmetic.Sign(), x))


@on("aten.signbit.default", "prims.signbit.default")
def sign_bit(s: Site, x: Value) -> Made:
    return sign_is_set(s, x)


def sign_is_set(s: Site, x: Value) -> Value:
    """Return if the sign of each element is set, as it is of -0."""
    if x.type.dtype in FLOATS:
        return s.g(floating.SignBit(), x)
    if x.type.dtype in UNSIGNED | {"bool"}:
        return filled(s.g, 0, s.cast(x, "bool"))
    return s.g(comparison.Less(), x, filled(s.g, 0, x))


@on("aten.frexp.Tensor", "prims.frexp.default")
def frexp(s: Site, x: Value) -> Made:
    return [s.g(floating.Fraction(), x), s.g(floating.Exponent(), x)]


@on("aten.angle.default")
def angle(s: Site, x: Value) -> Made:
    """Return 0 of a real that is not negative, pi of one that is, and NaN of NaN."""
    if x.type.dtype in COMPLEX:
        return s.g(Angle(), x)
    y = s.cast(x, s.result.dtype)
    zero, pi = filled(s.g, 0, y), filled(s.g, math.pi, y)
    turned = s.g(select.Where(), s.g(comparison.Less(), y, zero), pi, zero)
    return s.g(select.Where(), s.g(comparison.IsNaN(), y), y, turned)


# ── tests ──


@on("aten.isnan.default")
def is_nan(s: Site, x: Value) -> Made:
    return in_parts(s, comparison.IsNaN(), x)


@on("aten.isinf.default")
def is_inf(s: Site, x: Value) -> Made:
    return in_parts(s, comparison.IsInf(), x)


@on("aten.isfinite.default", "prims.isfinite.default")
def is_finite(s: Site, x: Value) -> Made:
    undefined = in_parts(s, comparison.IsNaN(), x)
    endless = in_parts(s, comparison.IsInf(), x)
    return s.g(logic.BitNot(), s.g(logic.BitOr(), undefined, endless))


def in_parts(s: Site, op: Op, x: Value) -> Value:
    """Return if a test holds, of complex numbers of either part; of integers it never does."""
    return apply(s.g, op, x) if x.type.dtype in FLOATS | COMPLEX else s.filled(False, s.result)


# ── conversions ──


@on("aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device",
    "aten.to.other", "aten.type_as.default", "prims.convert_element_type.default")  # fmt: skip
def to_copy(
    s: Site, x: Value, dtype: str | None = None, copy: bool = False, other: Value | None = None
) -> Made:
    return s.cast(x, s.result.dtype)


@on("aten.copy.default")
def copy(s: Site, x: Value, src: Value) -> Made:
    return s.operands(src, dtype=s.result.dtype)[0]


@on("aten.clone.default", "aten.alias.default", "aten.detach.default",
    "aten.lift_fresh_copy.default", "aten.contiguous.default", "aten.alias_copy.default",
    "aten.lift_fresh.default", "aten.detach_copy.default", "aten.positive.default",
    "aten.resolve_conj.default", "aten.resolve_neg.default", "prims.clone.default",
    "prims.view_of.default", "prims.device_put.default")  # fmt: skip
def unchanged(s: Site, x: Value) -> Made:
    return x
