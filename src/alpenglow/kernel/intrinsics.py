"""Machine operations: what each means, and how each is spelled, in one place.

A function on NumPy's lanes is the operation: the evaluator calls it.  Beside it stand the formula
that says the same in ordinary expressions, for targets that lack it (`kernel.legalise`), and its
spellings: the function of LLVM, and one of C that computes a lane.  All operands have the same
number of lanes, and the first says the type of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from alpenglow.ir.types import Array
from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.expr import Bitcast, Blend, Expr, Shuffle, Splat

Formula = Callable[..., Expr]
Part = Callable[[Arithmetic, Expr, int, int], Expr]


@dataclass(frozen=True, slots=True)
class Spelling:
    """The functions of LLVM by the bits of a vector, and the elements that its vectors hold.

    `constants` follow the operands.  If it `adds`, the first operand of the operation is none of
    the function's, but is added to its result.
    """

    functions: Mapping[int, str]
    operands: tuple[str, ...]
    result: str
    constants: str = ""
    adds: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """A machine operation on operands of i32, but for the first, which is of its result's type.

    It is `together` if its lanes are not each for itself.  `c` is empty where C has nothing better
    than the formula.
    """

    meaning: Callable[..., Array]
    formula: Formula
    llvm: Spelling
    result: str = "i32"
    c: str = ""
    together: bool = False


INTRINSICS: dict[str, Instruction] = {}


def instruction(
    formula: Formula, llvm: Spelling, result: str = "i32", c: str = "", together: bool = False
) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Register the decorated function as the meaning of the operation of its name."""

    def add(meaning: Callable[..., Array]) -> Callable[..., Array]:
        INTRINSICS[meaning.__name__] = Instruction(meaning, formula, llvm, result, c, together)
        return meaning

    return add


# ── formulas ──


def _unsigned(m: Arithmetic, x: Expr, bits: int, part: int) -> Expr:
    """Return a part of so many bits of each i32, taken as unsigned."""
    return m.bit_and(m.shift_right(x, bits * part), (1 << bits) - 1)


def _signed(m: Arithmetic, x: Expr, bits: int, part: int) -> Expr:
    """Return a part of so many bits of each i32, taken as signed."""
    return m.shift_right(m.shift_left(x, 32 - bits * (part + 1)), 32 - bits)


def _dot(bits: int, first: Part, second: Part) -> Callable[..., Expr]:
    """Return what adds the products of all parts of two i32."""

    def dot(m: Arithmetic, acc: Expr, a: Expr, b: Expr) -> Expr:
        for i in range(32 // bits):
            acc = m.add(acc, m.mul(first(m, a, bits, i), second(m, b, bits, i)))
        return acc

    return dot


def _vdpbf16ps_formula(m: Arithmetic, acc: Expr, a: Expr, b: Expr) -> Expr:
    above = [m.bits(m.bit_and(x, -(1 << 16)), "f32") for x in (a, b)]
    below = [m.bits(m.shift_left(x, 16), "f32") for x in (a, b)]
    return m.add(m.add(acc, m.mul(*above)), m.mul(*below))


def _vpermps_formula(m: Arithmetic, table: Expr, index: Expr) -> Expr:
    if table.lanes == 1:
        return table
    numbers = [m.b.let(Splat(Shuffle(table, (i,)), table.lanes)) for i in range(table.lanes)]
    return chosen(m, index, numbers)


def _vcvtps2dq_formula(m: Arithmetic, x: Expr) -> Expr:
    return m.cast(m.round(m.bits(x, "f32")), "i32")


def _vpackssdw_formula(m: Arithmetic, a: Expr, b: Expr) -> Expr:
    return _packed(m, [a, b], "i16", -(1 << 15), (1 << 15) - 1)


def _vpackuswb_formula(m: Arithmetic, a: Expr, b: Expr) -> Expr:
    return _packed(m, [Bitcast(x, "i16") for x in (a, b)], "u8", 0, 255)


def _packed(m: Arithmetic, operands: list[Expr], dtype: str, low: int, high: int) -> Expr:
    """Return two operands limited and narrowed, by turns 16 bytes of each before that."""
    x, y = (m.cast(m.minimum(m.maximum(v, low), high), dtype) for v in operands)
    turn = 4 if dtype == "i16" else 8
    order = [
        lane + first
        for begin in range(0, x.lanes, turn)
        for first in (0, x.lanes)
        for lane in range(begin, begin + turn)
    ]
    return m.bits(Blend(x, y, tuple(order)), "i32")


def chosen(m: Arithmetic, at: Expr, numbers: Sequence[Expr]) -> Expr:
    """Return the one of `numbers`, a power of two of them, whose place the lowest bits say."""
    bit = 1
    while len(numbers) > 1:
        odd = m.ne(m.bit_and(at, bit), 0)
        numbers = [m.where(odd, y, x) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
        bit *= 2
    return numbers[0]


# ── operations ──


@instruction(
    _dot(8, _unsigned, _signed),
    Spelling(
        {n: f"llvm.x86.avx512.vpdpbusd.{n}" for n in (128, 256, 512)}, ("i32", "i8", "i8"), "i32"
    ),
    c="""\
/* acc plus 4 products of a u8 and an s8. */
INLINE int32_t vpdpbusd(int32_t acc, int32_t a, int32_t b) {
  uint32_t sum = (uint32_t)acc;
  for (int i = 0; i < 32; i += 8) {
    const int32_t product = (int32_t)((uint32_t)a >> i & 255) * (int8_t)((uint32_t)b >> i & 255);
    sum += (uint32_t)product;
  }
  return (int32_t)sum;
}
""",
)
def vpdpbusd(acc: Array, a: Array, b: Array) -> Array:
    """acc + the sum of 4 products; a holds 4 u8 a lane, b 4 s8, lowest byte first; i32 wraps.

    acc: i32xN, a: i32xN, b: i32xN.  AVX-512 VNNI, AVX-VNNI.
    """
    x = np.atleast_1d(a).view(np.uint8).astype(np.int32)
    y = np.atleast_1d(b).view(np.int8).astype(np.int32)
    total: Array = acc + (x * y).reshape(-1, 4).sum(1, dtype=np.int32)
    return total.reshape(np.shape(acc))


@instruction(
    _dot(8, _unsigned, _signed),
    Spelling({128: "llvm.aarch64.neon.usdot.v4i32.v16i8"}, ("i32", "i8", "i8"), "i32"),
    c="""\
INLINE int32_t usdot(int32_t acc, int32_t a, int32_t b) { return vpdpbusd(acc, a, b); }
""",
)
def usdot(acc: Array, a: Array, b: Array) -> Array:
    """acc + the sum of 4 products; a holds 4 u8 a lane, b 4 s8, lowest byte first; i32 wraps.

    acc: i32x4, a: i32x4, b: i32x4.  AArch64 I8MM; what `vpdpbusd` is on x86.
    """
    return vpdpbusd(acc, a, b)


@instruction(
    _dot(8, _signed, _signed),
    Spelling({128: "llvm.aarch64.neon.sdot.v4i32.v16i8"}, ("i32", "i8", "i8"), "i32"),
    c="""\
/* acc plus 4 products of s8. */
INLINE int32_t sdot(int32_t acc, int32_t a, int32_t b) {
  uint32_t sum = (uint32_t)acc;
  for (int i = 0; i < 32; i += 8) {
    const int32_t x = (int8_t)((uint32_t)a >> i & 255), y = (int8_t)((uint32_t)b >> i & 255);
    sum += (uint32_t)(x * y);
  }
  return (int32_t)sum;
}
""",
)
def sdot(acc: Array, a: Array, b: Array) -> Array:
    """acc + the sum of 4 products of s8, lowest byte first; i32 wraps.

    acc: i32x4, a: i32x4, b: i32x4, each holding 4 s8 a lane.  AArch64 DotProd.
    """
    x = np.atleast_1d(a).view(np.int8).astype(np.int32)
    y = np.atleast_1d(b).view(np.int8).astype(np.int32)
    total: Array = acc + (x * y).reshape(-1, 4).sum(1, dtype=np.int32)
    return total.reshape(np.shape(acc))


@instruction(
    _dot(16, _signed, _signed),
    Spelling(
        {
            128: "llvm.x86.sse2.pmadd.wd",
            256: "llvm.x86.avx2.pmadd.wd",
            512: "llvm.x86.avx512.pmaddw.d.512",
        },
        ("i16", "i16"),
        "i32",
        adds=True,
    ),
    c="""\
/* acc plus 2 products of i16. */
INLINE int32_t vpmaddwd(int32_t acc, int32_t a, int32_t b) {
  uint32_t sum = (uint32_t)acc;
  for (int i = 0; i < 32; i += 16) {
    const int32_t x = (int16_t)((uint32_t)a >> i & 65535), y = (int16_t)((uint32_t)b >> i & 65535);
    sum += (uint32_t)(x * y);
  }
  return (int32_t)sum;
}
""",
)
def vpmaddwd(acc: Array, a: Array, b: Array) -> Array:
    """acc + the sum of 2 products of i16; i32 wraps.

    acc: i32xN, a: i32xN, b: i32xN, each holding 2 i16 a lane.  SSE2, AVX2, AVX-512BW; then an add.
    """
    x = np.atleast_1d(a).view(np.int16).astype(np.int32)
    y = np.atleast_1d(b).view(np.int16).astype(np.int32)
    total: Array = acc + (x * y).reshape(-1, 2).sum(1, dtype=np.int32)
    return total.reshape(np.shape(acc))


@instruction(
    _vdpbf16ps_formula,
    Spelling(
        {n: f"llvm.x86.avx512bf16.dpbf16ps.{n}" for n in (128, 256, 512)},
        ("float", "bfloat", "bfloat"),
        "float",
    ),
    result="f32",
    c="""\
/* acc plus 2 products of bf16, the upper halves first. */
INLINE float vdpbf16ps(float acc, int32_t a, int32_t b) {
  const uint32_t mask = 0xffff0000u;
  const float upper = f32_of_bits((uint32_t)a & mask) * f32_of_bits((uint32_t)b & mask);
  const float lower = f32_of_bits((uint32_t)a << 16) * f32_of_bits((uint32_t)b << 16);
  return (acc + upper) + lower;
}
""",
)
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


@instruction(
    _vpermps_formula,
    Spelling(
        {256: "llvm.x86.avx2.permps", 512: "llvm.x86.avx512.permvar.sf.512"},
        ("float", "i32"),
        "float",
    ),
    result="f32",
    together=True,
)
def vpermps(table: Array, index: Array) -> Array:
    """The lane of the table that each index says, of which only the lowest bits count.

    table: f32xN, index: i32xN; 8 lanes with AVX2, 16 with AVX-512.
    """
    lanes: Array = np.atleast_1d(table)[np.atleast_1d(index) % np.size(table)]
    return lanes.reshape(np.shape(table))


@instruction(
    _vcvtps2dq_formula,
    Spelling(
        {512: "llvm.x86.avx512.mask.cvtps2dq.512"},
        ("float",),
        "i32",
        "<16 x i32> zeroinitializer, i16 -1, i32 4",
    ),
)
def vcvtps2dq(x: Array) -> Array:
    """Floats as integers, halves to even; what no i32 holds, NaN too, is the least one.

    x: i32x16, each lane the bits of an f32.  AVX-512.
    """
    steps = np.rint(np.asarray(x).view(np.float32))
    fits = np.abs(steps) < 2.0**31
    return np.where(fits, np.where(fits, steps, 0).astype(np.int32), np.int32(-(2**31)))


@instruction(
    _vpackssdw_formula,
    Spelling({512: "llvm.x86.avx512.packssdw.512"}, ("i32", "i32"), "i16"),
    together=True,
)
def vpackssdw(a: Array, b: Array) -> Array:
    """The lanes of a and b as i16, limited to what those hold, by turns 4 of a and 4 of b.

    a: i32x16, b: i32x16; the result holds 2 i16 a lane.  AVX-512BW.
    """
    limits = np.iinfo(np.int16)
    return _by_turns(a, b, np.dtype(np.int16), limits.min, limits.max)


@instruction(
    _vpackuswb_formula,
    Spelling({512: "llvm.x86.avx512.packuswb.512"}, ("i16", "i16"), "i8"),
    together=True,
)
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
