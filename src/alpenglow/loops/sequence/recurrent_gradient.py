"""Loop forms of the way back through recurrent layers.

The sequences of a group keep the gradients of their states in local arrays, and those of the gates
of one step in another, which is multiplied by the transposed weights like the states on the way
there.  A sequence that has no such step keeps its gradients: what is added to them is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from alpenglow.ir.types import TensorType
from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.sequence.recurrent import (
    DirectionKernel,
    Group,
    Rows,
    States,
    operands,
    scan,
    store_gates,
    together,
)
from alpenglow.ops.sequence.recurrent_gradient import GruGradient, LstmGradient, RnnGradient

Unit = Callable[[Expr, Coord, Coord, Coord], None]
"""Goes back through some units: (number in the group, sequence, step, units)."""


def layer_of(k: Loops, sums: Source, turned: Source, gates: int) -> DirectionKernel:
    """Return a layer whose sequences have gradients for so many gates."""
    alone = DirectionKernel(k, sums, turned, int(turned.shape[1]))
    nbytes = gates * alone.units * TensorType(alone.dtype, (1,)).nbytes
    return replace(alone, size=together(sums.shape[1], nbytes, k.facts.scratch))


def go_back(group: Group, t: Coord, dgates: Rows, unit: Unit) -> None:
    """Run `unit` on the sequences that have a step t; for others `dgates` are zero."""
    if group.lengths is not None and group.layer.size > 1:
        dgates.clear()
    with group.each_at(t) as (j, s):
        group.layer.each(lambda u: unit(j, s, t, u))


def keep(
    layer: DirectionKernel, j: Expr, u: Coord, values: Sequence[Expr | None], rows: Rows
) -> list[Expr]:
    """Write the gradients of gates to a local array, and return them; None is zero."""
    zero = layer.k.constant(0, layer.dtype)
    known = [zero if value is None else value for value in values]
    for gate, value in enumerate(known):
        rows.write(j, u + gate * layer.units, value)
    return known


@push(LstmGradient)
def lstm_gradient(
    k: Loops, op: LstmGradient, ins: list[Source | None], outs: list[Sink]
) -> None:  # fmt: skip
    sums, turned, cells, dy, dh, dc, peepholes, lengths = operands(ins, 8)
    assert sums is not None and turned is not None and cells is not None and dy is not None
    layer = layer_of(k, sums, turned, 4)
    h, c, peeps, dgates = (Rows.of(layer, gates) for gates in (1, 1, 3, 4))
    inner, before = sums, cells

    def unit(j: Expr, s: Coord, t: Coord, u: Coord) -> None:
        at = [t, s, u]
        gates = [inner([t, s, u + gate * layer.units]) for gate in range(4)]
        rows = None if peepholes is None else [peepholes([coord(i), u]) for i in range(3)]
        dstate = k.m.add(h.read(j, u), dy(at))
        d, dbefore, parts = op.back(k.m, gates, before(at), rows, dstate, c.read(j, u))
        store_gates(layer, outs[0], at, keep(layer, j, u, d, dgates))
        h.write(j, u, k.constant(0, layer.dtype))
        c.write(j, u, dbefore)
        for row, part in enumerate(parts):
            place = u + row * layer.units
            peeps.write(j, place, k.m.add(peeps.read(j, place), part))

    def step(group: Group, t: Coord) -> None:
        go_back(group, t, dgates, unit)
        group.add_product(h, dgates, 0, 1, range(4))

    ends: States = [(h, dh, outs[1]), (c, dc, outs[2]), (peeps, None, outs[3])]
    scan(layer, not op.reverse, lengths, dgates, ends, (outs[0],), step)


@push(GruGradient)
def gru_gradient(k: Loops, op: GruGradient, ins: list[Source | None], outs: list[Sink]) -> None:
    sums, turned, before, dy, dh, fresh, lengths = operands(ins, 7)
    assert sums is not None and turned is not None and before is not None and dy is not None
    layer = layer_of(k, sums, turned, 3)
    h, scaled, dgates = (Rows.of(layer, gates) for gates in (1, 1, 3))
    inner, state = sums, before

    def unit(j: Expr, s: Coord, t: Coord, u: Coord) -> None:
        at = [t, s, u]
        gates = [inner([t, s, u + gate * layer.units]) for gate in range(3)]
        new = None if fresh is None else fresh(at)
        dstate = k.m.add(h.read(j, u), dy(at))
        d_z, d_s, d_n, d_m, kept = op.back(k.m, gates, new, state(at), dstate)
        store_gates(layer, outs[0], at, [*keep(layer, j, u, [d_z, d_s, d_m], dgates)[:2], d_n])
        outs[1].store(at, d_m)
        h.write(j, u, kept)

    def through_reset(j: Expr, s: Coord, t: Coord, u: Coord) -> None:
        place = u + layer.units
        d_s, more = op.reset(k.m, inner([t, s, place]), state([t, s, u]), scaled.read(j, u))
        dgates.write(j, place, d_s)
        outs[0].store([t, s, place], d_s)
        h.write(j, u, k.m.add(h.read(j, u), more))

    def step(group: Group, t: Coord) -> None:
        go_back(group, t, dgates, unit)
        if fresh is not None:
            group.add_product(h, dgates, 0, 1, range(3))
            return
        scaled.clear()
        group.add_product(scaled, dgates, 0, 1, range(2, 3))
        with group.each_at(t) as (j, s):
            layer.each(lambda u: through_reset(j, s, t, u))
        group.add_product(h, dgates, 0, 1, range(2))

    ends: States = [(h, dh, outs[2])]
    scan(layer, not op.reverse, lengths, dgates, ends, (outs[0], outs[1]), step)


@push(RnnGradient)
def rnn_gradient(k: Loops, op: RnnGradient, ins: list[Source | None], outs: list[Sink]) -> None:
    sums, turned, dy, dh, lengths = operands(ins, 5)
    assert sums is not None and turned is not None and dy is not None
    layer = layer_of(k, sums, turned, 1)
    h, dgates, inner = Rows.of(layer), Rows.of(layer), sums

    def unit(j: Expr, s: Coord, t: Coord, u: Coord) -> None:
        at = [t, s, u]
        d = op.back(k.m, inner(at), k.m.add(h.read(j, u), dy(at)))
        store_gates(layer, outs[0], at, keep(layer, j, u, [d], dgates))
        h.write(j, u, k.constant(0, layer.dtype))

    def step(group: Group, t: Coord) -> None:
        go_back(group, t, dgates, unit)
        group.add_product(h, dgates, 0, 1)

    scan(layer, not op.reverse, lengths, dgates, [(h, dh, outs[1])], (outs[0],), step)
