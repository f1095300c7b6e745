"""The loop form of reading elements as another type of the same width."""

from __future__ import annotations

from alpenglow.ir.types import HALVES
from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Source, pull
from alpenglow.ops.elementwise.select import BitCast


@pull(BitCast)
def bit_cast(k: Loops, op: BitCast, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    value = x(at)
    # Halves are f32 here; going back to what was loaded is exact.
    value = k.narrowed(value, x.type.dtype) if x.type.dtype in HALVES else value
    same = value if x.type.dtype == op.dtype else k.m.bits(value, op.dtype)
    return k.widened(same) if op.dtype in HALVES else same
