"""Loop forms of resampling."""

from __future__ import annotations

import numpy as np

from alpenglow.ir.types import DTYPES, FLOATS, HALVES
from alpenglow.kernel.expr import Const, Expr
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Source, pull
from alpenglow.loops.tensor.gather import clamped
from alpenglow.ops.image.resize import Interpolate


@pull(Interpolate)
def interpolate(k: Loops, op: Interpolate, ins: list[Source | None], at: list[Coord]) -> Expr:
    x, indices, weights = ins
    assert x is not None and indices is not None and weights is not None
    axis = op.axis % len(x.shape)
    wide = "f64" if x.type.dtype == "f64" else "f32"
    total = k.accumulator(0, wide)
    with k.loop(indices.shape[0]) as tap:
        place = clamped(k, indices([tap, at[axis]]), x.shape[axis])
        element = k.m.cast(x([*at[:axis], place, *at[axis + 1 :]]), wide)
        weight = k.m.cast(weights([tap, at[axis]]), wide)
        k.set(total, k.m.add(total, k.m.mul(element, weight)))
    return narrowed(k, total, op.dtype)


def narrowed(k: Loops, total: Expr, dtype: str) -> Expr:
    """Return a sum as `dtype`, truncated and limited to the range of an integer."""
    if dtype in FLOATS:
        return k.m.cast(total, "f32" if dtype in HALVES else dtype)
    limits = np.iinfo(DTYPES[dtype])
    low, high = int(limits.min), int(limits.max)
    number = k.m.where(k.m.isnan(total), 0.0, total)
    over = k.m.ge(number, float(high))
    inside = k.m.maximum(k.m.where(over, 0.0, number), float(low))
    return k.m.where(over, Const(high, dtype), k.m.cast(inside, dtype))
