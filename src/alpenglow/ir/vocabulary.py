"""The scalar vocabulary: the functions that formulas of elementwise operators are written in.

A formula is called with NumPy arrays and `NUMPY`, or with kernel expressions and the kernel
language's implementation of `Math`.  The meaning given here is the law for every renderer:
`maximum` and `minimum` propagate NaN, integer division truncates towards zero, integer
arithmetic wraps, `round` goes to even.  Python numbers take the type of the other operand.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from alpenglow.ir.types import DTYPES, FLOATS, INTS, NAMES, NARROW


class Math(Protocol):
    """What a formula may use.  `Any` is an array, a kernel expression, or a Python number."""

    def add(self, x: Any, y: Any) -> Any: ...
    def sub(self, x: Any, y: Any) -> Any: ...
    def mul(self, x: Any, y: Any) -> Any: ...
    def div(self, x: Any, y: Any) -> Any: ...
    def mod(self, x: Any, y: Any) -> Any: ...  # sign of the divisor
    def fmod(self, x: Any, y: Any) -> Any: ...  # sign of the dividend
    def pow(self, x: Any, y: Any) -> Any: ...
    def neg(self, x: Any) -> Any: ...
    def abs(self, x: Any) -> Any: ...
    def sign(self, x: Any) -> Any: ...
    def minimum(self, x: Any, y: Any) -> Any: ...
    def maximum(self, x: Any, y: Any) -> Any: ...
    def sqrt(self, x: Any) -> Any: ...
    def exp(self, x: Any) -> Any: ...
    def log(self, x: Any) -> Any: ...
    def sin(self, x: Any) -> Any: ...
    def cos(self, x: Any) -> Any: ...
    def tan(self, x: Any) -> Any: ...
    def asin(self, x: Any) -> Any: ...
    def acos(self, x: Any) -> Any: ...
    def atan(self, x: Any) -> Any: ...
    def sinh(self, x: Any) -> Any: ...
    def cosh(self, x: Any) -> Any: ...
    def tanh(self, x: Any) -> Any: ...
    def asinh(self, x: Any) -> Any: ...
    def acosh(self, x: Any) -> Any: ...
    def atanh(self, x: Any) -> Any: ...
    def erf(self, x: Any) -> Any: ...
    def floor(self, x: Any) -> Any: ...
    def ceil(self, x: Any) -> Any: ...
    def round(self, x: Any) -> Any: ...
    def isnan(self, x: Any) -> Any: ...
    def isinf(self, x: Any) -> Any: ...
    def bit_and(self, x: Any, y: Any) -> Any: ...  # logical on bool
    def bit_or(self, x: Any, y: Any) -> Any: ...
    def bit_xor(self, x: Any, y: Any) -> Any: ...
    def bit_not(self, x: Any) -> Any: ...
    def shift_left(self, x: Any, y: Any) -> Any: ...  # 0 where y is the width or more
    def shift_right(self, x: Any, y: Any) -> Any: ...
    def eq(self, x: Any, y: Any) -> Any: ...
    def ne(self, x: Any, y: Any) -> Any: ...
    def lt(self, x: Any, y: Any) -> Any: ...
    def le(self, x: Any, y: Any) -> Any: ...
    def gt(self, x: Any, y: Any) -> Any: ...
    def ge(self, x: Any, y: Any) -> Any: ...
    def where(self, condition: Any, x: Any, y: Any) -> Any: ...
    def cast(self, x: Any, dtype: str) -> Any: ...  # float to int truncates
    def bits(self, x: Any, dtype: str) -> Any: ...  # x's bits as another type of its width


class NumpyMath:
    """The vocabulary on NumPy arrays."""

    add = staticmethod(np.add)
    sub = staticmethod(np.subtract)
    mul = staticmethod(np.multiply)
    neg = staticmethod(np.negative)
    abs = staticmethod(np.abs)
    minimum = staticmethod(np.minimum)
    maximum = staticmethod(np.maximum)
    sqrt = staticmethod(np.sqrt)
    exp = staticmethod(np.exp)
    log = staticmethod(np.log)
    sin = staticmethod(np.sin)
    cos = staticmethod(np.cos)
    tan = staticmethod(np.tan)
    asin = staticmethod(np.arcsin)
    acos = staticmethod(np.arccos)
    atan = staticmethod(np.arctan)
    sinh = staticmethod(np.sinh)
    cosh = staticmethod(np.cosh)
    tanh = staticmethod(np.tanh)
    asinh = staticmethod(np.arcsinh)
    acosh = staticmethod(np.arccosh)
    atanh = staticmethod(np.arctanh)
    floor = staticmethod(np.floor)
    ceil = staticmethod(np.ceil)
    round = staticmethod(np.rint)
    isnan = staticmethod(np.isnan)
    isinf = staticmethod(np.isinf)
    bit_and = staticmethod(np.bitwise_and)
    bit_or = staticmethod(np.bitwise_or)
    bit_xor = staticmethod(np.bitwise_xor)
    bit_not = staticmethod(np.invert)
    eq = staticmethod(np.equal)
    ne = staticmethod(np.not_equal)
    lt = staticmethod(np.less)
    le = staticmethod(np.less_equal)
    gt = staticmethod(np.greater)
    ge = staticmethod(np.greater_equal)
    where = staticmethod(np.where)
    shift_left = staticmethod(np.left_shift)
    shift_right = staticmethod(np.right_shift)
    sign = staticmethod(np.sign)
    mod = staticmethod(np.remainder)
    fmod = staticmethod(np.fmod)

    def div(self, x: Any, y: Any) -> Any:
        # Python's numbers are not made arrays before: those would have types of their own.
        if np.result_type(x, y).kind not in "iu":
            return np.divide(x, y)
        x, y = np.asarray(x), np.asarray(y)
        # Truncation: the remainder with the dividend's sign divides out exactly.  x / 0 is 0.
        quotient = np.floor_divide(x - np.fmod(x, y), y)
        return np.where(y == 0, np.zeros_like(quotient), quotient)

    def pow(self, x: Any, y: Any) -> Any:
        kind = np.asarray(x).dtype
        if kind.kind in "iu":
            return _integer_power(np.asarray(x), np.asarray(y))
        return np.power(x, np.asarray(y).astype(kind))

    def erf(self, x: Any) -> Any:
        return _ERF(x).astype(np.asarray(x).dtype)

    def cast(self, x: Any, dtype: str) -> Any:
        x = np.asarray(x)
        if NAMES[x.dtype] in NARROW and dtype in NARROW:
            x = x.astype(np.float32)  # for NumPy knows no way from each to each
        if NAMES[x.dtype] in FLOATS and dtype in INTS:
            return truncated(x.astype(np.float64), DTYPES[dtype])
        return x.astype(DTYPES[dtype])

    def bits(self, x: Any, dtype: str) -> Any:
        return np.asarray(x).view(DTYPES[dtype])


def truncated(x: Any, dtype: np.dtype[Any]) -> Any:
    """Return f64 as integers, by truncation to i64 (for i64, u32 and u64) or else i32.

    What does not fit there, NaN too, gives the least integer; a narrower integer then wraps.
    NumPy leaves all this to the machine.
    """
    if dtype == np.uint64:
        high = x >= 2.0**63
        low = truncated(np.where(high, x - 2.0**63, x), np.dtype(np.int64)).view(np.uint64)
        return low ^ np.where(high, np.uint64(1 << 63), np.uint64(0))
    through = np.int64 if dtype in (np.int64, np.uint32) else np.int32
    least = np.iinfo(through).min
    fits = np.abs(x) < -float(least)
    return np.where(fits, np.where(fits, x, 0).astype(through), least).astype(dtype)


def _integer_power(x: Any, y: Any) -> Any:
    """Raise integers to integers by squaring, wrapping; a negative exponent truncates."""
    result, base, rest = np.ones_like(x + y, dtype=x.dtype), x, np.maximum(y, 0).astype(np.uint64)
    while np.any(rest):
        result = np.where(rest & np.uint64(1), result * base, result)
        base, rest = base * base, rest >> np.uint64(1)
    unit = np.where(x == 1, 1, np.where(x == -1, np.where(y & 1, -1, 1), 0)).astype(x.dtype)
    return np.where(y < 0, unit, result)


_ERF = np.vectorize(math.erf, otypes=[np.float64])
NUMPY: Math = NumpyMath()
