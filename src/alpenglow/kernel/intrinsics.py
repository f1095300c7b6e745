"""Machine operations and what they mean: each is a NumPy function on the lanes of its operands.

A renderer emits the machine's instruction where the target has it.  Everywhere else, and in
tests, the function below is the operation.  All operands have the same number of lanes, and the
first says the type of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from alpenglow.ir.types import Array


def vpdpbusd(acc: Array, a: Array, b: Array) -> Array:
    """acc + the sum of 4 products; a holds 4 u8 a lane, b 4 s8, lowest byte first; i32 wraps.

    acc: i32xN, a: i32xN, b: i32xN.  AVX-512 VNNI, AVX-VNNI.
    """
    x = np.atleast_1d(a).view(np.uint8).astype(np.int32)
    y = np.atleast_1d(b).view(np.int8).astype(np.int32)
    total: Array = acc + (x * y).reshape(-1, 4).sum(1, dtype=np.int32)
    return total.reshape(np.shape(acc))


def usdot(acc: Array, a: Array, b: Array) -> Array:
    """acc + the sum of 4 products; a holds 4 u8 a lane, b 4 s8, lowest byte first; i32 wraps.

    acc: i32x4, a: i32x4, b: i32x4.  AArch64 I8MM; what `vpdpbusd` is on x86.
    """
    return vpdpbusd(acc, a, b)


def sdot(acc: Array, a: Array, b: Array) -> Array:
    """acc + the sum of 4 products of s8, lowest byte first; i32 wraps.

    acc: i32x4, a: i32x4, b: i32x4, each holding 4 s8 a lane.  AArch64 DotProd.
    """
    x = np.atleast_1d(a).view(np.int8).astype(np.int32)
    y = np.atleast_1d(b).view(np.int8).astype(np.int32)
    total: Array = acc + (x * y).reshape(-1, 4).sum(1, dtype=np.int32)
    return total.reshape(np.shape(acc))


def vpmaddwd(acc: Array, a: Array, b: Array) -> Array:
    """acc + the sum of 2 products of i16; i32 wraps.

    acc: i32xN, a: i32xN, b: i32xN, each holding 2 i16 a lane.  SSE2, AVX2, AVX-512BW; then an add.
    """
    x = np.atleast_1d(a).view(np.int16).astype(np.int32)
    y = np.atleast_1d(b).view(np.int16).astype(np.int32)
    total: Array = acc + (x * y).reshape(-1, 2).sum(1, dtype=np.int32)
    return total.reshape(np.shape(acc))


def vdpbf16ps(acc: Array, a: Array, b: Array) -> Array:
    """acc + 2 products of bf16; the upper halves first, each sum rounded to f32.

    acc: f32xN, a: i32xN, b: i32xN, each holding 2 bf16 a lane.  AVX-512 BF16; the machine takes
    subnormal numbers for 0.
    """
    x = np.atleast_1d(a).view(ml_dtypes.bfloat16).astype(np.float32)
    y = np.atleast_1d(b).view(ml_dtypes.bfloat16).astype(np.float32)
    products = (x * y).reshape(-1, 2)
    total: Array = acc + products[:, 1] + products[:, 0]
    return total.reshape(np.shape(acc))


def vpermps(table: Array, index: Array) -> Array:
    """The lane of the table that each index says, of which only the lowest bits count.

    table: f32xN, index: i32xN; 8 lanes with AVX2, 16 with AVX-512.
    """
    found: Array = np.atleast_1d(table)[np.atleast_1d(index) % np.size(table)]
    return found.reshape(np.shape(table))


def vcvtps2dq(x: Array) -> Array:
    """Floats as integers, halves to even; what no i32 holds, NaN too, is the least one.

    x: i32x16, each lane the bits of an f32.  AVX-512.
    """
    steps = np.rint(np.asarray(x).view(np.float32))
    fits = np.abs(steps) < 2.0**31
    return np.where(fits, np.where(fits, steps, 0).astype(np.int32), np.int32(-(2**31)))


def vpackssdw(a: Array, b: Array) -> Array:
    """The lanes of a and b as i16, limited to what those hold, by turns 4 of a and 4 of b.

    a: i32x16, b: i32x16; the result holds 2 i16 a lane.  AVX-512BW.
    """
    limits = np.iinfo(np.int16)
    return _by_turns(a, b, np.dtype(np.int16), limits.min, limits.max)


def vpackuswb(a: Array, b: Array) -> Array:
    """The halves of lanes of a and b as u8, limited to what those hold, by turns 8 of each.

    a: i32x16, b: i32x16, each holding 2 i16 a lane; the result holds 4 u8 a lane.  AVX-512BW.
    """
    return _by_turns(a.view(np.int16), b.view(np.int16), np.dtype(np.uint8), 0, 255)


def _by_turns(a: Array, b: Array, narrow: np.dtype[Any], low: int, high: int) -> Array:
    """Return the elements of a and b narrowed, by turns 16 bytes of each before that."""
    count = 16 // a.itemsize
    both = np.stack([a.reshape(-1, count), b.reshape(-1, count)], 1)
    packed: Array = np.clip(both, low, high).astype(narrow).reshape(-1).view(np.int32)
    return packed


INTRINSICS: dict[str, Callable[..., Array]] = {
    f.__name__: f
    for f in (
        vpdpbusd,
        usdot,
        sdot,
        vpmaddwd,
        vdpbf16ps,
        vpermps,
        vcvtps2dq,
        vpackssdw,
        vpackuswb,
    )
}
