"""Loop forms of recurrent layers: sequences in parallel, the units of a step in vectors.

A sequence keeps its state in local arrays, f32 for half precision.  The product of the state with
the recurrent weights reads these row by row, as they lie in memory, several rows at a time, and
adds up in a local array with an element a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from alpenglow.backends.loops.coord import Coord, coord
from alpenglow.backends.loops.form import HALVES, Loops, Sink, Source, push
from alpenglow.kernel.expr import Buffer, Const, Expr, Load, Splat
from alpenglow.ops.recurrent import Activation, Gru, Lstm, LstmLayer, Rnn, activate

ROWS = 8
"""How many rows of the weights are added to the sums at once."""


@dataclass(frozen=True)
class Layer:
    """One direction of a layer while its kernel is built; `xw` and `r` are its operands."""

    k: Loops
    xw: Source
    r: Source
    units: int

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

    def each(self, body: Callable[[Coord], None], gates: int = 1) -> None:
        """Run `body` on all units of some gates, as many at a time as a vector has lanes."""
        lanes, count = self.width(gates), gates * self.units
        full, rest = divmod(count, lanes)
        with self._width(lanes, None), self.k.b.loop(full) as i:
            body(Coord(i * lanes, 1, lanes))
        if rest:
            ramp = Coord(Const(full * lanes), 1, lanes)
            with self._width(lanes, ramp.compare("lt", count)):
                body(ramp)

    @contextmanager
    def _width(self, lanes: int, mask: Expr | None) -> Iterator[None]:
        k = self.k
        k.current, k.mask = lanes, None if mask is None else k.b.let(mask)
        yield
        k.current, k.mask = 1, None

    def read(self, state: Buffer, u: Coord) -> Expr:
        """Return the elements of a local array for the units u."""
        return self.k.b.let(Load(state, u.base, u.lanes, self.k.mask_for(u.lanes)))

    def gate(self, sums: Buffer, u: Coord, which: int) -> Expr:
        """Return the elements of a local array for the units u of one gate."""
        return self.read(sums, u + which * self.units)

    def write(self, state: Buffer, u: Coord, value: Expr) -> None:
        # An operand that is stretched over the units is one element for all of them.
        wide = value if value.lanes == u.lanes else Splat(value, u.lanes)
        self.k.b.store(state, u.base, wide, self.k.mask_for(u.lanes))

    def begin(self, sums: Buffer, b: Coord, t: Coord, gates: int) -> None:
        """Set the sums of the first gates to their part of xw."""
        self.each(lambda u: self.write(sums, u, self.xw([t, b, u])), gates)

    def add_product(self, sums: Buffer, state: Buffer, first: int, gates: int) -> None:
        """Add the state times the columns of r for some gates to their sums."""
        full, rest = divmod(self.units, ROWS)
        if full:
            with self.k.b.loop(full) as i:
                self._add_rows(sums, state, [i * ROWS + j for j in range(ROWS)], first, gates)
        if rest:
            last = [Const(full * ROWS + j) for j in range(rest)]
            self._add_rows(sums, state, last, first, gates)

    def _add_rows(
        self, sums: Buffer, state: Buffer, rows: Sequence[Expr], first: int, gates: int
    ) -> None:
        k = self.k
        factors = [k.b.let(Load(state, row)) for row in rows]

        def columns(u: Coord) -> None:
            at = u + first * self.units
            total = self.read(sums, at)
            for row, factor in zip(rows, factors, strict=True):
                total = k.m.fma(self.r([row, at]), factor, total)
            self.write(sums, at, total)

        self.each(columns, gates)


Step = Callable[[Coord, Coord], None]
"""Emits one step of one sequence: (sequence, step)."""


def scan(
    layer: Layer,
    reverse: bool,
    lengths: Source | None,
    states: list[tuple[Buffer, Source, Sink]],
    y: Sink,
    step: Step,
) -> None:
    """Run `step` on every sequence from its first step that counts to its last.

    `states` holds the local arrays, where they begin and where they end.
    """
    k = layer.k
    steps, batch = layer.xw.shape[:2]
    if batch == 0 or layer.units == 0:
        return
    with k.parallel([batch]) as (b,):
        for state, first, _ in states:
            _begin(layer, state, first, b)
        if steps:
            with k.loop(steps) as i:
                t = coord(steps - 1) - i if reverse else i
                _counted(layer, lengths, b, t, y, step)
        for state, _, last in states:
            _end(layer, state, last, b)


def _begin(layer: Layer, state: Buffer, first: Source, b: Coord) -> None:
    layer.each(lambda u: layer.write(state, u, first([b, u])))


def _end(layer: Layer, state: Buffer, last: Sink, b: Coord) -> None:
    layer.each(lambda u: last.store([b, u], layer.read(state, u)))


def _counted(layer: Layer, lengths: Source | None, b: Coord, t: Coord, y: Sink, step: Step) -> None:
    """Emit a step, or zeros where the sequence has no such step."""
    k = layer.k
    if lengths is None:
        step(b, t)
        return
    length = k.m.cast(lengths([b]), "i64")
    with k.b.when(t.compare("lt", length)):
        step(b, t)
    with k.b.otherwise():
        layer.each(lambda u: y.store([t, b, u], k.constant(0, layer.dtype)))


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


@push(Lstm)
def lstm(k: Loops, op: Lstm, ins: list[Source | None], outs: list[Sink]) -> None:
    xw, r, h0, c0, peepholes, lengths = operands(ins, 6)
    assert xw is not None and r is not None and h0 is not None and c0 is not None
    layer = Layer(k, xw, r, int(r.shape[0]))
    h, c, sums = layer.array(), layer.array(), layer.array(4)
    advanced = cell(k, op, peepholes)

    def step(b: Coord, t: Coord) -> None:
        def unit(u: Coord) -> None:
            gates = [layer.gate(sums, u, which) for which in range(4)]
            state, after = advanced(gates, layer.read(c, u), u)
            layer.write(c, u, after)
            layer.write(h, u, state)
            outs[0].store([t, b, u], state)

        layer.begin(sums, b, t, 4)
        layer.add_product(sums, h, 0, 4)
        layer.each(unit)

    scan(layer, op.reverse, lengths, [(h, h0, outs[1]), (c, c0, outs[2])], outs[0], step)


@push(Gru)
def gru(k: Loops, op: Gru, ins: list[Source | None], outs: list[Sink]) -> None:
    xw, r, h0, bias, lengths = operands(ins, 5)
    assert xw is not None and r is not None and h0 is not None
    layer = Layer(k, xw, r, int(r.shape[0]))
    h, sums, scaled = layer.array(), layer.array(3), layer.array()
    f, g = (_function(k, a, op.clip) for a in op.activations)

    def emit(b: Coord, t: Coord, u: Coord, z: Expr, inner: Expr) -> None:
        state = k.m.add(k.m.mul(k.m.sub(1.0, z), g(inner)), k.m.mul(z, layer.read(h, u)))
        layer.write(h, u, state)
        outs[0].store([t, b, u], state)

    def reset_after(b: Coord, t: Coord) -> None:
        def unit(u: Coord) -> None:
            z, s = f(layer.gate(sums, u, 0)), f(layer.gate(sums, u, 1))
            given = xw([t, b, u + 2 * layer.units])
            emit(b, t, u, z, k.m.add(given, k.m.mul(s, layer.gate(sums, u, 2))))

        assert bias is not None
        layer.begin(sums, b, t, 2)
        layer.each(lambda u: layer.write(sums, u + 2 * layer.units, bias([u])))
        layer.add_product(sums, h, 0, 3)
        layer.each(unit)

    def reset_before(b: Coord, t: Coord) -> None:
        layer.begin(sums, b, t, 3)
        layer.add_product(sums, h, 0, 2)
        layer.each(lambda u: layer.write(
            scaled, u, k.m.mul(f(layer.gate(sums, u, 1)), layer.read(h, u))))  # fmt: skip
        layer.add_product(sums, scaled, 2, 1)
        layer.each(lambda u: emit(b, t, u, f(layer.gate(sums, u, 0)), layer.gate(sums, u, 2)))

    step = reset_before if bias is None else reset_after
    scan(layer, op.reverse, lengths, [(h, h0, outs[1])], outs[0], step)


@push(Rnn)
def rnn(k: Loops, op: Rnn, ins: list[Source | None], outs: list[Sink]) -> None:
    xw, r, h0, lengths = operands(ins, 4)
    assert xw is not None and r is not None and h0 is not None
    layer = Layer(k, xw, r, int(r.shape[0]))
    h, sums = layer.array(), layer.array()
    f = _function(k, op.activations[0], op.clip)

    def step(b: Coord, t: Coord) -> None:
        def unit(u: Coord) -> None:
            state = f(layer.read(sums, u))
            layer.write(h, u, state)
            outs[0].store([t, b, u], state)

        layer.begin(sums, b, t, 1)
        layer.add_product(sums, h, 0, 1)
        layer.each(unit)

    scan(layer, op.reverse, lengths, [(h, h0, outs[1])], outs[0], step)


def operands(ins: list[Source | None], count: int) -> list[Source | None]:
    """Return as many operands, the absent ones at the end as None."""
    return [*ins, *[None] * (count - len(ins))]


def _function(k: Loops, which: Activation, clip: float) -> Callable[[Expr], Expr]:
    def apply(x: Expr) -> Expr:
        value = activate(k.m, which, clip, x)
        assert isinstance(value, Expr)
        return value

    return apply
