"""What the operations of the kernel language mean on NumPy scalars and arrays of lanes.

Each function keeps the element type of its operands.  Warnings about overflow and the like are
the caller's to silence (`np.errstate`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from alpenglow.ir.vocabulary import truncated

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_SHORT = (np.dtype(np.float16), BFLOAT16)


def convert(x: Any, dtype: np.dtype[Any]) -> Any:
    """Return x as `dtype`, rounded to nearest even; the short floats go through f32.

    A float becomes an integer by truncation to i64 (if that, u32 or u64 is wanted) or else i32;
    what does not fit there, NaN too, gives the least integer.  A narrower integer then wraps.
    """
    x = np.asarray(x)
    if dtype.kind == "b":
        return (x != 0)[()]
    if _is_float(x.dtype) and dtype.kind in "iu":
        return truncated(x.astype(np.float64), dtype)[()]
    if dtype in _SHORT:
        x = x.astype(np.float32)
    return x.astype(dtype)[()]


def fma(x: Any, y: Any, z: Any) -> Any:
    """Return x * y + z, rounded once."""
    if not _is_float(x.dtype):
        return x * y + z
    if x.dtype == np.float64:
        exact = np.frompyfunc(_exact_fma, 3, 1)
        return np.asarray(exact(x, y, z), np.float64)[()]
    a, b, c = (np.asarray(v, np.float64) for v in (x, y, z))
    # The product of two narrower floats is exact in f64; the sum is rounded to odd there, so
    # that rounding it once more is the same as rounding the exact sum.
    product = a * b
    total = product + c
    part = total - product
    lost = (product - (total - part)) + (c - part)
    return _narrow(_to_odd(total, lost), x.dtype)[()]


def _exact_fma(x: float, y: float, z: float) -> float:
    nearly = float(np.float64(x) * y + z)
    if not np.isfinite([x, y, z]).all():
        return nearly
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return nearly  # which knows the sign of this zero
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def _narrow(x: Any, dtype: np.dtype[Any]) -> Any:
    """Round f64 to `dtype` once, also where NumPy would go through f32."""
    if dtype != BFLOAT16:
        return x.astype(dtype)
    single = x.astype(np.float32)
    return _to_odd(single, np.where(np.isfinite(single), x - single, 0)).astype(dtype)


def _to_odd(x: Any, lost: Any) -> Any:
    """Where `lost` says that x was rounded, and to even, return x's neighbour on the true side."""
    bits = x.view(np.int64 if x.dtype == np.float64 else np.int32)
    moved = np.isfinite(x) & (np.nan_to_num(lost) != 0) & (bits & 1 == 0)
    return np.where(moved, np.nextafter(x, np.copysign(np.inf, lost).astype(x.dtype)), x)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype == BFLOAT16


def _divide(x: Any, y: Any) -> Any:
    return x / y if _is_float(x.dtype) else (x - _remainder(x, y)) // y


def _remainder(x: Any, y: Any) -> Any:
    if not _is_float(x.dtype) and not np.all(y):
        raise ZeroDivisionError("an integer is divided by 0, expected another divisor")
    return np.fmod(x, y)


def _shift_left(x: Any, y: Any) -> Any:
    return operator.lshift(x, _checked_shift(x, y))


def _shift_right(x: Any, y: Any) -> Any:
    return operator.rshift(x, _checked_shift(x, y))


def _checked_shift(x: Any, y: Any) -> Any:
    width = 8 * x.dtype.itemsize
    assert np.all((y >= 0) & (y < width)), f"{x.dtype} is shifted by {y}"
    return y


Function = Callable[..., Any]

BINARY_MEANING: dict[str, Function] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _divide,
    "rem": _remainder,
    "min": np.minimum,
    "max": np.maximum,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": _shift_left,
    "shr": _shift_right,
    "pow": np.power,
}
COMPARE_MEANING: dict[str, Function] = {
    op: getattr(operator, op) for op in ("eq", "ne", "lt", "le", "gt", "ge")
}
_SAME_NAME = (
    "sqrt", "floor", "ceil", "trunc", "exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh",
)  # fmt: skip
UNARY_MEANING: dict[str, Function] = {
    "neg": np.negative,
    "abs": np.absolute,
    "not": np.invert,
    "round": np.rint,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
} | {op: getattr(np, op) for op in _SAME_NAME}
