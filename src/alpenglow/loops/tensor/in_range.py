"""The loop form of `in_range`: elements go through, and one that is out of range is reported."""

from __future__ import annotations

import numpy as np

from alpenglow.ir.dims import is_open
from alpenglow.ir.types import DTYPES
from alpenglow.kernel.expr import Const, Expr, Reduce
from alpenglow.kernel.faults import report
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Source, pull
from alpenglow.ops.tensor.in_range import InRange


@pull(InRange)
def in_range(k: Loops, op: InRange, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    element = x(at)
    out = outside(k, op, element)
    if out is None:
        return element
    mask = k.mask_for(element.lanes)
    if mask is not None:
        out = k.m.bit_and(out, mask)
    with k.b.when(out if out.lanes == 1 else k.b.let(Reduce("or", out))):
        wide = k.m.cast(element, "i64")
        if wide.lanes > 1:
            # Any of those outside will do: the largest is what vectors find.
            least = Const(-(1 << 63), "i64")
            wide = k.b.let(Reduce("max", k.m.where(out, wide, least)))
        report(k.b, wide)
    return element


def outside(k: Loops, op: InRange, x: Expr) -> Expr | None:
    """Return where x is out of range, by one comparison; None if its type says that it is not."""
    low, high, m = op.low, op.high, k.m
    if is_open(low) or is_open(high):
        x = m.cast(x, "i64")
        size = m.cast(m.sub(k.extent(high, "i64"), k.extent(low, "i64")), "u64")
        return m.gt(m.bits(m.sub(x, k.extent(low, "i64")), "u64"), size)
    limits = np.iinfo(DTYPES[x.dtype])
    first, last = max(low, limits.min), min(high, limits.max)
    if (first, last) == (limits.min, limits.max):
        return None
    # Counted from the first as an unsigned number, what is too low is too high.
    above = x if first == 0 else m.sub(x, first)
    return m.gt(m.bits(above, x.dtype.replace("i", "u")), last - first)
