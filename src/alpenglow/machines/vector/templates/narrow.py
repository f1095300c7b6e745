"""Sums requantized and stored: four vectors of them become one of bytes.

One vector after the other takes a comparison with each bound, and an instruction of two steps that
narrows 16 numbers.  Four at once are narrowed by packing, which limits them for nothing: to i16,
then to u8.  Packing goes by quarters of registers, so words are put in order at last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Binary, Bitcast, Const, Expr, Intrinsic, Shuffle, Splat
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.instruction import Frame

LANES = 16
ROWS = 4
"""Vectors of i32 whose bytes fill one register."""

ORDER = tuple(ROWS * (i % 4) + i // 4 for i in range(LANES))
"""Where each word of bytes comes from: packed, those of four rows stand by turns."""

Place = Callable[[Coord], list[Coord]]


def packs_rows(k: Frame, target: Target, rows: int) -> bool:
    """Whether `store_packed` stores the results of so many rows, which follow each other."""
    op = k.requantized()
    if op is None or not op.fits or op.dtype != "u8" or rows < ROWS:
        return False
    dense = k.out.region.strides[-2:] == (LANES, 1)
    return dense and k.loops.lanes == LANES and target.has("avx512bw")


def store_packed(k: Frame, sums: Sequence[Expr], at: Place) -> None:
    """Requantize and store vectors of sums, one a row; row r belongs to the coordinates at(r).

    The last rows may be stored twice.
    """
    op = k.requantized()
    assert op is not None, "a requantization follows the sums"
    b, rows = k.b, list[Expr]()
    for r, total in enumerate(sums):
        product, zero = k.before_rounding(total, at(coord(r)))
        steps = b.let(Intrinsic("vcvtps2dq", (Bitcast(product, "i32"),)))
        offset = zero if zero.lanes == LANES else Splat(zero, LANES)
        rows.append(b.let(Binary("add", steps, offset)))
        if r % ROWS != ROWS - 1 and r != len(sums) - 1:
            continue
        pairs = [b.let(Intrinsic("vpackssdw", (rows[i], rows[i + 1]))) for i in (r - 3, r - 1)]
        words = b.let(Intrinsic("vpackuswb", (pairs[0], pairs[1])))
        bytes_: Expr = Bitcast(Shuffle(words, ORDER), "u8")
        for bound, limit, beyond in (("max", op.low, 0), ("min", op.high, 255)):
            if limit != beyond:
                bytes_ = Binary(bound, bytes_, Const(limit, "u8", bytes_.lanes))
        first = k.out.address(at(coord(r - 3)))
        b.store(k.out.buffer, first.base, b.let(bytes_))
