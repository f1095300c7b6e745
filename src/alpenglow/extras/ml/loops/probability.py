"""The loop form of coupling probabilities: one row after the other, rows in parallel."""

from __future__ import annotations

from alpenglow.extras.ml.probability import PRECISION, ROUNDS, Couple
from alpenglow.kernel.expr import Buffer, Const, Expr, Load
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Sink, Source, push


@push(Couple)
def couple(k: Loops, op: Couple, ins: list[Source | None], outs: list[Sink]) -> None:
    (r,) = ins
    assert r is not None
    n, classes, _ = r.shape
    if not n or not classes:
        return
    dtype = r.type.dtype
    q, p = k.b.array(dtype, classes * classes), k.b.array(dtype, classes)
    qp = k.b.array(dtype, classes)
    with k.parallel([n]) as (row,):
        squared(k, r, row, q)
        with k.loop(classes) as i:
            k.b.store(p, i.expr(), k.constant(1 / classes, dtype))
        rounds = k.b.var(Const(0))
        going = k.b.var(Const(True, "bool"))
        with k.b.repeat_while(going):
            total = multiplied(k, q, p, qp, classes)
            far = k.m.bit_not(k.m.lt(distance(k, qp, total, classes), PRECISION / classes))
            with k.b.when(far):
                improve(k, q, p, qp, total, classes)
            k.b.set(rounds, k.m.add(rounds, 1))
            k.b.set(going, k.m.bit_and(far, k.m.lt(rounds, ROUNDS)))
        with k.loop(classes) as i:
            outs[0].store([row, i], Load(p, i.expr()))


def squared(k: Loops, r: Source, row: Coord, q: Buffer) -> None:
    """Fill q[i, j] with -r[j, i] r[i, j], and q[i, i] with the sum of r[j, i]²."""
    classes = r.shape[1]
    with k.loop(classes) as i:
        total = k.b.var(k.constant(0, q.dtype))
        with k.loop(classes) as j, k.b.when(j.compare("ne", i)):
            lost = r([row, j, i])
            k.b.set(total, k.m.add(total, k.m.mul(lost, lost)))
            value = k.m.neg(k.m.mul(lost, r([row, i, j])))
            k.b.store(q, (i * classes + j).expr(), value)
        k.b.store(q, (i * (classes + 1)).expr(), total)


def multiplied(k: Loops, q: Buffer, p: Buffer, qp: Buffer, classes: int) -> Expr:
    """Set qp to q times p and return its product with p."""
    total = k.b.var(k.constant(0, q.dtype))
    with k.loop(classes) as i:
        line = k.b.var(k.constant(0, q.dtype))
        with k.loop(classes) as j:
            one = k.m.mul(Load(q, (i * classes + j).expr()), Load(p, j.expr()))
            k.b.set(line, k.m.add(line, one))
        k.b.store(qp, i.expr(), line)
        k.b.set(total, k.m.add(total, k.m.mul(Load(p, i.expr()), line)))
    return total


def distance(k: Loops, qp: Buffer, total: Expr, classes: int) -> Expr:
    """Return by how much an element of qp differs from the total at most."""
    most = k.b.var(k.constant(0, qp.dtype))
    with k.loop(classes) as i:
        k.b.set(most, k.m.maximum(most, k.m.abs(k.m.sub(Load(qp, i.expr()), total))))
    return most


def improve(k: Loops, q: Buffer, p: Buffer, qp: Buffer, total: Expr, classes: int) -> None:
    """Solve for one class after the other."""
    rest = k.b.var(total)
    with k.loop(classes) as i:
        own = k.b.let(Load(q, (i * (classes + 1)).expr()))
        before = k.b.let(Load(qp, i.expr()))
        change = k.b.let(k.m.div(k.m.sub(rest, before), own))
        k.b.store(p, i.expr(), k.m.add(Load(p, i.expr()), change))
        scale = k.b.let(k.m.add(change, 1))
        inner = k.m.add(k.m.mul(change, own), k.m.mul(before, 2))
        grown = k.m.add(rest, k.m.mul(change, inner))
        k.b.set(rest, k.m.div(k.m.div(grown, scale), scale))
        with k.loop(classes) as j:
            moved = k.m.mul(change, Load(q, (i * classes + j).expr()))
            k.b.store(qp, j.expr(), k.m.div(k.m.add(Load(qp, j.expr()), moved), scale))
            k.b.store(p, j.expr(), k.m.div(Load(p, j.expr()), scale))
