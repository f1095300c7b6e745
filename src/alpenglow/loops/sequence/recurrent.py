"""Loop forms of recurrent layers: groups of sequences in parallel, units of a step in vectors.

The sequences of a group keep their states in local arrays, f32 for half precision.  What is
multiplied by the recurrent weights adds up in a local array with an element a column.  The product
of one sequence reads the weights row by row, as they lie in memory, several rows at a time; that of
a group reads them once for all of its sequences, a few columns at a time, with sums in registers.
Either way an element's sum takes the rows in turn, so that its bits do not tell how it was grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from alpenglow.ir.dims import ceil_div, is_open
from alpenglow.ir.types import HALVES, TensorType
from alpenglow.kernel.expr import Buffer, Const, Expr, Load, Splat
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.ops.sequence.recurrent import Activation, Gru, Lstm, LstmLayer, Rnn, activate

ROWS = 8
"""How many rows of the weights are added to the sums of one sequence at once."""

TOGETHER = 8
"""How many sequences are in a group at most."""

OPEN = 4
"""How many are where their number is open."""

GROUPS = 4
"""How many groups there are at least for threads to share, beyond pairs."""


@dataclass(frozen=True)
class DirectionKernel:
    """One direction of a layer while its kernel is built; `xw` and `r` are its operands."""

    k: Loops
    xw: Source
    r: Source
    units: int
    size: int = 1
    """How many sequences make a group."""

    @property
    def dtype(self) -> str:
        return "f32" if self.xw.type.dtype in HALVES else self.xw.type.dtype

    def array(self, gates: int = 1) -> Buffer:
        """Return a local array with an element a unit of each gate."""
        return self.k.b.array(self.dtype, gates * self.units)

    def width(self, gates: int = 1) -> int:
        """Return how many units `each` takes at a time."""
        lanes = self.k.lanes
        while lanes > gates * self.units:
            lanes //= 2
        return lanes

    def each(self, body: Callable[[Coord], None], gates: int = 1, done: int = 0) -> None:
        """Run `body` on the units of some gates, a vector at a time, but for the first `done`."""
        lanes, count = self.width(gates), gates * self.units
        full, rest = divmod(count, lanes)
        if full > done:
            with self.k.vector(lanes), self.k.b.loop(full - done) as i:
                body(Coord((i + done) * lanes, 1, lanes))
        if rest:
            ramp = Coord(Const(full * lanes), 1, lanes)
            with self.k.vector(lanes, ramp.compare("lt", count)):
                body(ramp)

    def several(self, body: Callable[[list[Coord]], None], gates: int, most: int) -> None:
        """Run `body` on all units of some gates, up to `most` vectors of them at a time."""
        lanes = self.width(gates)
        blocks = gates * self.units // lanes // most
        with self.k.vector(lanes), self.k.b.loop(blocks) as i:
            body([Coord((i * most + v) * lanes, 1, lanes) for v in range(most)])
        self.each(lambda u: body([u]), gates, blocks * most)

    def read(self, state: Buffer, u: Coord) -> Expr:
        """Return the elements of a local array for the units u."""
        return self.k.b.let(Load(state, u.base, u.lanes, self.k.mask_for(u.lanes)))

    def write(self, state: Buffer, u: Coord, value: Expr) -> None:
        # An operand that is stretched over the units is one element for all of them.
        wide = value if value.lanes == u.lanes else Splat(value, u.lanes)
        self.k.b.store(state, u.base, wide, self.k.mask_for(u.lanes))


@dataclass(frozen=True)
class Rows:
    """A local array with a row for each sequence of a group, of an element a unit of each gate."""

    layer: DirectionKernel
    buffer: Buffer
    gates: int

    @classmethod
    def of(cls, layer: DirectionKernel, gates: int = 1) -> Rows:
        return cls(layer, layer.array(layer.size * gates), gates)

    def row(self, j: Expr) -> Expr:
        """Return where the row of a sequence begins."""
        return j * (self.gates * self.layer.units)

    def read(self, j: Expr, u: Coord, gate: int = 0) -> Expr:
        """Return the elements of a sequence for the units u of one gate."""
        return self.layer.read(self.buffer, u + (self.row(j) + gate * self.layer.units))

    def write(self, j: Expr, u: Coord, value: Expr) -> None:
        self.layer.write(self.buffer, u + self.row(j), value)

    def clear(self) -> None:
        """Set all rows to zero."""
        zero = self.layer.k.constant(0, self.layer.dtype)
        with self.layer.k.b.loop(self.layer.size) as j:
            self.layer.each(lambda u: self.write(j, u, zero), self.gates)


@dataclass(frozen=True)
class Group:
    """Sequences that take their steps together: `count` of the batch, from `first` on.

    Their steps count up to `lengths`; the rest of `ys` is zero.
    """

    layer: DirectionKernel
    first: Expr
    count: Expr
    lengths: Source | None
    ys: tuple[Sink, ...]

    @contextmanager
    def each(self) -> Iterator[tuple[Expr, Coord]]:
        """Loop over the sequences: yields the number of each in the group, and in the batch."""
        with self.layer.k.b.loop(self.count) as j:
            yield j, coord(self.first + j)

    @contextmanager
    def each_at(self, t: Coord) -> Iterator[tuple[Expr, Coord]]:
        """Loop over the sequences that have a step t; for others it is zero in `ys`."""
        b = self.layer.k.b
        with self.each() as (j, s):
            # The step of a group is left out if none of its sequences has it.
            if self.lengths is None or self.layer.size == 1:
                yield j, s
                return
            with b.when(t.compare("lt", self.length(s))):
                yield j, s
            with b.otherwise():
                self.blank(s, t)

    def length(self, s: Coord) -> Expr:
        """Return how many steps of a sequence count."""
        assert self.lengths is not None
        return self.layer.k.m.cast(self.lengths([s]), "i64")

    def longest(self) -> Expr:
        """Return how many steps of the longest sequence count."""
        b, m = self.layer.k.b, self.layer.k.m
        if self.layer.size == 1:
            return b.let(self.length(coord(self.first)))
        most = b.var(Const(0))
        with self.each() as (_, s):
            b.set(most, m.maximum(most, self.length(s)))
        return most

    def blank(self, s: Coord, t: Coord) -> None:
        """Store zeros for a step of a sequence."""
        zero = self.layer.k.constant(0, self.layer.dtype)
        for y in self.ys:
            part = partial(self._blank_units, y, [t, s], zero)
            self.layer.each(part, int(y.shape[-1]) // self.layer.units)

    @staticmethod
    def _blank_units(y: Sink, at: list[Coord], zero: Expr, u: Coord) -> None:
        y.store([*at, u], zero)

    def begin_state(self, rows: Rows, source: Source | None) -> None:
        """Set the rows to the elements of [B, units], or to zero if there is no source."""
        zero = self.layer.k.constant(0, self.layer.dtype)
        with self.each() as (j, s):
            self.layer.each(
                lambda u: rows.write(j, u, zero if source is None else source([s, u])), rows.gates
            )

    def begin(self, sums: Rows, t: Coord, gates: int) -> None:
        """Set the sums of the first gates to their part of xw."""
        with self.each() as (j, s):
            self.layer.each(lambda u: sums.write(j, u, self.layer.xw([t, s, u])), gates)

    def add_product(
        self, sums: Rows, state: Rows, first: int, gates: int, rows: range = range(1)
    ) -> None:
        """Add the states times the columns of r for some gates to their sums.

        `rows` are the gates of the state, and of the rows of r, that are multiplied.
        """
        b, units = self.layer.k.b, self.layer.units
        part = range(rows.start * units, rows.stop * units)
        if self.layer.size == 1:
            self._alone(sums, state, first, gates, part)
        elif isinstance(self.count, Const):
            self._together(sums, state, first, gates, part)
        else:
            with b.when(self.layer.k.m.gt(self.count, 1)):
                self._together(sums, state, first, gates, part)
            with b.otherwise():
                self._alone(sums, state, first, gates, part)

    def _alone(self, sums: Rows, state: Rows, first: int, gates: int, part: range) -> None:
        """Multiply the state of one sequence: several rows at a time, all columns."""
        full, rest = divmod(len(part), ROWS)
        if full:
            with self.layer.k.b.loop(full) as i:
                rows = [i * ROWS + (part.start + j) for j in range(ROWS)]
                self._add_rows(sums, state, rows, first, gates)
        if rest:
            last = [Const(part.start + full * ROWS + j) for j in range(rest)]
            self._add_rows(sums, state, last, first, gates)

    def _add_rows(
        self, sums: Rows, state: Rows, rows: Sequence[Expr], first: int, gates: int
    ) -> None:
        k, layer, only = self.layer.k, self.layer, Const(0)
        factors = [k.b.let(Load(state.buffer, row)) for row in rows]

        def columns(u: Coord) -> None:
            at = u + first * layer.units
            total = sums.read(only, at)
            for row, factor in zip(rows, factors, strict=True):
                total = k.m.fma(layer.r([row, at]), factor, total)
            sums.write(only, at, total)

        layer.each(columns, gates)

    def _together(self, sums: Rows, state: Rows, first: int, gates: int, part: range) -> None:
        """Multiply the states of all sequences, absent ones as well: a few columns, all rows."""
        layer, k = self.layer, self.layer.k
        sequences = [Const(j) for j in range(layer.size)]

        def columns(us: list[Coord]) -> None:
            at = [u + first * layer.units for u in us]
            totals = [[k.b.var(sums.read(j, u)) for u in at] for j in sequences]
            with k.b.loop(len(part)) as i:
                row = i + part.start
                weights = [k.b.let(layer.r([row, u])) for u in at]
                for j, into in zip(sequences, totals, strict=True):
                    factor = k.b.let(Load(state.buffer, row + state.row(j)))
                    for total, weight in zip(into, weights, strict=True):
                        k.b.set(total, k.m.fma(weight, factor, total))
            for j, into in zip(sequences, totals, strict=True):
                for u, total in zip(at, into, strict=True):
                    sums.write(j, u, total)

        registers = 16 if k.lanes >= 16 else 8
        layer.several(columns, gates, max(1, registers // layer.size))


Step = Callable[[Group, Coord], None]
"""Emits one step of the sequences of a group."""

States = list[tuple[Rows, Source | None, Sink]]
"""Local arrays, where they begin, and where they end."""


def together(batch: int, nbytes: int, scratch: int) -> int:
    """Return how many sequences of a batch make a group; each has sums of `nbytes`."""
    fitting = max(1, scratch // max(1, nbytes))
    if is_open(batch):
        return min(OPEN, fitting)
    wanted = max(1, min(TOGETHER, fitting, batch, max(2, batch // GROUPS)))
    return ceil_div(batch, ceil_div(batch, wanted)) if batch else 1


def scan(
    layer: DirectionKernel,
    reverse: bool,
    lengths: Source | None,
    sums: Rows,
    states: States,
    ys: tuple[Sink, ...],
    step: Step,
) -> None:
    """Run `step` on all sequences from the first step that counts to the last.

    `states` holds the local arrays, where they begin (None: at zero) and where they end.
    """
    k = layer.k
    steps, batch = layer.xw.shape[:2]
    if (not is_open(batch) and batch == 0) or layer.units == 0:
        return
    whole = layer.size == 1 or (not is_open(batch) and batch % layer.size == 0)
    with k.parallel([ceil_div(batch, layer.size)]) as (part,):
        first = k.b.let((part * layer.size).expr())
        left = k.m.sub(k.extent(batch, "i64"), first)
        count = Const(layer.size) if whole else k.b.let(k.m.minimum(left, layer.size))
        group = Group(layer, first, count, lengths, ys)
        if not whole:
            # Absent sequences are multiplied as well.
            for rows in (sums, *(rows for rows, _, _ in states)):
                rows.clear()
        for rows, begin, _ in states:
            group.begin_state(rows, begin)
        if is_open(steps) or steps:
            longest = None if lengths is None else group.longest()
            with k.loop(steps) as i:
                _counted(group, longest, coord(steps - 1) - i if reverse else i, step)
        for rows, _, end in states:
            with group.each() as (j, s):
                layer.each(lambda u: end.store([s, u], rows.read(j, u)), rows.gates)


def _counted(group: Group, longest: Expr | None, t: Coord, step: Step) -> None:
    """Emit a step, or zeros where no sequence has it."""
    if longest is None:
        step(group, t)
        return
    b = group.layer.k.b
    with b.when(t.compare("lt", longest)):
        step(group, t)
    with b.otherwise(), group.each() as (_, s):
        group.blank(s, t)


def cell(
    k: Loops, op: LstmLayer, peepholes: Source | None
) -> Callable[[list[Expr], Expr, Coord], tuple[Expr, Expr]]:
    """Return what makes the next h and c of some units of the sums of their gates and c."""
    f, g = (_function(k, a, op.clip) for a in op.activations[:2])
    last = _function(k, op.activations[2], 0.0)

    def peep(x: Expr, row: int, c: Expr, u: Coord) -> Expr:
        return x if peepholes is None else k.m.add(x, k.m.mul(peepholes([coord(row), u]), c))

    def advanced(gates: list[Expr], before: Expr, u: Coord) -> tuple[Expr, Expr]:
        i, o, forget, new = gates
        i = f(peep(i, 0, before, u))
        forget = k.m.sub(1.0, i) if op.couple else f(peep(forget, 2, before, u))
        after = k.m.add(k.m.mul(forget, before), k.m.mul(i, g(new)))
        return k.m.mul(f(peep(o, 1, after, u)), last(after)), after

    return advanced


def layer_of(k: Loops, xw: Source, r: Source, gates: int) -> DirectionKernel:
    """Return a layer whose sequences have sums for so many gates."""
    alone = DirectionKernel(k, xw, r, int(r.shape[0]))
    nbytes = gates * alone.units * TensorType(alone.dtype, (1,)).nbytes
    return replace(alone, size=together(xw.shape[1], nbytes, k.facts.scratch))


def one_product(sums: Rows, state: Rows, unit: Callable[[Expr, Coord, Coord, Coord], None]) -> Step:
    """Return the step of a layer whose gates are all of the state as it was before.

    `unit` finishes some units: (number in the group, sequence, step, units).
    """

    def step(group: Group, t: Coord) -> None:
        group.begin(sums, t, sums.gates)
        group.add_product(sums, state, 0, sums.gates)
        with group.each_at(t) as (j, s):
            group.layer.each(lambda u: unit(j, s, t, u))

    return step


@push(Lstm)
def lstm(k: Loops, op: Lstm, ins: list[Source | None], outs: list[Sink]) -> None:
    xw, r, h0, c0, peepholes, lengths = operands(ins, 6)
    assert xw is not None and r is not None and h0 is not None and c0 is not None
    layer = layer_of(k, xw, r, 4)
    h, c, sums = Rows.of(layer), Rows.of(layer), Rows.of(layer, 4)
    advanced = cell(k, op, peepholes)
    trace = outs[3:]

    def unit(j: Expr, s: Coord, t: Coord, u: Coord) -> None:
        gates, before = [sums.read(j, u, which) for which in range(4)], c.read(j, u)
        if trace:
            store_gates(layer, trace[0], [t, s, u], gates)
            trace[1].store([t, s, u], before)
        state, after = advanced(gates, before, u)
        c.write(j, u, after)
        h.write(j, u, state)
        outs[0].store([t, s, u], state)

    states: States = [(h, h0, outs[1]), (c, c0, outs[2])]
    ys = (outs[0], *trace)
    scan(layer, op.reverse, lengths, sums, states, ys, one_product(sums, h, unit))


@push(Gru)
def gru(k: Loops, op: Gru, ins: list[Source | None], outs: list[Sink]) -> None:
    xw, r, h0, bias, lengths = operands(ins, 5)
    assert xw is not None and r is not None and h0 is not None
    layer = layer_of(k, xw, r, 3)
    h, sums, scaled = Rows.of(layer), Rows.of(layer, 3), Rows.of(layer)
    f, g = (_function(k, a, op.clip) for a in op.activations)
    trace = outs[2:]

    def emit(j: Expr, s: Coord, t: Coord, u: Coord, z: Expr, inner: Expr) -> None:
        if trace:
            store_gates(layer, trace[0], [t, s, u], [sums.read(j, u, i) for i in range(3)])
        state = k.m.add(k.m.mul(k.m.sub(1.0, z), g(inner)), k.m.mul(z, h.read(j, u)))
        h.write(j, u, state)
        outs[0].store([t, s, u], state)

    def reset_after(group: Group, t: Coord) -> None:
        def unit(j: Expr, s: Coord, u: Coord) -> None:
            z, reset = f(sums.read(j, u, 0)), f(sums.read(j, u, 1))
            from_x = xw([t, s, u + 2 * layer.units])
            emit(j, s, t, u, z, k.m.add(from_x, k.m.mul(reset, sums.read(j, u, 2))))

        assert bias is not None
        last = bias
        group.begin(sums, t, 2)
        with group.each() as (j, _):
            layer.each(lambda u: sums.write(j, u + 2 * layer.units, last([u])))
        group.add_product(sums, h, 0, 3)
        with group.each_at(t) as (j, s):
            layer.each(lambda u: unit(j, s, u))

    def reset_before(group: Group, t: Coord) -> None:
        group.begin(sums, t, 3)
        group.add_product(sums, h, 0, 2)
        with group.each() as (j, _):
            layer.each(lambda u: scaled.write(
                j, u, k.m.mul(f(sums.read(j, u, 1)), h.read(j, u))))  # fmt: skip
        group.add_product(sums, scaled, 2, 1)
        with group.each_at(t) as (j, s):
            layer.each(lambda u: emit(j, s, t, u, f(sums.read(j, u, 0)), sums.read(j, u, 2)))

    step = reset_before if bias is None else reset_after
    ys = (outs[0], *trace)
    scan(layer, op.reverse, lengths, sums, [(h, h0, outs[1])], ys, step)


@push(Rnn)
def rnn(k: Loops, op: Rnn, ins: list[Source | None], outs: list[Sink]) -> None:
    xw, r, h0, lengths = operands(ins, 4)
    assert xw is not None and r is not None and h0 is not None
    layer = layer_of(k, xw, r, 1)
    h, sums = Rows.of(layer), Rows.of(layer)
    f = _function(k, op.activations[0], op.clip)

    trace = outs[2:]

    def unit(j: Expr, s: Coord, t: Coord, u: Coord) -> None:
        total = sums.read(j, u)
        if trace:
            store_gates(layer, trace[0], [t, s, u], [total])
        state = f(total)
        h.write(j, u, state)
        outs[0].store([t, s, u], state)

    states: States = [(h, h0, outs[1])]
    ys = (outs[0], *trace)
    scan(layer, op.reverse, lengths, sums, states, ys, one_product(sums, h, unit))


def store_gates(
    layer: DirectionKernel, out: Sink, at: Sequence[Coord], gates: Sequence[Expr]
) -> None:
    """Store an element a gate to a result [T, B, G·H]."""
    t, s, u = at
    for which, value in enumerate(gates):
        out.store([t, s, u + which * layer.units], value)


def operands(ins: list[Source | None], count: int) -> list[Source | None]:
    """Return as many operands, the absent ones at the end as None."""
    return [*ins, *[None] * (count - len(ins))]


def _function(k: Loops, which: Activation, clip: float) -> Callable[[Expr], Expr]:
    def apply(x: Expr) -> Expr:
        value = activate(k.m, which, clip, x)
        assert isinstance(value, Expr)
        return value

    return apply
