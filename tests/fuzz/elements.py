"""Element types by the names that ONNX gives them, and arrays of random elements."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import helper

Array = NDArray[Any]
Shape = tuple[int, ...]

NARROW: dict[str, np.dtype[Any]] = {
    "float8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "float8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "float8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "float4e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "float6e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "float6e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "int4": np.dtype(ml_dtypes.int4), "uint4": np.dtype(ml_dtypes.uint4),
    "int2": np.dtype(ml_dtypes.int2), "uint2": np.dtype(ml_dtypes.uint2),
}  # fmt: skip

DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_), "int8": np.dtype(np.int8), "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32), "int64": np.dtype(np.int64), "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16), "uint32": np.dtype(np.uint32), "uint64": np.dtype(np.uint64),
    "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32), "double": np.dtype(np.float64),
    "complex64": np.dtype(np.complex64), "complex128": np.dtype(np.complex128), **NARROW,
}  # fmt: skip
"""Element types by the names that ONNX's schemas give them."""

FLOATS = ("float16", "bfloat16", "float", "double")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
ORDINARY = (*FLOATS, *INTS, "bool")
"""What operators compute with; the others are moved, stored and converted."""
COMMON = ("float", "float", "float", "double", "float16", "int64", "int32", "uint8", "bool")
"""What stands in models most often is tried most often."""

STYLES = (
    *["normal"] * 11, "round", "round", "round", "equal", "few", "few", "sorted", "wide", "ends",
    "tiny",
)  # fmt: skip
"""How elements are: most often ordinary numbers, some of them ties."""


def code(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(DTYPES[dtype]))


def name_of(dtype: np.dtype[Any]) -> str:
    return next(k for k, d in DTYPES.items() if d == dtype)


def limits(kind: np.dtype[Any]) -> Any:
    """Return the limits of an integer type, also of less than 8 bits."""
    return ml_dtypes.iinfo(kind)


def is_whole(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def elements(rng: np.random.Generator, dtype: str, shape: Shape, style: str) -> Array:
    """Return elements of moderate size, in one of the STYLES."""
    kind = DTYPES[dtype]
    if dtype == "bool":
        p = {"equal": float(rng.integers(2)), "few": 0.1}.get(style, 0.5)
        return np.asarray(rng.random(shape) < p)
    if dtype.startswith("complex"):
        return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)
    if is_whole(dtype):
        return _whole(rng, kind, shape, style)
    if dtype == "float8e8m0":
        return np.asarray(2.0 ** rng.integers(-3, 4, shape)).astype(kind)
    return _fractions(rng, shape, style).astype(kind)


def _whole(rng: np.random.Generator, kind: np.dtype[Any], shape: Shape, style: str) -> Array:
    ends = limits(kind)
    low, high = max(int(ends.min), -9), min(int(ends.max), 9)
    if style == "equal":
        return np.full(shape, rng.integers(low, high + 1)).astype(kind)
    if style == "few":
        return np.asarray(rng.choice(rng.integers(low, high + 1, 2), shape)).astype(kind)
    if style == "ends":
        flat = np.array([ends.min, ends.max, 0, 1, 2], object)[rng.integers(0, 5, shape)]
        return np.asarray(flat).astype(np.uint64 if ends.min == 0 else np.int64).astype(kind)
    whole = np.asarray(rng.integers(low, high + 1, shape)).astype(kind)
    return _sorted(whole) if style == "sorted" else whole


def _fractions(rng: np.random.Generator, shape: Shape, style: str) -> Array:
    plain = np.asarray(rng.standard_normal(shape))
    if style == "round":
        return np.round(plain * 2)
    if style == "equal":
        return np.full(shape, np.round(rng.standard_normal() * 4) / 4)
    if style == "few":
        return np.asarray(rng.choice(np.round(rng.standard_normal(3) * 4) / 4, shape))
    if style == "sorted":
        return _sorted(plain)
    if style == "wide":
        return plain * 10.0 ** rng.uniform(-3, 1.5, shape)
    if style == "ends":
        return np.asarray(rng.choice([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-5, 30.0], shape))
    return plain * 1e-4 if style == "tiny" else plain


def _sorted(array: Array) -> Array:
    return np.sort(array, axis=-1) if array.ndim else array
