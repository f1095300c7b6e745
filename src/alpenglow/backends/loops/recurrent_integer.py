"""Loop form of an LSTM whose state is quantised in every step.

All sequences take a step before any takes the next, for they share its scale.  Their states
therefore stay in the results, h and c, until the last step.  A sequence's row of h is quantised
into a local array and multiplied by the weights, four of its bytes at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from alpenglow.backends.loops.coord import Coord, coord
from alpenglow.backends.loops.form import Loops, Sink, Source, push
from alpenglow.backends.loops.recurrent import ROWS, Layer, cell, operands
from alpenglow.kernel.expr import Bitcast, Buffer, Const, Expr, Load, Reduce, Register, Splat
from alpenglow.ops.recurrent_integer import STATE, WORD, LstmInteger, grid

WIDE = WORD * WORD
"""What the number of packed columns is a multiple of."""


@dataclass(frozen=True)
class Range:
    """The least and the greatest of what was seen since a step began, and 0."""

    layer: Layer
    low: Register
    high: Register

    @classmethod
    def of(cls, layer: Layer) -> Range:
        zero = Const(0.0, "f32", layer.width())
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
class Product:
    """A row of h as bytes, and the sums of its products with the columns of the weights."""

    layer: Layer
    bytes_: Buffer
    sums: Buffer
    words: int

    @classmethod
    def of(cls, layer: Layer) -> Product:
        b, words = layer.k.b, -(-layer.units // WORD)
        found = cls(layer, b.array("u8", words * WORD), b.array("i32", words * WIDE), words)
        # What is behind the last unit is multiplied, too: by weights of 0.
        for i in range(layer.units, words * WORD):
            b.store(found.bytes_, i, Const(0, "u8"))
        for i in range(4 * layer.units, words * WIDE):
            b.store(found.sums, i, Const(0, "i32"))
        return found

    def begin(self, zero: Expr, columns: Source, zeros: Source | None) -> None:
        """Set the sums to what zero points take away."""
        k, layer = self.layer.k, self.layer
        steps = k.m.neg(zero)
        total = None if zeros is None else k.m.neg(self._total())

        def start(u: Coord) -> None:
            found = k.m.mul(columns([u]), steps)
            if zeros is not None:
                found = k.m.add(found, k.m.mul(zeros([u]), total))
            layer.write(self.sums, u, found)

        layer.each(start, 4)

    def _total(self) -> Expr:
        k = self.layer.k
        total = k.b.var(Const(0, "i32"))
        with k.b.loop(self.layer.units) as i:
            k.b.set(total, k.m.add(total, k.m.cast(Load(self.bytes_, i), "i32")))
        return total

    def add(self) -> None:
        """Add the products to the sums, a few rows of words at once."""
        full, rest = divmod(self.words, ROWS)
        if full:
            with self.layer.k.b.loop(full) as i:
                self._add([i * ROWS + j for j in range(ROWS)])
        if rest:
            self._add([Const(full * ROWS + j) for j in range(rest)])

    def _add(self, rows: list[Expr]) -> None:
        k = self.layer.k
        lanes = min(k.lanes, WIDE)
        factors = [k.b.let(Bitcast(Load(self.bytes_, row * WORD, WORD), "i32")) for row in rows]
        with k.b.loop(self.words * WIDE // lanes) as i:
            acc: Expr = Load(self.sums, i * lanes, lanes)
            for row, factor in zip(rows, factors, strict=True):
                weights = self.layer.r([coord(row), Coord(i * (WORD * lanes), 1, WORD * lanes)])
                wide = factor if lanes == 1 else Splat(factor, lanes)
                acc = k.dot(wide, Bitcast(weights, "i32"), acc)
            k.b.store(self.sums, i * lanes, acc)


@push(LstmInteger)
def lstm_integer(k: Loops, op: LstmInteger, ins: list[Source | None], outs: list[Sink]) -> None:
    xw, r, columns, scale, h0, c0, peepholes, lengths, zeros = operands(ins, 9)
    assert xw is not None and r is not None and columns is not None
    assert scale is not None and h0 is not None and c0 is not None
    layer = Layer(k, xw, r, int(h0.shape[1]))
    steps, batch = xw.shape[:2]
    if batch == 0 or layer.units == 0:
        return
    y, h, c = outs
    seen, product, advanced = Range.of(layer), Product.of(layer), cell(k, op, peepholes)

    def begin(b: Coord, u: Coord) -> None:
        state = h0([b, u])
        h.store([b, u], state)
        c.store([b, u], c0([b, u]))
        seen.see(u, state)

    def quantize(b: Coord, u: Coord, s: Expr, z: Expr) -> None:
        layer.write(product.bytes_, u, STATE.scalar(k.m, h.load([b, u]), s, z))

    def finish(b: Coord, t: Coord, u: Coord, s: Expr) -> None:
        def gate(which: int) -> Expr:
            at = u + which * layer.units
            total = k.m.cast(layer.read(product.sums, at), "f32")
            return k.m.add(xw([t, b, at]), k.m.mul(total, k.m.mul(scale([at]), s)))

        state, after = advanced([gate(which) for which in range(4)], c.load([b, u]), u)
        c.store([b, u], after)
        h.store([b, u], state)
        y.store([t, b, u], state)
        seen.see(u, state)

    def step(b: Coord, t: Coord, s: Expr, z: Expr) -> None:
        layer.each(lambda u: quantize(b, u, s, z))
        product.begin(k.m.cast(z, "i32"), columns, zeros)
        product.add()
        layer.each(lambda u: finish(b, t, u, s))

    def turn(b: Coord, i: Coord, s: Expr, z: Expr) -> None:
        if lengths is None:
            step(b, coord(steps - 1) - i if op.reverse else i, s, z)
            return
        length = k.m.cast(lengths([b]), "i64")
        with k.b.when(i.compare("lt", length)):
            last = k.m.sub(k.m.sub(length, 1), i.expr())
            step(b, coord(k.inside(last, steps)) if op.reverse else i, s, z)
        with k.b.otherwise():
            layer.each(lambda u: y.store([i, b, u], k.constant(0, "f32")))

    with k.loop(batch) as b:
        layer.each(lambda u: begin(b, u))
    if not steps:
        return
    with k.loop(steps) as i:
        s, z = seen.taken()
        with k.loop(batch) as b:
            turn(b, i, s, z)
