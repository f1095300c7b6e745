"""How a register tile multiplies and adds: one number a lane, or a few neighbours at once.

Bytes are multiplied by fours and bf16 by twos: a 32-bit lane holds so many neighbours of the inner
dimension, of the left operand (u8, bf16) as of the weights (i8, bf16).  What a machine has no
instruction for is taken apart into what it has.  Sums of bytes are exact on all of them; those of
bf16 are rounded to f32 in an order that is the machine's own.

    u8 times i8       x86-64       AVX-512 VNNI, AVX-VNNI   vpdpbusd
                                   SSE2, AVX2, AVX-512BW    vpmaddwd, twice
                      AArch64      I8MM                     usdot
                                   DotProd                  sdot, of x - 128, and w times 128
                      all others                            a product of i32 for each byte
    bf16 times bf16   x86-64       AVX-512 BF16, if fast    vdpbf16ps
                      all others                            a product of f32 for each half
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from alpenglow.ir.target import Target
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import (
    Binary,
    Bitcast,
    Buffer,
    Const,
    Convert,
    Expr,
    Fma,
    Intrinsic,
    Load,
)
from alpenglow.loops.coord import is_number
from alpenglow.loops.dots import (
    Dot,
    multiplied,
    shifted,
    signed_bytes,
    single_bytes,
)
from alpenglow.ops.tensor.packing import DOTS

Parts = Callable[[Expr], list[Expr]]
Sum = Callable[[Expr, Expr, Expr], Expr]


@dataclass(frozen=True, slots=True)
class Products:
    """The kind of multiply-add of a tile.

    A lane of the operands holds `dots` neighbours.  `weights` and `factors` take vectors of such
    lanes apart into as many vectors as there are instructions, and `add(x, w, acc)` is one of them.
    """

    dtype: str
    """The element type of the sums."""
    dots: int
    count: int
    """Into how many vectors the operands are taken apart."""
    weights: Parts
    factors: Parts
    add: Sum
    common: int = 0
    """How many of the last factors are the same whatever is multiplied: a tile adds those once."""

    def turned(self) -> Products:
        """Return the same kind where what stands in lanes is the left operand."""
        return replace(
            self, weights=self.factors, factors=self.weights, common=0,
            add=lambda w, x, acc: self.add(x, w, acc),
        )  # fmt: skip

    def vector(self, w: Buffer, at: Expr, lanes: int) -> Expr:
        """Return `lanes` lanes of weights; a buffer of i32 holds them as such."""
        if self.dots == 1 or w.dtype == "i32":
            return Load(w, at, lanes)
        return Bitcast(Load(w, at, lanes * self.dots), "i32")

    def word(self, b: Builder, x: Buffer, at: Expr, across: int, used: int) -> Expr:
        """Return a lane of neighbours that stand `across` apart; those past `used` are 0."""
        if self.dots == 1:
            return Load(x, at)
        if is_number(across, 1) and used >= self.dots:
            return Bitcast(Load(x, at, self.dots), "i32")
        total: Expr = Const(0, "i32")
        bits = 32 // self.dots
        for i in range(min(used, self.dots)):
            one = Bitcast(Load(x, at + i * across), f"u{bits}")
            total = Binary("or", total, Binary("shl", Convert(one, "i32"), Const(i * bits, "i32")))
        return b.let(total)


def products(dtype: str, lanes: int, target: Target) -> Products:
    """Return how the target multiplies elements of `dtype` by weights, in vectors of `lanes`."""
    if dtype == "u8":
        return _bytes(lanes, target)
    if dtype == "bf16":
        return _shorts(lanes, target)

    def fused(x: Expr, w: Expr, acc: Expr) -> Expr:
        return multiply_add(x, w, acc, target)

    if dtype == "i32":
        return Products("i32", 1, 1, _whole, _whole, _times)
    return Products("f64" if dtype == "f64" else "f32", 1, 1, _whole, _whole, fused)


def dot(target: Target) -> Dot:
    """Return how the target adds products of bytes to sums, whatever their lanes."""

    def add(x: Expr, w: Expr, acc: Expr) -> Expr:
        kind = _bytes(acc.lanes, target)
        for factor, weight in zip(kind.factors(x), kind.weights(w), strict=True):
            acc = kind.add(factor, weight, acc)
        return acc

    return add


def multiply_add(x: Expr, y: Expr, z: Expr, target: Target) -> Expr:
    """Return x * y + z, rounded once where the machine does so at once.

    Processors of 32 bits have registers of f32 alone: there f64 is computed by functions.
    """
    fuses = target.facts.fuses and not (x.dtype == "f64" and target.architecture == "arm")
    return Fma(x, y, z) if fuses else Binary("add", Binary("mul", x, y), z)


def _times(x: Expr, w: Expr, acc: Expr) -> Expr:
    return Binary("add", acc, Binary("mul", x, w))


def _whole(x: Expr) -> list[Expr]:
    return [x]


# ── bytes ──


def _bytes(lanes: int, target: Target) -> Products:
    dots = DOTS["u8"]
    if _at_once(lanes, target, "avx512vnni", "avxvnni"):
        return Products("i32", dots, 1, _whole, _whole, _sum_of("vpdpbusd"))
    if target.architecture == "aarch64" and lanes == 4:
        if target.has("i8mm"):
            return Products("i32", dots, 1, _whole, _whole, _sum_of("usdot"))
        if target.has("dotprod"):
            return Products("i32", dots, 3, _thrice, _less_half, _sum_of("sdot"), 2)
    needed = {4: "sse2", 8: "avx2", 16: "avx512bw"}
    if target.architecture == "x86-64" and target.has(needed.get(lanes, "")):
        return Products("i32", dots, 2, _signed_pairs, _pairs, _sum_of("vpmaddwd"))
    return Products("i32", dots, dots, signed_bytes, single_bytes, multiplied)


def _at_once(lanes: int, target: Target, wide: str, narrow: str = "") -> bool:
    """Whether there is an instruction for vectors of so many lanes."""
    if target.has(wide):
        return lanes == 16 or (lanes in (4, 8) and target.has("avx512vl"))
    return bool(narrow) and target.has(narrow) and lanes in (4, 8)


def _sum_of(name: str) -> Sum:
    return lambda x, w, acc: Intrinsic(name, (acc, x, w))


def _thrice(w: Expr) -> list[Expr]:
    return [w, w, w]


def _less_half(x: Expr) -> list[Expr]:
    """Return bytes less 128, which have signs, and 128 in two halves, which have too."""
    below = Binary("xor", x, Const(_every(128), "i32", x.lanes))
    return [below, *[Const(_every(64), "i32", x.lanes)] * 2]


def _every(byte: int) -> int:
    """Return an i32 of four such bytes."""
    return int.from_bytes(bytes([byte] * 4), "little", signed=True)


def _signed_pairs(w: Expr) -> list[Expr]:
    """Return the even bytes of each lane as two i16, then the odd ones."""
    halves = Bitcast(w, "i16")
    eight = Const(8, "i16", halves.lanes)
    even = Binary("shr", Binary("shl", halves, eight), eight)
    return [Bitcast(even, "i32"), Bitcast(Binary("shr", halves, eight), "i32")]


def _pairs(x: Expr) -> list[Expr]:
    halves = Bitcast(x, "u16")
    even = Binary("and", halves, Const(255, "u16", halves.lanes))
    odd = Binary("shr", halves, Const(8, "u16", halves.lanes))
    return [Bitcast(even, "i32"), Bitcast(odd, "i32")]


# ── bf16 ──


def _shorts(lanes: int, target: Target) -> Products:
    dots = DOTS["bf16"]
    if _at_once(lanes, target, "avx512bf16") and "bf16" not in target.facts.slower:
        return Products("f32", dots, 1, _whole, _whole, _sum_of("vdpbf16ps"))

    def fused(x: Expr, w: Expr, acc: Expr) -> Expr:
        return multiply_add(x, w, acc, target)

    return Products("f32", dots, 2, _floats, _floats, fused)


def _floats(x: Expr) -> list[Expr]:
    """Return the lower bf16 of each lane as f32, then the upper one."""
    upper = Binary("and", x, Const(-65536, "i32", x.lanes))
    return [Bitcast(shifted("shl", x, 16), "f32"), Bitcast(upper, "f32")]
