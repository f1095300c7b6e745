"""Converters for arithmetic, comparisons and functions, element by element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alpenglow.frontends.numbers import as_complex
from alpenglow.frontends.tflite.activate import activated
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, FLOATS, INTS, PARTS
from alpenglow.ops.elementwise.activation import (
    Elu,
    Gelu,
    HardSwish,
    LeakyRelu,
    PRelu,
    Sigmoid,
    Tanh,
)
from alpenglow.ops.elementwise.arithmetic import (
    Abs,
    Add,
    Ceil,
    Clip,
    Div,
    Floor,
    Maximum,
    Minimum,
    Mod,
    Mul,
    Neg,
    Pow,
    Round,
    Sign,
    Sub,
)
from alpenglow.ops.elementwise.comparison import Equal, Greater, GreaterOrEqual, Less, LessOrEqual
from alpenglow.ops.elementwise.complex import ComplexMul, bare_parts
from alpenglow.ops.elementwise.logic import BitAnd, BitNot, BitOr, BitXor, ShiftRight
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.elementwise.transcendental import Atan2, Cos, Exp, Log, Sin, Sqrt

BINARY: dict[str, Op] = {
    "MAXIMUM": Maximum(),
    "MINIMUM": Minimum(),
    "EQUAL": Equal(),
    "LESS": Less(),
    "LESS_EQUAL": LessOrEqual(),
    "GREATER": Greater(),
    "GREATER_EQUAL": GreaterOrEqual(),
    "LOGICAL_AND": BitAnd(),
    "LOGICAL_OR": BitOr(),
    "BITWISE_XOR": BitXor(),
    "ATAN2": Atan2(),
}

UNARY: dict[str, Op] = {
    "ABS": Abs(),
    "CEIL": Ceil(),
    "COS": Cos(),
    "ELU": Elu(),
    "EXP": Exp(),
    "FLOOR": Floor(),
    "HARD_SWISH": HardSwish(),
    "LOG": Log(),
    "LOGICAL_NOT": BitNot(),
    "LOGISTIC": Sigmoid(),
    "NEG": Neg(),
    "RELU_0_TO_1": Clip(0, 1),
    "RELU_N1_TO_1": Clip(-1, 1),
    "RELU6": Clip(0, 6),
    "ROUND": Round(),
    "SIGN": Sign(),
    "SIN": Sin(),
    "SQRT": Sqrt(),
    "TANH": Tanh(),
}


def binary(op: Op) -> Callable[[Site], Made]:
    """Return the converter for a binary operator that maps to one operator."""
    return lambda s: s.apply(op, s.input(0), s.input(1))


def unary(op: Op) -> Callable[[Site], Made]:
    """Return the converter for a unary operator that maps to one operator."""
    return lambda s: s.g(op, s.input(0))


for _name, _op in BINARY.items():
    on(_name, moves=_name in ("MAXIMUM", "MINIMUM"))(binary(_op))
for _name, _op in UNARY.items():
    on(_name)(unary(_op))


@on("ADD", "AddOptions")
@on("SUB", "SubOptions")
def summed(s: Site) -> Made:
    return activated(s, s.apply(Add() if s.kind == "ADD" else Sub(), s.input(0), s.input(1)))


@on("MUL", "MulOptions")
def mul(s: Site) -> Made:
    x, y = s.input(0), s.input(1)
    if x.type.dtype in COMPLEX:
        return s.apply(ComplexMul(), x, y)
    return activated(s, s.apply(Mul(), x, y))


@on("DIV", "DivOptions")
def div(s: Site) -> Made:
    return activated(s, s.apply(Div(), s.input(0), nonzero(s, s.input(1))))


@on("ADD_N")
def add_n(s: Site) -> Made:
    total = s.input(0)
    for v in s.required()[1:]:
        total = s.apply(Add(), total, v)
    return total


@on("POW")
def power(s: Site) -> Made:
    return s.apply(Pow(), s.input(0), s.input(1))


@on("FLOOR_DIV")
def floor_div(s: Site) -> Made:
    x, y = s.broadcast(s.input(0), nonzero(s, s.input(1)))
    if x.type.dtype in FLOATS:
        return s.g(Floor(), s.g(Div(), x, y))
    return s.g(Div(), s.g(Sub(), x, s.g(Mod(), x, y)), y)


@on("FLOOR_MOD")
def floor_mod(s: Site) -> Made:
    return s.apply(Mod(), s.input(0), nonzero(s, s.input(1)))


def nonzero(s: Site, y: Value) -> Value:
    """Return a divisor; raise ModelError if it is a constant 0 among integers, as TFLite does."""
    if y.type.dtype in INTS and y.array is not None and not y.array.all():
        raise s.wrong("a constant divisor of integers contains 0, expected entries other than 0")
    return y


@on("NOT_EQUAL")
def not_equal(s: Site) -> Made:
    return s.g(BitNot(), s.apply(Equal(), s.input(0), s.input(1)))


@on("SQUARE")
def square(s: Site) -> Made:
    return s.g(Mul(), s.input(0), s.input(0))


@on("SQUARED_DIFFERENCE")
def squared_difference(s: Site) -> Made:
    difference = s.apply(Sub(), s.input(0), s.input(1))
    return s.g(Mul(), difference, difference)


@on("RSQRT")
def rsqrt(s: Site) -> Made:
    root = s.g(Sqrt(), s.input(0))
    return s.g(Div(), s.filled(1, root), root)


@on("RELU")
def relu(s: Site) -> Made:
    x = s.input(0)
    return s.g(Maximum(), x, s.filled(0, x)) if x.type.dtype in INTS else s.g(Clip(low=0), x)


@on("LEAKY_RELU", "LeakyReluOptions")
def leaky_relu(s: Site) -> Made:
    return s.g(LeakyRelu(s.option("alpha")), s.input(0))


@on("PRELU")
def prelu(s: Site) -> Made:
    return s.apply(PRelu(), s.input(0), s.input(1))


@on("GELU", "GeluOptions")
def gelu(s: Site) -> Made:
    return s.g(Gelu(s.option("approximate")), s.input(0))


@on("CAST", moves=True)
def cast(s: Site) -> Made:
    """Cast to the dtype of the result; the options are not read.

    From a complex number the real part is left, and to a complex number the imaginary part is 0.
    """
    x, to = s.input(0), s.result_dtype()
    if x.type.dtype in COMPLEX and to not in COMPLEX:
        x = bare_parts(s.g, x)[0]
    elif to in COMPLEX and x.type.dtype not in COMPLEX:
        return as_complex(s.g, s.cast(x, PARTS[to]))
    if x.type.dtype in FLOATS and to in INTS:
        return s.g(Cast(to), x)
    return s.cast(x, to)


@on("SELECT", moves=True)
def select(s: Site) -> Made:
    """A condition on one axis chooses slices where the operands have more axes."""
    condition, x, y = (s.input(i) for i in range(3))
    rank = x.type.rank
    if condition.type.rank == 1 and rank > 1:
        condition = s.reshaped(condition, (*condition.type.shape, *[1] * (rank - 1)))
    return s.apply(Where(), condition, x, y)


@on("SELECT_V2", moves=True)
def select_v2(s: Site) -> Made:
    return s.apply(Where(), s.input(0), s.input(1), s.input(2))


@on("RIGHT_SHIFT")
def right_shift(s: Site) -> Made:
    return s.apply(ShiftRight(), s.input(0), s.input(1))


@on("ZEROS_LIKE")
def zeros_like(s: Site) -> Made:
    return s.filled(0, s.input(0))


@on("DEQUANTIZE")
def dequantize(s: Site) -> Made:
    """Halves become wider; what is quantized is refused before."""
    x = s.input(0)
    if x.type.dtype not in FLOATS:
        raise s.unsupported(f"input {x.type} without a scale", "quantized or float input")
    return s.cast(x, s.output().dtype)


@on("DENSIFY")
def densify(s: Site) -> Made:
    """Sparse constants are made dense where they are read."""
    return s.input(0)


@on("FAKE_QUANT", "FakeQuantOptions")
def fake_quant(s: Site) -> Made:
    """Round to one of 2^bits places from `min` to `max`, moved so that 0 is one of them."""
    low, high = np.float32(s.option("min")), np.float32(s.option("max"))
    bits = s.option("num_bits")
    if s.option("narrow_range"):
        raise s.unsupported("narrow_range=true", "narrow_range=false")
    if not (2 <= bits <= 16 and low <= 0 <= high and low < high):
        raise s.wrong(f"num_bits is {bits}, min is {low} and max is {high}, "
                      "expected 2 to 16 bits and min <= 0 <= max with min < max")  # fmt: skip
    last = np.float32((1 << bits) - 1)
    scale = (high - low) / last
    zero = np.clip(np.floor(np.float32(0.5) - low / scale), 0, last)
    least, most = -zero * scale, (last - zero) * scale
    inverse = np.float32(1) / scale
    x = s.g(Clip(float(least), float(most)), s.input(0))
    steps = s.g(Mul(), s.g(Sub(), x, s.filled(float(least), x)), s.filled(float(inverse), x))
    rounded = s.g(Floor(), s.g(Add(), steps, s.filled(0.5, x)))
    return s.g(Add(), s.g(Mul(), rounded, s.filled(float(scale), x)), s.filled(float(least), x))
