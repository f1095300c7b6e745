"""Converters for operators that work element by element."""

from __future__ import annotations

from alpenglow.frontends.torch.promote import Number, shared
from alpenglow.frontends.torch.table import Made, Operand, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import FLOATS
from alpenglow.ops import activation, arithmetic, comparison, logic, select, transcendental


def one(name: str, op: Op) -> None:
    """Register an operator on one tensor, computed in the element type of the result."""

    @on(f"aten.{name}.default")
    def convert(s: Site, x: Value) -> Made:
        return s.g(op, s.cast(x, s.result.dtype))


one("relu", activation.Relu())
one("sigmoid", activation.Sigmoid())
one("tanh", activation.Tanh())
one("silu", activation.Swish())
one("mish", activation.Mish())
one("hardswish", activation.HardSwish())
one("hardsigmoid", activation.HardSigmoid(1 / 6, 0.5))
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
one("erf", transcendental.Erf())
one("reciprocal", arithmetic.Reciprocal())
one("neg", arithmetic.Neg())


def whole(name: str, op: Op) -> None:
    """Register an operator that leaves integers as they are."""

    @on(f"aten.{name}.default")
    def convert(s: Site, x: Value) -> Made:
        return s.g(op, x) if x.type.dtype in FLOATS else x


whole("floor", arithmetic.Floor())
whole("ceil", arithmetic.Ceil())
whole("round", arithmetic.Round())


@on("aten.abs.default")
def absolute(s: Site, x: Value) -> Made:
    return x if x.type.dtype == "bool" else s.g(arithmetic.Abs(), x)


@on("aten.sign.default")
def sign(s: Site, x: Value) -> Made:
    return x if x.type.dtype == "bool" else s.g(arithmetic.Sign(), x)


@on("aten.rsqrt.default")
def rsqrt(s: Site, x: Value) -> Made:
    root = s.g(transcendental.Sqrt(), s.cast(x, s.result.dtype))
    return s.g(arithmetic.Reciprocal(), root)


@on("aten.gelu.default")
def gelu(s: Site, x: Value, approximate: str = "none") -> Made:
    return s.g(activation.Gelu(approximate == "tanh"), x)


@on("aten.leaky_relu.default")
def leaky_relu(s: Site, x: Value, negative_slope: float = 0.01) -> Made:
    return s.g(activation.LeakyRelu(float(negative_slope)), x)


# ── arithmetic on two operands ──


def scaled(s: Site, other: Operand, alpha: Number, dtype: str) -> Operand:
    """Return alpha times an operand; itself if alpha is 1."""
    if isinstance(alpha, int | float) and alpha == 1:
        return other
    value = s.tensor(other, dtype)
    return s.g(arithmetic.Mul(), value, s.filled(alpha, value.type))


@on("aten.add.Tensor", "aten.add.Scalar")
def add(s: Site, x: Operand, other: Operand, alpha: Number = 1) -> Made:
    dtype = s.result.dtype
    op = logic.BitOr() if dtype == "bool" else arithmetic.Add()
    return s.apply(op, x, scaled(s, other, alpha, dtype), dtype=dtype)


@on("aten.sub.Tensor", "aten.sub.Scalar")
def sub(s: Site, x: Operand, other: Operand, alpha: Number = 1) -> Made:
    dtype = s.result.dtype
    return s.apply(arithmetic.Sub(), x, scaled(s, other, alpha, dtype), dtype=dtype)


@on("aten.mul.Tensor", "aten.mul.Scalar")
def mul(s: Site, x: Operand, other: Operand) -> Made:
    dtype = s.result.dtype
    op = logic.BitAnd() if dtype == "bool" else arithmetic.Mul()
    return s.apply(op, x, other, dtype=dtype)


@on("aten.div.Tensor", "aten.div.Scalar")
def div(s: Site, x: Operand, other: Operand) -> Made:
    return s.apply(arithmetic.Div(), x, other, dtype=s.result.dtype)


@on("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar")
def power(s: Site, x: Operand, exponent: Operand) -> Made:
    dtype = s.result.dtype
    if not isinstance(exponent, Value) and isinstance(x, Value):
        wide = s.cast(x, dtype)
        if exponent == 2:
            return s.g(arithmetic.Mul(), wide, wide)
        if exponent == 0.5 and dtype in FLOATS:
            return s.g(transcendental.Sqrt(), wide)
    return s.apply(arithmetic.Pow(), x, exponent, dtype=dtype)


@on("aten.maximum.default")
def maximum(s: Site, x: Value, other: Value) -> Made:
    op = logic.BitOr() if s.result.dtype == "bool" else arithmetic.Maximum()
    return s.apply(op, x, other, dtype=s.result.dtype)


@on("aten.minimum.default")
def minimum(s: Site, x: Value, other: Value) -> Made:
    op = logic.BitAnd() if s.result.dtype == "bool" else arithmetic.Minimum()
    return s.apply(op, x, other, dtype=s.result.dtype)


@on("aten.clamp.default", "aten.clamp.Tensor")
def clamp(s: Site, x: Value, min: Operand | None = None, max: Operand | None = None) -> Made:
    dtype = s.result.dtype
    y = s.operands(x, dtype=dtype)[0]
    if min is not None:
        y = s.apply(arithmetic.Maximum(), y, min, dtype=dtype)
    return y if max is None else s.apply(arithmetic.Minimum(), y, max, dtype=dtype)


@on("aten.hardtanh.default")
def hardtanh(s: Site, x: Value, min_val: Number = -1, max_val: Number = 1) -> Made:
    return clamp(s, x, min_val, max_val)


# ── comparisons and logic ──


def compared(name: str, op: Op) -> None:
    """Register a comparison of a tensor with a tensor or a number."""

    @on(f"aten.{name}.Tensor", f"aten.{name}.Scalar")
    def convert(s: Site, x: Operand, other: Operand) -> Made:
        return s.apply(op, *_comparable(s, x, other))


def _comparable(s: Site, x: Operand, other: Operand) -> tuple[Operand, Operand]:
    """Return two operands in an element type that comparisons have."""
    if shared((x, other)) == "bool":
        return s.tensor(s.tensor(x, "bool"), "u8"), s.tensor(s.tensor(other, "bool"), "u8")
    return x, other


compared("eq", comparison.Equal())
compared("lt", comparison.Less())
compared("le", comparison.LessOrEqual())
compared("gt", comparison.Greater())
compared("ge", comparison.GreaterOrEqual())


@on("aten.ne.Tensor", "aten.ne.Scalar")
def not_equal(s: Site, x: Operand, other: Operand) -> Made:
    return s.g(logic.BitNot(), s.apply(comparison.Equal(), *_comparable(s, x, other)))


def bitwise(name: str, op: Op) -> None:
    """Register an operator on the bits of integers, or on truths."""

    @on(f"aten.bitwise_{name}.Tensor", f"aten.bitwise_{name}.Scalar")
    def convert(s: Site, x: Operand, other: Operand) -> Made:
        return s.apply(op, x, other, dtype=s.result.dtype)

    @on(f"aten.logical_{name}.default")
    def logical(s: Site, x: Value, other: Value) -> Made:
        return s.apply(op, x, other, dtype="bool")


bitwise("and", logic.BitAnd())
bitwise("or", logic.BitOr())
bitwise("xor", logic.BitXor())


@on("aten.logical_not.default")
def logical_not(s: Site, x: Value) -> Made:
    return s.g(logic.BitNot(), s.cast(x, "bool"))


@on("aten.bitwise_not.default")
def bitwise_not(s: Site, x: Value) -> Made:
    return s.g(logic.BitNot(), x)


@on("aten.isnan.default")
def is_nan(s: Site, x: Value) -> Made:
    return s.g(comparison.IsNaN(), x) if x.type.dtype in FLOATS else s.filled(False, s.result)


@on("aten.isinf.default")
def is_inf(s: Site, x: Value) -> Made:
    return s.g(comparison.IsInf(), x) if x.type.dtype in FLOATS else s.filled(False, s.result)


@on("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(s: Site, condition: Value, x: Operand, other: Operand) -> Made:
    values = s.operands(x, other, dtype=s.result.dtype)
    return s.g(select.Where(), *s.broadcast(s.cast(condition, "bool")), *values)


@on("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(s: Site, x: Value, mask: Value, value: Operand) -> Made:
    values = s.operands(value, x, dtype=s.result.dtype)
    return s.g(select.Where(), *s.broadcast(mask), *values)


# ── conversions ──


@on("aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout")
def to_copy(s: Site, x: Value, dtype: str | None = None, copy: bool = False) -> Made:
    return converted(s, x, s.result.dtype)


def converted(s: Site, x: Value, dtype: str) -> Value:
    """Return x in another element type; out-of-range floats become integers as they may."""
    return s.cast(x, dtype)


@on("aten.clone.default", "aten.alias.default", "aten.lift.default", "aten.lift_fresh.default",
    "aten.detach.default", "aten.lift_fresh_copy.default", "aten.contiguous.default")  # fmt: skip
def unchanged(s: Site, x: Value) -> Made:
    return x
