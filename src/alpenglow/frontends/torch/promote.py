"""Which element type operands of several share (PyTorch's type promotion).

Tensors with axes decide; a tensor without axes counts if its kind (bool, integer, float, complex)
is above theirs, and a number of Python's if its kind is above that of all tensors.
https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.dims import Sym
from alpenglow.ir.graph import Value
from alpenglow.ir.types import COMPLEX, DTYPES, FLOATS, HALVES, INTS, NAMES

Number = bool | int | float | complex | Sym


def kind(dtype: str) -> int:
    """Return 0 for bool, 1 for integers, 2 for floats, 3 for complex numbers."""
    return 0 if dtype == "bool" else 1 if dtype in INTS else 2 if dtype in FLOATS else 3


def kind_of(number: Number) -> int:
    """Return the kind of a number of Python's."""
    if isinstance(number, bool):
        return 0
    return 1 if isinstance(number, int | Sym) else 2 if isinstance(number, float) else 3


def wider(a: str, b: str) -> str:
    """Return the element type that two tensors with axes share."""
    if a == b or kind(a) > kind(b):
        return _with_parts(a, b)
    if kind(b) > kind(a):
        return _with_parts(b, a)
    if {a, b} <= HALVES:
        return "f32"
    if {a, b} <= FLOATS and {a, b} & HALVES:
        return a if b in HALVES else b
    return NAMES[np.promote_types(DTYPES[a], DTYPES[b])]


def _with_parts(high: str, low: str) -> str:
    return "c128" if high in COMPLEX and low == "f64" else high


def shared(operands: Sequence[Value | Number]) -> str:
    """Return the element type that operands are computed in."""
    tensors = [x.type for x in operands if isinstance(x, Value)]
    wide = [t.dtype for t in tensors if t.rank]
    single = [t.dtype for t in tensors if not t.rank]
    dtype = reduce(wider, wide) if wide else ""
    if single:
        other = reduce(wider, single)
        if not dtype or kind(other) > kind(dtype):
            dtype = _floats_of(other, dtype) if dtype else other
    most = max((kind_of(x) for x in operands if not isinstance(x, Value)), default=-1)
    if not dtype:
        return ("bool", "i64", "f32", "c64")[most]
    if most <= kind(dtype):
        return dtype
    if most == 3:
        return _floats_of("c64", dtype)
    return "i64" if most == 1 else "f32"


def _floats_of(high: str, low: str) -> str:
    """Return a type of the kind of `high` for `low`, the type of tensors with axes.

    Floats say how wide the parts of complex numbers are.
    """
    if low == "f16":
        raise UnsupportedError("dtype complex32 is not supported, expected complex64 or complex128")
    if low not in FLOATS or high not in COMPLEX:
        return high
    return "c128" if low == "f64" else "c64"
