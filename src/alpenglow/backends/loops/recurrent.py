"""Loop forms of recurrent layers: sequences in parallel, the units of a step in vectors.

A sequence keeps its state in local arrays, f32 for half precision, padded to whole vectors; the
lanes of the padding hold numbers that nobody reads.  The product of the state with the recurrent
weights runs along their rows, one broadcast element of the state at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from alpenglow.backends.loops.coord import Coord, coord
from alpenglow.backends.loops.form import HALVES, Loops, Sink, Source, push
from alpenglow.kernel.expr import Buffer, Expr, Load
from alpenglow.ops.recurrent import Activation, Gru, Lstm, Rnn, activate


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

    def array(self) -> Buffer:
        """Return a local array with an element a unit."""
        lanes = self.k.lanes
        return self.k.b.array(self.dtype, -(-self.units // lanes) * lanes)

    def each(self, body: Callable[[Coord], None]) -> None:
        """Run `body` on all units, as many at a time as a vector has lanes."""
        lanes = self.k.lanes
        while lanes > self.units:
            lanes //= 2
        full, rest = divmod(self.units, lanes)
        with self._width(lanes, None), self.k.b.loop(full) as i:
            body(Coord(i * lanes, 1, lanes))
        if rest:
            ramp = Coord(coord(full * lanes).base, 1, lanes)
            with self._width(lanes, ramp.compare("lt", self.units)):
                body(ramp)

    @contextmanager
    def _width(self, lanes: int, mask: Expr | None) -> Iterator[None]:
        k = self.k
        k.current, k.mask = lanes, None if mask is None else k.b.let(mask)
        yield
        k.current, k.mask = 1, None

    def read(self, state: Buffer, u: Coord) -> Expr:
        """Return the elements of a local array for the units u."""
        return self.k.b.let(Load(state, u.base, u.lanes))

    def write(self, state: Buffer, u: Coord, value: Expr) -> None:
        self.k.b.store(state, u.base, value)

    def copy(self, source: Buffer, target: Buffer) -> None:
        self.each(lambda u: self.write(target, u, self.read(source, u)))

    def gates(self, b: Coord, t: Coord, u: Coord, which: list[int]) -> list[Expr]:
        """Return the elements of xw for some gates of the units u."""
        return [self.xw([t, b, u + g * self.units]) for g in which]

    def products(self, state: Buffer, u: Coord, which: list[int]) -> list[Expr]:
        """Return the state times the columns of r for some gates of the units u."""
        k = self.k
        sums = [k.accumulator(0, self.dtype) for _ in which]
        with k.b.loop(self.units) as i:
            one = k.b.let(Load(state, i))
            for total, g in zip(sums, which, strict=True):
                k.set(total, k.m.fma(self.r([coord(i), u + g * self.units]), one, total))
        return list(sums)


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


def _counted(
    layer: Layer, lengths: Source | None, b: Coord, t: Coord, y: Sink, step: Step
) -> None:
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


@push(Lstm)
def lstm(k: Loops, op: Lstm, ins: list[Source | None], outs: list[Sink]) -> None:
    xw, r, h0, c0, peepholes, lengths = _operands(ins, 6)
    assert xw is not None and r is not None and h0 is not None and c0 is not None
    layer = Layer(k, xw, r, h0.shape[1])
    h, c, fresh = layer.array(), layer.array(), layer.array()
    f, g = (_function(k, a, op.clip) for a in op.activations[:2])
    last = _function(k, op.activations[2], 0.0)

    def peep(x: Expr, row: int, cell: Expr, u: Coord) -> Expr:
        return x if peepholes is None else k.m.add(x, k.m.mul(peepholes([coord(row), u]), cell))

    def step(b: Coord, t: Coord) -> None:
        def unit(u: Coord) -> None:
            recurrent = layer.products(h, u, [0, 1, 2, 3])
            given = layer.gates(b, t, u, [0, 1, 2, 3])
            i, o, forget, cell = map(k.m.add, given, recurrent)
            before = layer.read(c, u)
            i = f(peep(i, 0, before, u))
            forget = k.m.sub(1.0, i) if op.couple else f(peep(forget, 2, before, u))
            after = k.m.add(k.m.mul(forget, before), k.m.mul(i, g(cell)))
            state = k.m.mul(f(peep(o, 1, after, u)), last(after))
            layer.write(c, u, after)
            layer.write(fresh, u, state)
            outs[0].store([t, b, u], state)

        layer.each(unit)
        layer.copy(fresh, h)

    scan(layer, op.reverse, lengths, [(h, h0, outs[1]), (c, c0, outs[2])], outs[0], step)


@push(Gru)
def gru(k: Loops, op: Gru, ins: list[Source | None], outs: list[Sink]) -> None:
    xw, r, h0, bias, lengths = _operands(ins, 5)
    assert xw is not None and r is not None and h0 is not None
    layer = Layer(k, xw, r, h0.shape[1])
    h, fresh, scaled, update = (layer.array() for _ in range(4))
    f, g = (_function(k, a, op.clip) for a in op.activations)

    def emit(b: Coord, t: Coord, u: Coord, z: Expr, inner: Expr) -> None:
        (given,) = layer.gates(b, t, u, [2])
        new = k.m.mul(k.m.sub(1.0, z), g(k.m.add(given, inner)))
        state = k.m.add(new, k.m.mul(z, layer.read(h, u)))
        layer.write(fresh, u, state)
        outs[0].store([t, b, u], state)

    def reset_after(b: Coord, t: Coord) -> None:
        def unit(u: Coord) -> None:
            assert bias is not None
            *recurrent, hidden = layer.products(h, u, [0, 1, 2])
            z, s = (f(k.m.add(x, y)) for x, y in
                    zip(layer.gates(b, t, u, [0, 1]), recurrent, strict=True))  # fmt: skip
            emit(b, t, u, z, k.m.mul(s, k.m.add(hidden, bias([u]))))

        layer.each(unit)
        layer.copy(fresh, h)

    def reset_before(b: Coord, t: Coord) -> None:
        def prepare(u: Coord) -> None:
            z, s = (f(k.m.add(x, y)) for x, y in
                    zip(layer.gates(b, t, u, [0, 1]), layer.products(h, u, [0, 1]),
                        strict=True))  # fmt: skip
            layer.write(update, u, z)
            layer.write(scaled, u, k.m.mul(s, layer.read(h, u)))

        def finish(u: Coord) -> None:
            (inner,) = layer.products(scaled, u, [2])
            emit(b, t, u, layer.read(update, u), inner)

        layer.each(prepare)
        layer.each(finish)
        layer.copy(fresh, h)

    step = reset_before if bias is None else reset_after
    scan(layer, op.reverse, lengths, [(h, h0, outs[1])], outs[0], step)


@push(Rnn)
def rnn(k: Loops, op: Rnn, ins: list[Source | None], outs: list[Sink]) -> None:
    xw, r, h0, lengths = _operands(ins, 4)
    assert xw is not None and r is not None and h0 is not None
    layer = Layer(k, xw, r, h0.shape[1])
    h, fresh = layer.array(), layer.array()
    f = _function(k, op.activations[0], op.clip)

    def step(b: Coord, t: Coord) -> None:
        def unit(u: Coord) -> None:
            (recurrent,) = layer.products(h, u, [0])
            (given,) = layer.gates(b, t, u, [0])
            state = f(k.m.add(given, recurrent))
            layer.write(fresh, u, state)
            outs[0].store([t, b, u], state)

        layer.each(unit)
        layer.copy(fresh, h)

    scan(layer, op.reverse, lengths, [(h, h0, outs[1])], outs[0], step)


def _operands(ins: list[Source | None], count: int) -> list[Source | None]:
    """Return as many operands, the absent ones at the end as None."""
    return [*ins, *[None] * (count - len(ins))]


def _function(k: Loops, which: Activation, clip: float) -> Callable[[Expr], Expr]:
    def apply(x: Expr) -> Expr:
        value = activate(k.m, which, clip, x)
        assert isinstance(value, Expr)
        return value

    return apply
