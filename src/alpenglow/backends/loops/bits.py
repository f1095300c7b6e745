"""The loop form of reading elements as another type of the same width."""

from __future__ import annotations

from alpenglow.backends.loops.coord import Coord
from alpenglow.backends.loops.form import HALVES, Loops, Source, pull
from alpenglow.kernel.expr import Expr
from alpenglow.ops.select import BitCast


@pull(BitCast)
def bit_cast(k: Loops, op: BitCast, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    value = x(at)
    # Halves are f32 here; going back to what was loaded is exact.
    value = k.m.cast(value, x.type.dtype) if x.type.dtype in HALVES else value
    same = value if x.type.dtype == op.dtype else k.m.bits(value, op.dtype)
    return k.m.cast(same, "f32") if op.dtype in HALVES else same
