"""Loop form of linear attention: columns of the state in parallel, a vector of them at a time.

Each column of a head's matrix goes through time by itself: what it needs of the others are the
keys and queries, which all read.  A vector of columns stays in a local array for the whole scan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.kernel.expr import Buffer, Expr, Load, Register
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.rows import columns
from alpenglow.ops.sequence.linear_attention import LinearAttention

SLOTS = 4
"""Rows of the state that are treated together: as many sums, so that none waits for the last."""


def each_row(k: Loops, rows: int, body: Callable[[Coord, int], None]) -> None:
    """Run `body` on so many rows, a few at a time; its second argument tells these apart."""
    full, rest = divmod(rows, SLOTS)
    if full:
        with k.loop(full) as i:
            for slot in range(SLOTS):
                body(i * SLOTS + slot, slot)
    for slot in range(rest):
        body(coord(full * SLOTS + slot), slot)


@dataclass(frozen=True)
class StateColumns:
    """A vector of columns of the state while its kernel is built; row d lies at d · lanes."""

    k: Loops
    array: Buffer
    rows: int
    lanes: int

    def read(self, d: Coord) -> Expr:
        return self.k.b.let(Load(self.array, d.base * self.lanes, self.lanes))

    def write(self, d: Coord, value: Expr) -> None:
        self.k.b.store(self.array, d.base * self.lanes, self.vector(value))

    def each(self, body: Callable[[Coord, int], None]) -> None:
        """Run `body` on all rows; its second argument tells neighbours apart."""
        each_row(self.k, self.rows, body)

    def sums(self) -> list[Register]:
        return [self.k.accumulator(0, self.array.dtype) for _ in range(min(SLOTS, self.rows) or 1)]

    def total(self, sums: list[Register]) -> Expr:
        value: Expr = sums[0]
        for other in sums[1:]:
            value = self.k.m.add(value, other)
        return self.k.b.let(value)

    def vector(self, value: Expr) -> Expr:
        """Return a value in all lanes."""
        register = self.k.accumulator(0, self.array.dtype)
        self.k.set(register, value)
        return register


@push(LinearAttention)
def linear_attention(
    k: Loops, op: LinearAttention, ins: list[Source | None], outs: list[Sink]
) -> None:
    q, key, v, state, decay, beta = (*ins, None, None)[:6]
    assert q is not None and key is not None and v is not None and state is not None
    batch, steps, heads, size = q.shape
    groups, width = v.shape[2:]
    if batch == 0 or width == 0:
        return

    def scan(at: list[Coord], c: Coord) -> None:
        array = k.b.array("f64" if q.type.dtype == "f64" else "f32", max(int(size), 1) * c.lanes)
        memory = StateColumns(k, array, int(size), c.lanes)
        memory.each(lambda d, slot: memory.write(d, state([*at, d, c])))
        if steps:
            with k.loop(steps) as t:
                place = [at[0], t, at[1]]
                forget(memory, decay, place)
                remember(memory, key, v, beta, place, c)
                answer(memory, op, q, heads // groups, outs[0], place, c)
        memory.each(lambda d, slot: outs[1].store([*at, d, c], memory.read(d)))

    columns(k, [batch, groups], width, scan)


def forget(memory: StateColumns, decay: Source | None, place: list[Coord]) -> None:
    """Let the state decay; `place` is the sequence, the step and the head."""
    k = memory.k
    if decay is None:
        return
    whole = decay.shape[-1] == 1
    factor = k.b.let(k.m.exp(decay([*place, coord(0)]))) if whole else None

    def row(d: Coord, slot: int) -> None:
        rate = factor if factor is not None else k.m.exp(decay([*place, d]))
        memory.write(d, k.m.mul(memory.read(d), rate))

    memory.each(row)


def remember(
    memory: StateColumns, key: Source, v: Source, beta: Source | None, place: list[Coord], c: Coord
) -> None:
    """Add the new value under its key, or with `beta` what is new in it."""
    k = memory.k
    value = v([*place, c])
    if beta is not None:
        known = memory.sums()

        def recall(d: Coord, slot: int) -> None:
            k.set(known[slot], k.m.fma(memory.read(d), key([*place, d]), known[slot]))

        memory.each(recall)
        rate = beta([*place[:2], place[2] if beta.shape[2] != 1 else coord(0)])
        value = k.m.mul(k.m.sub(value, memory.total(known)), rate)
    value = memory.vector(value)
    memory.each(lambda d, slot: memory.write(d, k.m.fma(value, key([*place, d]), memory.read(d))))


def answer(
    memory: StateColumns, op: LinearAttention, q: Source, heads: int, y: Sink, place: list[Coord],
    c: Coord,
) -> None:  # fmt: skip
    """Read the state by the query of each head that it serves."""
    k = memory.k
    with k.loop(heads) as h:
        head = [*place[:2], place[2] * heads + h]
        sums = memory.sums()

        def row(d: Coord, slot: int) -> None:
            k.set(sums[slot], k.m.fma(memory.read(d), q([*head, d]), sums[slot]))

        memory.each(row)
        y.store([*head, c], k.m.mul(memory.total(sums), op.scale))
