"""Loop form of an LSTM whose state is quantized in every step.

All sequences take a step before any takes the next, for they share its scale.  Their states
therefore stay in the results, h and c, until the last step.  A few sequences at a time have their
rows of h quantized into a local array, and are multiplied by the weights, which are read once for
them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.ir.dims import is_open
from alpenglow.kernel.expr import (
    Bitcast,
    Buffer,
    Const,
    Expr,
    Load,
    Reduce,
    Register,
    Splat,
    lift,
)
from alpenglow.loops.control.rows import Columns
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.ops.sequence.recurrent import Activation, activate
from alpenglow.ops.sequence.recurrent_integer import PANEL, STATE, WORD, LstmInteger, grid

TOGETHER = 8
"""How many sequences are multiplied at once at most."""

OPEN = 4
"""How many are where their number is open."""

CHAINS = 8
"""Sums that do not wait for each other, so that multiply-adds follow at once."""


@dataclass(frozen=True)
class Layer:
    """A layer while its kernel is built; `xw` and `r` are its operands."""

    k: Loops
    xw: Source
    r: Source
    units: int

    @property
    def columns(self) -> Columns:
        """The units of a sequence, which are taken in vectors."""
        return Columns(self.k, self.units)

    def read(self, state: Buffer, u: Coord) -> Expr:
        """Return the elements of a local array for the units u."""
        return self.k.b.let(Load(state, u.base, u.lanes, self.k.mask_for(u.lanes)))

    def write(self, state: Buffer, u: Coord, value: Expr) -> None:
        # An operand that is stretched over the units is one element for all of them.
        wide = value if value.lanes == u.lanes else Splat(value, u.lanes)
        self.k.b.store(state, u.base, wide, self.k.mask_for(u.lanes))


@dataclass(frozen=True)
class StepRange:
    """The least and the greatest of what was seen since a step began, and 0."""

    layer: Layer
    low: Register
    high: Register

    @classmethod
    def of(cls, layer: Layer) -> StepRange:
        zero = Const(0.0, "f32", layer.columns.lanes)
        return cls(layer, layer.k.b.var(zero), layer.k.b.var(zero))

    def see(self, u: Coord, value: Expr) -> None:
        k = self.layer.k
        wide = value if value.lanes == u.lanes else Splat(value, u.lanes)
        mask = k.mask_for(u.lanes)
        if mask is not None:
            wide = k.m.where(mask, wide, 0.0)
        k.b.set(self.low, k.m.minimum(self.low, wide))
        k.b.set(self.high, k.m.maximum(self.high, wide))

    def taken(self) -> tuple[Expr, Expr]:
        """Return the scale and the zero point of what was seen, and begin again."""
        k, one = self.layer.k, self.low.lanes == 1
        low = k.b.let(self.low if one else Reduce("min", self.low))
        high = k.b.let(self.high if one else Reduce("max", self.high))
        scale, zero = grid(k.m, low, high)
        for register in (self.low, self.high):
            k.b.set(register, Const(0.0, "f32", register.lanes))
        return scale, zero


@dataclass(frozen=True)
class ByteProduct:
    """Rows of h as bytes, and the sums of their products with the columns of the weights."""

    layer: Layer
    rows: Buffer
    sums: Buffer
    words: int
    panels: int
    count: int

    @classmethod
    def of(cls, layer: Layer, count: int) -> ByteProduct:
        """Return arrays for so many sequences."""
        b = layer.k.b
        panels, words = layer.r.shape[:2]
        rows = b.array("u8", count * words * WORD)
        # What is behind the last unit is multiplied, too: by weights of 0.
        for j in range(count):
            for i in range(layer.units, words * WORD):
                b.store(rows, j * words * WORD + i, Const(0, "u8"))
        return cls(layer, rows, b.array("i32", count * panels * PANEL), words, panels, count)

    def row(self, j: Expr) -> Expr:
        """Return where the bytes of a sequence begin."""
        return j * (self.words * WORD)

    def total(self, j: Expr, u: Coord) -> Expr:
        """Return the sums of a sequence for some columns."""
        return self.layer.read(self.sums, u + j * (self.panels * PANEL))

    def steps(self, j: Expr) -> Expr:
        """Return the sum of the bytes of a sequence."""
        k = self.layer.k
        total = k.b.var(Const(0, "i32"))
        with k.b.loop(self.layer.units) as i:
            k.b.set(total, k.m.add(total, k.m.cast(Load(self.rows, self.row(j) + i), "i32")))
        return total

    def multiply(self, count: int) -> None:
        """Compute the sums of so many sequences."""
        k = self.layer.k
        lanes = min(k.lanes, 16)
        across, most = PANEL // lanes, (16 if lanes == 16 else 8) // count
        while across > max(1, most):
            across //= 2
        with k.b.loop(self.panels) as panel, k.b.loop(PANEL // (across * lanes)) as part:
            self._block(panel, part * (across * lanes), count, across, lanes)

    def _block(self, panel: Expr, column: Expr, count: int, across: int, lanes: int) -> None:
        """Sum up `across` vectors of columns in registers."""
        k = self.layer.k
        chains = max(1, CHAINS // (count * across))
        none = Const(0, "i32", lanes)
        sums = [[k.b.var(none) for _ in range(count * across)] for _ in range(chains)]

        def add(word: Expr, into: list[Register]) -> None:
            weights = [
                k.b.let(self._weights(panel, word, column + v * lanes, lanes))
                for v in range(across)
            ]
            for j in range(count):
                state = Load(self.rows, self.row(Const(j)) + word * WORD, WORD)
                one: Expr = k.b.let(Bitcast(state, "i32"))
                wide = one if lanes == 1 else k.b.let(Splat(one, lanes))
                for v, w in enumerate(weights):
                    acc = into[j * across + v]
                    k.b.set(acc, k.dot(wide, w, acc))

        full, rest = divmod(self.words, chains)
        with k.b.loop(full) as i:
            for chain, into in enumerate(sums):
                add(i * chains + chain, into)
        for chain in range(rest):
            add(Const(full * chains + chain), sums[chain])
        for n, acc in enumerate(sums[0]):
            total: Expr = acc
            for other in sums[1:]:
                total = k.m.add(total, other[n])
            j, v = divmod(n, across)
            at = panel * PANEL + column + (j * self.panels * PANEL + v * lanes)
            k.b.store(self.sums, at, total)

    def _weights(self, panel: Expr, word: Expr, column: Expr, lanes: int) -> Expr:
        at = [coord(panel), coord(word), Coord(column * WORD, 1, lanes * WORD)]
        return Bitcast(self.layer.r(at), "i32")


def together(batch: int, words: int, scratch: int) -> int:
    """Return how many sequences of a batch are multiplied at once, most of them alike."""
    fitting = max(1, scratch // (WORD * WORD * WORD * words))
    if is_open(batch):
        return min(OPEN, fitting)
    groups = -(-batch // min(TOGETHER, fitting))
    return -(-batch // groups)


@dataclass(frozen=True)
class Steps:
    """The kernel of a layer while it is built: what its steps read and write."""

    op: LstmInteger
    layer: Layer
    product: ByteProduct
    seen: StepRange
    columns: Source
    scale: Source
    peepholes: Source | None
    lengths: Source | None
    zeros: Source | None
    y: Sink
    h: Sink
    c: Sink

    def begin(self, h0: Source, c0: Source) -> None:
        """Copy the initial states to where the states stay."""

        def unit(b: Coord, u: Coord) -> None:
            state = h0([b, u])
            self.h.store([b, u], state)
            self.c.store([b, u], c0([b, u]))
            self.seen.see(u, state)

        with self.layer.k.loop(self.h.shape[0]) as b:
            self.layer.columns.each(lambda u: unit(b, u))

    def group(self, first: Coord, size: Expr, i: Coord, s: Expr, z: Expr) -> None:
        """Take step i of a few sequences, whose states have the scale s and the zero point z."""
        b = self.layer.k.b
        with b.loop(size) as j:
            self._quantize(j, first + j, s, z)
        # Sequences that are absent are multiplied as well, whatever their bytes are.
        self.product.multiply(int(size.value) if isinstance(size, Const) else self.product.count)
        with b.loop(size) as j:
            self._end(j, first + j, i, s, z)

    def _quantize(self, j: Expr, b: Coord, s: Expr, z: Expr) -> None:
        layer, at = self.layer, self.product.row(j)

        def unit(u: Coord) -> None:
            state = STATE.scalar(layer.k.m, self.h.load([b, u]), s, z)
            layer.write(self.product.rows, u + at, state)

        layer.columns.each(unit)

    def _end(self, j: Expr, b: Coord, i: Coord, s: Expr, z: Expr) -> None:
        """Finish step i of a sequence, or store zeros where it has no such step."""
        k, steps = self.layer.k, self.y.shape[0]
        if self.lengths is None:
            self._finish(j, b, coord(steps - 1) - i if self.op.reverse else i, s, z)
            return
        length = k.m.minimum(k.m.cast(self.lengths([b]), "i64"), k.extent(steps, "i64"))
        with k.b.when(i.compare("lt", length)):
            last = k.m.sub(k.m.sub(length, 1), i.expr())
            self._finish(j, b, coord(k.inside(last, steps)) if self.op.reverse else i, s, z)
        with k.b.otherwise():
            self.layer.columns.each(lambda u: self.y.store([i, b, u], k.constant(0, "f32")))

    def _finish(self, j: Expr, b: Coord, t: Coord, s: Expr, z: Expr) -> None:
        """Compute the next states of a sequence of the sums of its products."""
        layer, m = self.layer, self.layer.k.m
        advanced = cell(layer.k, self.op, self.peepholes)
        less = m.neg(m.cast(z, "i32"))
        lesser = None if self.zeros is None else m.neg(self.product.steps(j))

        def gate(at: Coord) -> Expr:
            total = m.add(self.product.total(j, at), m.mul(self.columns([at]), less))
            if self.zeros is not None:
                total = m.add(total, m.mul(self.zeros([at]), lesser))
            wide = m.mul(m.cast(total, "f32"), m.mul(self.scale([at]), s))
            return m.add(layer.xw([t, b, at]), wide)

        def unit(u: Coord) -> None:
            gates = [gate(u + which * layer.units) for which in range(4)]
            state, after = advanced(gates, self.c.load([b, u]), u)
            self.c.store([b, u], after)
            self.h.store([b, u], state)
            self.y.store([t, b, u], state)
            self.seen.see(u, state)

        layer.columns.each(unit)


def cell(
    k: Loops, op: LstmInteger, peepholes: Source | None
) -> Callable[[list[Expr], Expr, Coord], tuple[Expr, Expr]]:
    """Return a function from the sums of gates and c of some units to their next h and c."""
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


def _function(k: Loops, which: Activation, clip: float) -> Callable[[Expr], Expr]:
    def apply(x: Expr) -> Expr:
        value = activate(k.m, which, clip, x)
        assert isinstance(value, Expr)
        return value

    return apply


@push(LstmInteger)
def lstm_integer(k: Loops, op: LstmInteger, ins: list[Source | None], outs: list[Sink]) -> None:
    padded: list[Source | None] = [*ins, *[None] * (9 - len(ins))]
    xw, r, columns, scale, h0, c0, peepholes, lengths, zeros = padded
    assert xw is not None and r is not None and columns is not None
    assert scale is not None and h0 is not None and c0 is not None
    layer = Layer(k, xw, r, int(h0.shape[1]))
    steps, batch = xw.shape[:2]
    if batch == 0 or layer.units == 0:
        return
    count = together(batch, int(r.shape[1]), k.facts.scratch)
    product, seen = ByteProduct.of(layer, count), StepRange.of(layer)
    run = Steps(op, layer, product, seen, columns, scale, peepholes, lengths, zeros, *outs)
    run.begin(h0, c0)
    if not steps:
        return
    full, rest = divmod(batch, count)
    with k.loop(steps) as i:
        s, z = seen.taken()
        with k.loop(full) as g:
            run.group(g * count, lift(count), i, s, z)
        if is_open(rest) or rest:
            with k.b.when(k.m.gt(lift(rest), 0)):
                run.group(coord(full * count), lift(rest), i, s, z)
