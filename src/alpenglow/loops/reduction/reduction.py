"""Loop forms of reductions and running totals."""

from __future__ import annotations

from alpenglow.ir.types import FLOATS, HALVES, SIGNED, TensorType
from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.rows import (
    Totals,
    along,
    columns,
    combine,
    in_turn,
    narrow_width,
    placed,
    slots_for,
    unless_masked,
    zeros,
)
from alpenglow.ops.reduction.reduction import (
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    Reduction,
    SumBytes,
    highest,
    lowest,
)
from alpenglow.ops.reduction.scan import CumProd, CumSum, LinearScan, Scan

BESIDE = 4
"""Vectors of running totals that are computed side by side: they fill cache lines.

Narrow elements fill them with fewer vectors, and the last one, masked, would cost too much.
"""

SLOTS = 4
"""Accumulators of a row: enough to keep the adders busy."""


@push(ReduceSum, SumBytes, ReduceMean, ReduceProd, ReduceMax, ReduceMin)
def reduction(k: Loops, op: Reduction, ins: list[Source | None], outs: list[Sink]) -> None:
    (x,) = ins
    assert x is not None
    if 0 in outs[0].shape:
        return
    if x.type.rank - 1 in op.axes:
        _reduce_rows(k, op, x, outs[0])
    else:
        _reduce_columns(k, op, x, outs[0])


def _reduce_rows(k: Loops, op: Reduction, x: Source, out: Sink) -> None:
    """Reduce axes with the last one among them: vectors along it, combined in the end."""
    rank = x.type.rank
    kept = [a for a in range(rank) if a not in op.axes]
    extents = [x.shape[a] for a in op.axes]
    fold, dtype, neutral = folded(op, x.type)
    lanes = 1 if dtype == "bool" else narrow_width(k, extents[-1], dtype)
    slots = slots_for(extents[-1], lanes, SLOTS)
    with k.parallel([x.shape[a] for a in kept]) as at:
        totals = Totals(k, fold, neutral, dtype, lanes, slots)

        def body(inner: list[Coord], slot: int) -> None:
            value = k.m.cast(x(placed(rank, op.axes, inner, at)), dtype)
            totals.add(slot, unless_masked(k, value, neutral))

        along(k, extents, lanes, body, slots, [totals])
        total = finished(k, op, x.type, totals.whole())
        out.store(placed(rank, op.axes, zeros(rank), at) if op.keepdims else at, total)


def _reduce_columns(k: Loops, op: Reduction, x: Source, out: Sink) -> None:
    """Reduce axes other than the last: each lane by itself."""
    rank = x.type.rank
    kept = [a for a in range(rank - 1) if a not in op.axes]
    extents = [x.shape[a] for a in op.axes]
    fold, dtype, neutral = folded(op, x.type)
    slots = slots_for(extents[-1], 1, SLOTS) if extents else 1

    def body(at: list[Coord]) -> None:
        totals = Totals(k, fold, neutral, dtype, k.current, slots, True)

        def add(inner: list[Coord], slot: int) -> None:
            totals.add(slot, k.m.cast(x(placed(rank, op.axes, inner, at)), dtype))

        in_turn(k, extents, add, slots, [totals])
        where = placed(rank, op.axes, zeros(rank), at) if op.keepdims else at
        out.store(where, finished(k, op, x.type, totals.whole()))

    if not rank:
        with k.parallel([]):
            body([])
        return
    columns(k, [x.shape[a] for a in kept], x.shape[-1], lambda outer, last: body([*outer, last]))


def folded(op: Reduction, x: TensorType) -> tuple[str, str, float]:
    """Return how elements are combined, in which type, and the neutral element."""
    dtype = "f32" if x.dtype in HALVES else x.dtype
    match op:
        case ReduceMax():
            return "max", dtype, lowest(x.numpy)
        case ReduceMin():
            return "min", dtype, highest(x.numpy)
        case ReduceProd():
            return "mul", dtype, 1
        case SumBytes():
            return "add", "i32", 0
        case ReduceMean() if dtype not in FLOATS:
            return "add", "i64" if dtype in SIGNED else "u64", 0
    return "add", dtype, 0


def finished(k: Loops, op: Reduction, x: TensorType, total: Expr) -> Expr:
    """Return what is stored for a total: for a mean, its quotient."""
    if not isinstance(op, ReduceMean):
        return total
    count = 1
    for a in op.axes:
        count *= x.extents[a]
    if count == 0 and x.dtype not in FLOATS:
        return k.constant(0, x.dtype)
    mean = k.m.div(total, k.extent(count, total.dtype))
    return mean if x.dtype in FLOATS else k.m.cast(mean, x.dtype)


@push(CumSum, CumProd, LinearScan)
def scan(k: Loops, op: Scan | LinearScan, ins: list[Source | None], outs: list[Sink]) -> None:
    x, *rest = ins
    assert x is not None
    rank, shape = x.type.rank, x.shape
    axis = op.axis % rank
    if 0 in shape:
        return
    if axis == rank - 1:
        with k.parallel(shape[:-1]) as outer:
            _run(k, op, [x, *rest], outs[0], axis, outer)
        return
    kept = [d for a, d in enumerate(shape[:-1]) if a != axis]
    vectors = BESIDE if x.type.numpy.itemsize >= 4 else 1
    columns(k, kept, shape[-1], lambda outer, last: _run(
        k, op, [x, *rest], outs[0], axis, [*outer, last]), vectors)  # fmt: skip


def _run(
    k: Loops, op: Scan | LinearScan, xs: list[Source | None], out: Sink, axis: int,
    outer: list[Coord],
) -> None:  # fmt: skip
    """Store the running totals along the axis at one place (or vector of places) of the others."""
    x = xs[0]
    assert x is not None
    dtype = "f32" if x.type.dtype in HALVES else x.type.dtype
    total = k.accumulator(op.neutral if isinstance(op, Scan) else 0, dtype)
    with k.loop(x.shape[axis]) as i:
        step = i * -1 + (x.shape[axis] - 1) if op.reverse else i
        at = placed(x.type.rank, [axis], [step], outer)
        # The elements are read before the result is stored: they may share memory.
        values = [v(at) for v in xs if v is not None]
        if op.exclusive:
            out.store(at, total)
        k.set(total, _next(k, op, total, values))
        if not op.exclusive:
            out.store(at, total)


def _next(k: Loops, op: Scan | LinearScan, total: Expr, values: list[Expr]) -> Expr:
    """Return the running total with one more element of each operand."""
    if isinstance(op, LinearScan):
        factor, term = values
        return k.m.add(k.m.mul(factor, total), term)
    return combine(k, "mul" if isinstance(op, CumProd) else "add", total, values[0])
