"""Machine operations and what they mean: each is a NumPy function on the lanes of its operands.

A renderer emits the machine's instruction where the target has it.  Everywhere else, and in
tests, the function below is the operation.  All operands have the same number of lanes, and the
first says the type of the result.
"""

from __future__ import annotations

from collections.abc import Callable

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


INTRINSICS: dict[str, Callable[..., Array]] = {
    f.__name__: f for f in (vpdpbusd, usdot, sdot, vpmaddwd, vdpbf16ps, vpermps)
}
