"""Loop form of the way back through linear attention: heads in parallel, columns in vectors.

The states are computed once to keep the first of each chunk of steps, and once more, chunk by chunk
from the last one on, for the steps back.  The gradient of the state stays in a result.  What is
summed along rows of it adds up in a vector for each row, whose lanes are combined once a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.kernel.expr import Buffer, Expr, Load, Reduce, Register
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.rows import along, width
from alpenglow.loops.sequence.linear_attention import SLOTS, each_row
from alpenglow.ops.sequence.linear_attention import CHUNK, LinearAttentionGradient

Matrix = Callable[[Coord, Coord], Expr]
"""An element of a state by row and column."""

Keeper = Callable[[Coord, Coord, Expr], None]
"""Stores an element by row and column."""


@dataclass(frozen=True)
class RowSums:
    """Sums along the rows of a matrix while its columns are gone through, a vector for each row."""

    k: Loops
    array: Buffer
    rows: int
    lanes: int

    @classmethod
    def of(cls, k: Loops, dtype: str, rows: int, lanes: int) -> RowSums:
        return cls(k, k.b.array(dtype, max(rows, 1) * lanes), rows, lanes)

    def clear(self) -> None:
        with self.k.vector(self.lanes):
            zero = self.k.accumulator(0, self.array.dtype)
        with self.k.b.loop(self.rows) as d:
            self.k.b.store(self.array, d * self.lanes, zero)

    def add(self, d: Coord, x: Expr, y: Expr) -> None:
        """Add products to a row."""
        before = Load(self.array, d.base * self.lanes, self.lanes)
        total = self.k.accumulator(0, self.array.dtype)
        self.k.set(total, self.k.m.fma(x, y, self.k.b.let(before)))
        self.k.b.store(self.array, d.base * self.lanes, total)

    def store(self, out: Sink, at: list[Coord], factor: float = 1.0) -> None:
        """Store the sums to a result, of which `at` is a row."""
        with self.k.loop(self.rows) as d:
            total: Expr = Load(self.array, d.base * self.lanes, self.lanes)
            if self.lanes > 1:
                total = Reduce("add", total)
            out.store([*at, d], self.k.m.mul(self.k.b.let(total), factor))


@dataclass(frozen=True)
class Head:
    """What a kernel reads and writes for the heads of one state, at `at` of batch and groups."""

    k: Loops
    at: list[Coord]
    ins: dict[str, Source]
    outs: dict[str, Sink]

    @property
    def size(self) -> int:
        return int(self.ins["k"].shape[3])

    @property
    def columns(self) -> int:
        return self.ins["v"].shape[3]

    @property
    def lanes(self) -> int:
        return width(self.k, self.columns)

    @property
    def dtype(self) -> str:
        return self.ins["q"].type.dtype

    def each_column(self, body: Callable[[Coord], None]) -> None:
        """Run `body` on all columns, a vector at a time."""
        along(self.k, [self.columns], self.lanes, lambda c, slot: body(c[0]))

    def each_row(self, body: Callable[[Coord, int], None]) -> None:
        """Run `body` on all rows; its second argument tells neighbours apart."""
        each_row(self.k, self.size, body)

    def summed(self, element: Callable[[Coord], tuple[Expr, Expr]]) -> Expr:
        """Return the sum of products over all rows, in the lanes of the present columns."""
        k = self.k
        sums = [k.accumulator(0, self.dtype) for _ in range(SLOTS)]
        self.each_row(lambda d, slot: k.set(sums[slot], k.m.fma(*element(d), sums[slot])))
        total: Expr = sums[0]
        for other in sums[1:]:
            total = k.m.add(total, other)
        return k.b.let(total)

    def row(self, name: str, t: Coord, d: Coord) -> Expr:
        """Return what an operand has at a step for a row of the state."""
        source = self.ins[name]
        return source([self.at[0], t, self.at[1], d if source.shape[3] != 1 else coord(0)])

    def decayed(self, t: Coord, d: Coord, value: Expr) -> Expr:
        """Return an element of a row of the state after the step's decay."""
        return self.k.m.mul(value, self.row("factor", t, d)) if "factor" in self.ins else value

    def told(self, t: Coord, c: Coord, before: Matrix) -> Expr:
        """Return what the state, decayed, has under the step's key."""
        return self.summed(
            lambda d: (self.decayed(t, d, before(d, c)), self.row("k", t, d))
        )  # fmt: skip

    def added(self, t: Coord, c: Coord, told: Expr | None) -> Expr:
        """Return what a step puts under its key."""
        value = self.ins["v"]([self.at[0], t, self.at[1], c])
        if told is None:
            return value
        return self.k.b.let(self.k.m.mul(self.k.m.sub(value, told), self.rate(t)))

    def rate(self, t: Coord) -> Expr:
        return self.ins["beta"]([self.at[0], t, self.at[1]])

    def advance(self, t: Coord, before: Matrix, store: Keeper) -> None:
        """Compute the state after a step; it may be stored where the one before is."""

        def column(c: Coord) -> None:
            told = self.told(t, c, before) if "beta" in self.ins else None
            new = self.added(t, c, told)
            self.each_row(lambda d, slot: store(
                d, c, self.k.m.fma(new, self.row("k", t, d), self.decayed(t, d, before(d, c)))
            ))  # fmt: skip

        self.each_column(column)

    def copy(self, source: Matrix, store: Keeper) -> None:
        self.each_column(
            lambda c: self.each_row(lambda d, slot: store(d, c, source(d, c)))
        )  # fmt: skip

    def matrix(self, name: str, *number: Coord) -> Matrix:
        """Return the elements of a result that holds states, as they are at that time."""
        return lambda d, c: self.outs[name].load([*self.at, *number, d, c])

    def keeper(self, name: str, *number: Coord) -> Keeper:
        """Return what stores the elements of a result that holds states."""
        return lambda d, c, value: self.outs[name].store([*self.at, *number, d, c], value)

    def operand(self, name: str) -> Matrix:
        return lambda d, c: self.ins[name]([*self.at, d, c])


@push(LinearAttentionGradient)
def linear_attention_gradient(
    k: Loops, op: LinearAttentionGradient, ins: list[Source | None], outs: list[Sink]
) -> None:
    names = ("q", "k", "v", "state", "dy", "last", "factor", "beta")
    known = {name: x for name, x in zip(names, ins, strict=False) if x is not None}
    results = ("dq", "dk", "dv", "dstate", "dfactor", "dbeta", "kept", "within")
    batch, steps = known["q"].shape[:2]
    with k.parallel([batch, known["k"].shape[2]]) as at:
        head = Head(k, at, known, dict(zip(results, outs, strict=True)))
        run(head, op.scale, steps)


def run(head: Head, scale: float, steps: int) -> None:
    """Emit the way there, and the way back."""
    k = head.k
    full, rest = divmod(steps, CHUNK)
    sums = {name: RowSums.of(k, head.dtype, head.size, head.lanes) for name in ("q", "k", "factor")}
    current, keep = head.matrix("dstate"), head.keeper("dstate")
    head.copy(head.operand("state"), keep)
    with k.loop(full) as chunk:
        head.copy(current, head.keeper("kept", chunk))
        with k.loop(CHUNK) as i:
            head.advance(chunk * CHUNK + i, current, keep)
    head.copy(current, head.keeper("kept", coord(full)))
    head.copy(head.operand("last"), keep)
    back(head, scale, sums, coord(full), rest)
    with k.loop(full) as i:
        back(head, scale, sums, coord(full - 1) - i, CHUNK)


def back(head: Head, scale: float, sums: dict[str, RowSums], chunk: Coord, count: int) -> None:
    """Emit the steps of a chunk: there, keeping all states, and back."""
    k = head.k
    head.copy(head.matrix("kept", chunk), head.keeper("within", coord(0)))
    with k.loop(count) as i:
        head.advance(
            chunk * CHUNK + i, head.matrix("within", i), head.keeper("within", i + 1)
        )  # fmt: skip
    with k.loop(count) as j:
        i = coord(count - 1) - j
        t = chunk * CHUNK + i
        answered(head, scale, sums["q"], t, i)
        step_back(head, sums, t, i)


def answered(head: Head, scale: float, sums: RowSums, t: Coord, i: Coord) -> None:
    """Emit what each query of a step gets, and add what it asks of the state."""
    k, state, after = head.k, head.matrix("dstate"), head.matrix("within", i + 1)
    heads = head.ins["q"].shape[2] // head.ins["k"].shape[2]
    keep = head.keeper("dstate")
    with k.loop(heads) as h:
        at = [head.at[0], t, head.at[1] * heads + h]
        sums.clear()

        def column(c: Coord) -> None:
            dy = head.ins["dy"]([*at, c])
            asked = k.b.let(k.m.mul(dy, scale))

            def row(d: Coord, slot: int) -> None:
                sums.add(d, after(d, c), dy)
                keep(d, c, k.m.fma(asked, head.ins["q"]([*at, d]), state(d, c)))

            head.each_row(row)

        head.each_column(column)
        sums.store(head.outs["dq"], at, scale)


def step_back(head: Head, sums: dict[str, RowSums], t: Coord, i: Coord) -> None:
    """Emit the gradients of a step's key, value, factor and beta, and of the state before it."""
    k, state, before = head.k, head.matrix("dstate"), head.matrix("within", i)
    keep, at = head.keeper("dstate"), [head.at[0], t, head.at[1]]
    learns, decays = "beta" in head.ins, "factor" in head.ins
    sums["k"].clear()
    sums["factor"].clear()
    with k.vector(head.lanes):
        dbeta = k.accumulator(0, head.dtype)

    def column(c: Coord) -> None:
        told = head.told(t, c, before) if learns else None
        new = head.added(t, c, told)
        dnew = head.summed(lambda d: (state(d, c), head.row("k", t, d)))
        dvalue = dnew
        if told is not None:
            dvalue = k.b.let(k.m.mul(dnew, head.rate(t)))
            k.set(dbeta, k.m.fma(dnew, k.m.sub(head.ins["v"]([*at, c]), told), dbeta))
        head.outs["dv"].store([*at, c], dvalue)

        def row(d: Coord, slot: int) -> None:
            ds, s = state(d, c), before(d, c) if learns or decays else None
            sums["k"].add(d, ds, new)
            if s is not None and learns:
                sums["k"].add(d, k.m.neg(head.decayed(t, d, s)), dvalue)
                ds = k.b.let(k.m.sub(ds, k.m.mul(dvalue, head.row("k", t, d))))
            if s is not None and decays:
                sums["factor"].add(d, s, ds)
            keep(d, c, head.decayed(t, d, ds))

        head.each_row(row)

    head.each_column(column)
    sums["k"].store(head.outs["dk"], at)
    sums["factor"].store(head.outs["dfactor"], at)
    head.outs["dbeta"].store(at, combined(dbeta))


def combined(register: Register) -> Expr:
    return register if register.lanes == 1 else Reduce("add", register)
