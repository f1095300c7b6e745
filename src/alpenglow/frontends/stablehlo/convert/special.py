"""Converters of the functions of CHLO, and of operations that become several operators."""

from __future__ import annotations

from collections.abc import Mapping

from alpenglow.frontends.numbers import apply, of_parts, parts_of
from alpenglow.frontends.presume import fixed
from alpenglow.frontends.stablehlo.convert.compare import ordinal
from alpenglow.frontends.stablehlo.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, FLOATS, HALVES, INTS, SIGNED, width
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Mul, Sub
from alpenglow.ops.elementwise.comparison import Equal, Greater, IsInf, IsNaN, Less
from alpenglow.ops.elementwise.floating import NextAfter, SignBit
from alpenglow.ops.elementwise.logic import BitAnd, BitNot, BitOr, ShiftRight
from alpenglow.ops.elementwise.normal import Erfc, Erfinv
from alpenglow.ops.elementwise.root import Cbrt
from alpenglow.ops.elementwise.select import BitCast, Where
from alpenglow.ops.elementwise.transcendental import (
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Cosh,
    Erf,
    Sinh,
)
from alpenglow.ops.tensor.gather import GatherElements
from alpenglow.ops.tensor.order import TopK

FUNCTIONS: Mapping[str, type[Op]] = {
    "acos": Acos,
    "acosh": Acosh,
    "asin": Asin,
    "asinh": Asinh,
    "atan": Atan,
    "atanh": Atanh,
    "cosh": Cosh,
    "erf": Erf,
    "erf_inv": Erfinv,
    "erfc": Erfc,
    "sinh": Sinh,
}


@on(*(f"chlo.{name}" for name in FUNCTIONS), pointwise=True)
def function(s: Site) -> Made:
    s.count(1)
    return apply(s.g, FUNCTIONS[s.plain](), s.wide(0))


@on("stablehlo.cbrt", pointwise=True)
def cbrt(s: Site) -> Made:
    x = s.wide(0)
    if x.type.dtype in COMPLEX:
        raise s.refuse_dtype(x, "floats")
    return s.g(Cbrt(), x)


@on("chlo.square", pointwise=True)
def square(s: Site) -> Made:
    """The square of a complex number is (a - b) (a + b) + 2abi."""
    x = s.wide(0)
    if x.type.dtype not in COMPLEX:
        return s.g(Mul(), x, x)
    a, b = parts_of(s.g, x)
    real = s.g(Mul(), s.g(Sub(), a, b), s.g(Add(), a, b))
    same = s.g(Equal(), s.g(Abs(), a), s.g(Abs(), b))
    real = s.g(Where(), same, s.filled(0, real), real)
    product = s.g(Mul(), a, b)
    return of_parts(s.g, real, s.g(Add(), product, product))


@on("chlo.is_inf", "chlo.is_pos_inf", "chlo.is_neg_inf", pointwise=True)
def is_inf(s: Site) -> Made:
    return s.g(IsInf(s.plain != "is_pos_inf", s.plain != "is_neg_inf"), s.wide(0))


@on("chlo.next_after", "chlo.broadcast_next_after", pointwise=True)
def next_after(s: Site) -> Made:
    x, y = s.pair()
    if x.type.dtype not in HALVES:
        return s.g(NextAfter(), x, y)
    return _next_half(s, x, y)


def _next_half(s: Site, x: Value, y: Value) -> Value:
    """Return the number of 16 bits next to x: its bits, one more or less; from 0 the least one."""
    whole = s.g(BitCast("i16"), x)
    one = s.filled(1, whole)
    grows = s.g(Equal(), s.g(Less(), x, y), s.g(BitNot(), s.g(SignBit(), x)))
    step = s.g(Where(), grows, s.g(Add(), whole, one), s.g(Sub(), whole, one))
    sign = s.filled(-(1 << 15) + 1, whole)
    from_zero = s.g(Where(), s.g(Greater(), y, x), one, sign)
    nothing = s.g(Equal(), x, s.filled(0, x))
    moved = s.g(BitCast(x.type.dtype), s.g(Where(), nothing, from_zero, step))
    undefined = s.g(BitOr(), s.g(IsNaN(), x), s.g(IsNaN(), y))
    made = s.g(Where(), s.g(Equal(), x, y), y, moved)
    return s.g(Where(), undefined, s.g(Add(), x, y), made)


@on("chlo.mulhi", "chlo.broadcast_mulhi", pointwise=True)
def mulhi(s: Site) -> Made:
    """The upper half of the bits of a product."""
    x, y = s.pair()
    dtype = x.type.dtype
    if dtype not in INTS:
        raise s.refuse_dtype(x, "integers")
    bits = width(dtype)
    if bits < 64:
        wide = "i64" if dtype in SIGNED else "u64"
        product = s.g(Mul(), s.cast(x, wide), s.cast(y, wide))
        return s.cast(s.g(ShiftRight(), product, s.filled(bits, product)), dtype)
    high = _upper(s, s.g(BitCast("u64"), x), s.g(BitCast("u64"), y))
    if dtype == "u64":
        return high
    made = s.g(BitCast("i64"), high)
    for a, b in ((x, y), (y, x)):
        below = s.g(Less(), a, s.filled(0, a))
        made = s.g(Sub(), made, s.g(Where(), below, b, s.filled(0, b)))
    return made


def _upper(s: Site, x: Value, y: Value) -> Value:
    """Return the upper halves of products of u64: by halves, and what is carried."""

    def low(v: Value) -> Value:
        return s.g(BitAnd(), v, s.filled((1 << 32) - 1, v))

    def high(v: Value) -> Value:
        return s.g(ShiftRight(), v, s.filled(32, v))

    a, b, c, d = high(x), low(x), high(y), low(y)
    middle = s.g(Add(), s.g(Mul(), a, d), high(s.g(Mul(), b, d)))
    carried = s.g(Add(), s.g(Mul(), b, c), low(middle))
    return s.g(Add(), s.g(Add(), s.g(Mul(), a, c), high(middle)), high(carried))


@on("chlo.top_k")
def top_k(s: Site) -> Made:
    """The largest elements of each row and where they are; NaN counts as the largest."""
    (x,), k = s.required(1), s.number("k")
    if not x.type.rank:
        raise s.refuse("the operand is a scalar, expected rank 1 or more")
    axis = x.type.rank - 1
    largest = bool(s.attribute("largest", True))
    key = x
    if x.type.dtype == "bool":
        key = s.cast(x, "u8")
    elif x.type.dtype in FLOATS:
        key = ordinal(s, x)
    if k < 0 or k > fixed(x.type.shape[axis]):
        raise s.refuse(f"k is {k}, expected 0 to {x.type.shape[axis]} for {x.type}")
    _, where = s.g.add(TopK(axis, k, largest), [key]).results
    return [s.g(GatherElements(axis), x, where), s.cast(where, s.dtype(1))]
