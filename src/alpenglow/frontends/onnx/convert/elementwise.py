"""Converters for operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import onnx

from alpenglow.base.errors import ModelError
from alpenglow.frontends.onnx.file.attributes import element_type
from alpenglow.frontends.onnx.hosted import HostSite, makes_host
from alpenglow.frontends.onnx.table import Made, Site, on, same, scalar
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import FLOATS, HALVES, NARROW_FLOATS
from alpenglow.kernel.narrow import ROUNDINGS
from alpenglow.ops.elementwise import (
    activation,
    arithmetic,
    comparison,
    logic,
    select,
    transcendental,
)
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.tensor.movement import Broadcast, Reshape, stretch

MICROSOFT = "com.microsoft"
LARGEST = float(np.finfo(np.float32).max)


# ── one or more tensors, no attributes ──


def two(name: str, op: Op) -> None:
    """Register an operator on two tensors; up to opset 6 attributes stretch the second."""
    same(name, op, since=7)

    @on(name)
    def convert(s: Site) -> Made:
        x, y = s.input(0), s.input(1)
        if s.attribute("broadcast", 0):
            axis = s.attribute("axis", x.type.rank - y.type.rank)
            behind = x.type.rank - (axis + x.type.rank if axis < 0 else axis) - y.type.rank
            if behind < 0:
                raise ModelError(
                    f"{name}: axis is {axis} for operands {x.type} and {y.type}, expected at most "
                    f"{x.type.rank - y.type.rank}"
                )
            placed = s.g(Reshape((*y.type.shape, *[1] * behind)), y) if behind else y
            y = stretch(s.g, placed, x.type.shape)
        return s.g(op, x, y)


def several(name: str, op: Op) -> None:
    """Register an operator on any number of tensors that joins them two by two."""

    @on(name)
    def convert(s: Site) -> Made:
        return joined(s, op, s.broadcast(*s.required()))


def joined(s: Site, op: Op, values: list[Value]) -> Value:
    if not values:
        raise s.wrong("there are 0 inputs, expected at least one")
    return reduce(lambda x, y: s.g(op, x, y), values)


two("Add", arithmetic.Add())
two("Sub", arithmetic.Sub())
two("Mul", arithmetic.Mul())
two("Div", arithmetic.Div())
two("And", logic.BitAnd())
two("Or", logic.BitOr())
two("Xor", logic.BitXor())
two("Equal", comparison.Equal())
two("Less", comparison.Less())
two("Greater", comparison.Greater())
several("Min", arithmetic.Minimum())
several("Max", arithmetic.Maximum())
same("LessOrEqual", comparison.LessOrEqual())
same("GreaterOrEqual", comparison.GreaterOrEqual())
same("BitwiseAnd", logic.BitAnd())
same("BitwiseOr", logic.BitOr())
same("BitwiseXor", logic.BitXor())
same("BitwiseNot", logic.BitNot())
same("Not", logic.BitNot())
same("Where", select.Where())
same("Neg", arithmetic.Neg())
same("Abs", arithmetic.Abs())
same("Sign", arithmetic.Sign())
same("Floor", arithmetic.Floor())
same("Ceil", arithmetic.Ceil())
same("Round", arithmetic.Round())
same("Reciprocal", arithmetic.Reciprocal())
same("Exp", transcendental.Exp())
same("Log", transcendental.Log())
same("Sqrt", transcendental.Sqrt())
same("Sin", transcendental.Sin())
same("Cos", transcendental.Cos())
same("Tan", transcendental.Tan())
same("Asin", transcendental.Asin())
same("Acos", transcendental.Acos())
same("Atan", transcendental.Atan())
same("Sinh", transcendental.Sinh())
same("Cosh", transcendental.Cosh())
same("Asinh", transcendental.Asinh())
same("Acosh", transcendental.Acosh())
same("Atanh", transcendental.Atanh())
same("Relu", activation.Relu())
same("Sigmoid", activation.Sigmoid())
same("Tanh", activation.Tanh())
same("HardSwish", activation.HardSwish())
same("Softplus", activation.Softplus())
same("Softsign", activation.Softsign())
same("Mish", activation.Mish())


@on("Erf")
def erf(s: Site) -> Made:
    """ONNX has it for integers, too: cut off, which leaves 0 up to 5."""
    x = s.input(0)
    if x.type.dtype in FLOATS:
        return s.g(transcendental.Erf(), x)
    return s.cast(s.g(transcendental.Erf(), s.cast(x, "f64")), x.type.dtype)


# ── activations with numbers as attributes ──


def tuned(name: str, make: Callable[..., Op], **defaults: float) -> None:
    """Register an operator on one tensor that has the same float attributes in ONNX and here.

    Attributes are f32, and so are their defaults, also where the tensor is f64.
    """
    narrow = {k: float(np.float32(d)) for k, d in defaults.items()}

    @on(name)
    def convert(s: Site) -> Made:
        return s.g(make(**{k: s.attribute(k, d) for k, d in narrow.items()}), s.input(0))


tuned("LeakyRelu", activation.LeakyRelu, alpha=0.01)
tuned("Elu", activation.Elu, alpha=1.0)
tuned("Celu", activation.Celu, alpha=1.0)
tuned("Selu", activation.Selu, alpha=1.6732631921768188, gamma=1.0507010221481323)
tuned("HardSigmoid", activation.HardSigmoid, alpha=0.2, beta=0.5)
tuned("ThresholdedRelu", activation.ThresholdedRelu, alpha=1.0)
tuned("Swish", activation.Swish, alpha=1.0)


@on("Gelu")
def gelu(s: Site) -> Made:
    how = s.attribute("approximate", "none")
    if how not in ("none", "tanh"):
        raise s.wrong(f"approximate is '{how}', expected none or tanh")
    return s.g(activation.Gelu(how == "tanh"), s.input(0))


@on("Gelu", domain=MICROSOFT)
@on("BiasGelu", domain=MICROSOFT)
def gelu_with_bias(s: Site) -> Made:
    return s.g(activation.Gelu(), biased(s))


@on("FastGelu", domain=MICROSOFT)
def fast_gelu(s: Site) -> Made:
    return s.g(activation.Gelu(tanh=True), biased(s))


def biased(s: Site) -> Value:
    """Return the first operand plus the second, if there is one."""
    return joined(s, arithmetic.Add(), s.broadcast(*s.required()))


@on("QuickGelu", domain=MICROSOFT)
def quick_gelu(s: Site) -> Made:
    return s.g(activation.Swish(s.attribute("alpha", 1.702)), s.input(0))


@on("Shrink")
def shrink(s: Site) -> Made:
    x = s.input(0)
    op = activation.Shrink(s.attribute("lambd", 0.5), s.attribute("bias", 0.0))
    if x.type.dtype in FLOATS:
        return s.g(op, x)
    return s.cast(s.g(op, s.cast(x, "f64")), x.type.dtype)


@on("PRelu")
def prelu_by_channel(s: Site) -> Made:
    x, slope = s.input(0), s.input(1)
    if slope.type.rank == 1 and x.type.rank > 2:
        slope = s.g(Reshape((*slope.type.shape, *[1] * (x.type.rank - 2))), slope)
    return s.g(activation.PRelu(), x, stretch(s.g, slope, x.type.shape))


@on("PRelu", since=7)
def prelu(s: Site) -> Made:
    x = s.input(0)
    return s.g(activation.PRelu(), x, stretch(s.g, s.input(1), x.type.shape))


# ── arithmetic with attributes, or on mixed types ──


@on("Sum")
def add_all(s: Site) -> Made:
    values, dtype = widened(s)
    return s.cast(joined(s, arithmetic.Add(), values), dtype)


@on("Mean")
def mean(s: Site) -> Made:
    values, dtype = widened(s)
    total = joined(s, arithmetic.Add(), values)
    return s.cast(s.g(arithmetic.Div(), total, scalar(s.g, len(values), total)), dtype)


def widened(s: Site) -> tuple[list[Value], str]:
    """Return all operands, stretched, and their type; short floats as f32, to round sums once."""
    values = s.broadcast(*s.required())
    dtype = values[0].type.dtype if values else "f32"
    return [s.cast(v, "f32") if dtype in HALVES else v for v in values], dtype


@on("Mod")
def mod(s: Site) -> Made:
    op = arithmetic.Fmod() if s.attribute("fmod", 0) else arithmetic.Mod()
    return s.g(op, *s.broadcast(*s.required()))


two("Pow", arithmetic.Pow())


@on("Pow", since=12)
def power(s: Site) -> Made:
    x, y = s.broadcast(s.input(0), s.input(1))
    dtype = x.type.dtype
    if dtype == y.type.dtype:
        return s.g(arithmetic.Pow(), x, y)
    wide = power_type(dtype, y.type.dtype)
    return s.cast(s.g(arithmetic.Pow(), s.cast(x, wide), s.cast(y, wide)), dtype)


def power_type(base: str, exponent: str) -> str:
    """Return the type to raise in when base and exponent differ; integers wrap in i64 as well."""
    if exponent not in FLOATS:
        return "f32" if base in HALVES else base if base in FLOATS else "i64"
    return "f64" if base not in FLOATS or "f64" in (base, exponent) else "f32"


@on("BitShift")
def bit_shift(s: Site) -> Made:
    direction = s.needed("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise s.wrong(f"direction is '{direction}', expected LEFT or RIGHT")
    op = logic.ShiftLeft() if direction == "LEFT" else logic.ShiftRight()
    return s.g(op, *s.broadcast(*s.required()))


@on("IsInf")
def is_inf(s: Site) -> Made:
    negative, positive = s.attribute("detect_negative", 1), s.attribute("detect_positive", 1)
    return s.g(comparison.IsInf(bool(negative), bool(positive)), wide(s))


@on("IsNaN")
def is_nan(s: Site) -> Made:
    return s.g(comparison.IsNaN(), wide(s))


def wide(s: Site) -> Value:
    """Return the first operand, as f32 if its floats have a byte or less."""
    x = s.input(0)
    return s.cast(x, "f32") if x.type.dtype in NARROW_FLOATS else x


@on("Clip")
def clip_attributes(s: Site) -> Made:
    low, high = s.attribute("min", -LARGEST), s.attribute("max", LARGEST)
    return s.g(arithmetic.Clip(low, high), s.input(0))


@on("Clip", since=11)
def clip(s: Site) -> Made:
    x, low, high = s.input(0), s.optional(1), s.optional(2)
    for v in (low, high):
        if v is not None and (v.type.dtype != x.type.dtype or any(d != 1 for d in v.type.shape)):
            raise s.wrong(f"a bound is {v.type}, expected a scalar of {x.type.dtype}")
    if all(v is None or v.array is not None for v in (low, high)):
        return s.g(arithmetic.Clip(bound(low, -np.inf), bound(high, np.inf)), x)
    for op, v in ((arithmetic.Maximum(), low), (arithmetic.Minimum(), high)):
        if v is not None:
            one = s.g(Reshape(()), v) if v.type.rank else v
            x = s.g(op, x, stretch(s.g, one, x.type.shape))
    return x


def bound(v: Value | None, default: float) -> float:
    """Return a constant bound as a Python number."""
    if v is None:
        return default
    assert v.array is not None
    number: float = v.array.reshape(-1).tolist()[0]
    return number


# ── types ──


@on("Cast")
def cast_by_name(s: Site) -> Made:
    to = str(s.needed("to"))
    if to not in onnx.TensorProto.DataType.keys():  # noqa: SIM118  (no dict)
        raise s.wrong(f"to is '{to}', expected an element type such as FLOAT")
    return s.cast(s.input(0), element_type(onnx.TensorProto.DataType.Value(to), "Cast: to"))


@on("Cast", since=6)
def cast_by_code(s: Site) -> Made:
    return rounded(s, element_type(s.needed("to"), "Cast: to"))


@makes_host("Cast", since=9)
def is_to_strings(s: HostSite) -> bool:
    to = s.attribute("to")
    # The conversion of the node refuses any other type.
    return isinstance(to, int) and to == onnx.TensorProto.STRING


@on("CastLike")
def cast_like(s: Site) -> Made:
    return rounded(s, s.input(1).type.dtype)


def rounded(s: Site, dtype: str) -> Value:
    """Return the first operand with elements of type `dtype`, rounded as the attributes say."""
    saturate, rounding = s.attribute("saturate", 1), s.attribute("round_mode", "up")
    if rounding not in ROUNDINGS:
        known = ", ".join(ROUNDINGS)
        raise s.wrong(f"round_mode is '{rounding}', expected one of {known}")
    if dtype == s.input(0).type.dtype:
        return s.input(0)
    # Attributes that say nothing are left at their defaults.
    saturate = bool(saturate) or dtype not in NARROW_FLOATS
    op = Cast(dtype, saturate, rounding if dtype == "f8e8m0" else "up")
    return s.g(op, s.input(0))


@on("BitCast", since=26)
def bit_cast(s: Site) -> Made:
    x, dtype = s.input(0), element_type(s.needed("to"), "BitCast: to")
    return x if x.type.dtype == dtype else s.g(select.BitCast(dtype), x)


def dropped(s: Site, mask: str) -> Made:
    """Return the input as it is and, where asked for, a mask that keeps everything."""
    x = s.input(0)
    if len(s.outputs) < 2:
        return x
    kept = s.g.constant(np.ones((), np.bool_))
    return x, s.g(Broadcast(x.type.shape), s.g(Cast(mask), kept) if mask != "bool" else kept)
