"""Converters for LSTM, whose state is in variables.

A layer without projection, clipping and normalization is one `Lstm`; others are unrolled step by
step.  Without an input gate the gate is 1 - f, and sigmoid(-x) is 1 - sigmoid(x).
"""

from __future__ import annotations

from dataclasses import dataclass

from alpenglow.frontends.tflite.convert.recurrent import (
    FORMULAS,
    both,
    check_inputs,
    floats,
    in_order,
    in_time,
    is_dynamic,
    of_floats,
    one_by_one,
    product_of,
    times,
)
from alpenglow.frontends.tflite.file.schema import Activation
from alpenglow.frontends.tflite.table import Made, Site, on, on_quantised
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.activation import Sigmoid, Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Mul, Neg, Sub
from alpenglow.ops.reduction.layer_norm import LayerNorm
from alpenglow.ops.sequence.recurrent import SIGMOID, Lstm
from alpenglow.ops.tensor.movement import Concat, Slice, Transpose

BASIC = 1
"""The kind of LSTM whose gates are one product."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Positions of the operands of a layer: weights of four gates, in TFLite's order i, f, c, o."""

    weights: int = 1
    recurrent: int = 5
    peepholes: int = 9
    biases: int = 12
    projection: int = 16
    h: int = 18
    c: int = 19
    norms: int = 20


FORWARD = Layer(1, 5, 9, 12, 16, 35, 36, 999)
BACKWARD = Layer(18, 22, 26, 29, 33, 37, 38, 999)


@on("UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions")
def unidirectional_sequence_lstm(s: Site) -> Made:
    check_recurrent(s)
    return in_order(s, run(s, in_time(s, s.rank(0, 3)), Layer(), False))


def check_recurrent(s: Site) -> None:
    """Raise UnsupportedError if recurrent weights are diagonals."""
    if s.option("diagonal_recurrent_tensors"):
        raise s.unsupported("diagonal_recurrent_tensors=true", "false")


@on("BIDIRECTIONAL_SEQUENCE_LSTM", "BidirectionalSequenceLSTMOptions")
def bidirectional_sequence_lstm(s: Site) -> Made:
    check_inputs(s, *range(39, 48))
    x = in_time(s, s.rank(0, 3))
    return both(s, run(s, x, FORWARD, False), run(s, x, BACKWARD, True))


@on("LSTM", "LSTMOptions")
def lstm(s: Site) -> Made:
    """One step, of either kind."""
    if s.option("kernel_type") == BASIC:
        return basic(s)
    x = s.rank(0, 2)
    y = run(s, s.reshaped(x, (1, *x.type.shape)), Layer(), False)
    return s.reshaped(y, y.type.shape[1:])


def basic(s: Site) -> Made:
    """Return the results of a step whose gates i, c, f, o are one product of x and h."""
    x, h, bias, c = (s.input(i) for i in (0, 1, 3, 4))
    s.activation(Activation.TANH)
    if is_dynamic(s, 2):
        raise s.unsupported("kernel_type BASIC with quantized weights", "float weights")
    joined = s.g(Concat(1), x, h)
    sums = s.apply(Add(), times(s, joined, 2), bias)
    batch, units = c.type.shape
    i, g, f, o = (s.g(Slice((0, units * k), (batch, units), (1, 1)), sums) for k in range(4))
    kept = s.g(Mul(), s.g(Sigmoid(), f), c)
    after = s.g(Add(), s.g(Mul(), s.g(Sigmoid(), i), s.g(Tanh(), g)), kept)
    return [s.g(Mul(), s.g(Sigmoid(), o), s.g(Tanh(), after)), after, joined, sums]


def run(s: Site, x: Value, at: Layer, reverse: bool) -> Value:
    """Return the results of a layer on x[T, B, I], and assign its state."""
    plain = s.optional(at.projection) is None and s.optional(at.norms + 1) is None
    plain &= not is_dynamic(s, at.weights + 1)
    if plain and not s.option("cell_clip") and s.activation(*Activation) in FORMULAS:
        return whole(s, x, at, reverse)
    return written_out(s, x, at, reverse)


def whole(s: Site, x: Value, at: Layer, reverse: bool) -> Value:
    """Return the results of `Lstm`, whose gates are in the order i, o, f, c."""
    order = (0, 3, 1, 2)
    ws = gates(s, at.weights)
    rs = gates(s, at.recurrent)
    bs = gates(s, at.biases)
    sums = product_of(s, x, s.g(Concat(0), *(ws[k] for k in order)))
    sums = s.apply(Add(), sums, s.g(Concat(0), *(bs[k] for k in order)))
    r = s.g(Transpose((1, 0)), s.g(Concat(0), *(rs[k] for k in order)))
    peepholes = [s.optional(at.peepholes + k) for k in range(3)]
    rows: Value | None = None
    if peepholes[1] is not None and peepholes[2] is not None:
        forget, out = peepholes[1], peepholes[2]
        into = s.g(Neg(), forget) if peepholes[0] is None else peepholes[0]
        rows = s.g(Concat(0), *(s.reshaped(v, (1, v.type.shape[0])) for v in (into, out, forget)))
    f = FORMULAS[s.activation(*FORMULAS)]
    op = Lstm(reverse, (SIGMOID, f, f))
    y, h, c = s.g.add(op, [sums, r, s.input(at.h), s.input(at.c), rows]).results
    s.assign(at.h, h)
    s.assign(at.c, c)
    return y


def gates(s: Site, first: int) -> list[Value]:
    """Return operands of the gates i, f, c and o; for a missing i, the negated operands of f."""
    forget, cell, out = (s.input(first + k) for k in (1, 2, 3))
    into = s.optional(first)
    return [s.g(Neg(), forget) if into is None else into, forget, cell, out]


def written_out(s: Site, x: Value, at: Layer, reverse: bool) -> Value:
    """Return the results of unrolled steps."""
    s.activation(Activation.TANH)
    state = s.input(at.h), s.input(at.c)
    made, (h, c) = one_by_one(s, x, reverse, state, lambda row, h, c: step(s, row, h, c, at))
    s.assign(at.h, h)
    s.assign(at.c, c)
    return made


def step(s: Site, x: Value, h: Value, c: Value, at: Layer) -> tuple[Value, Value]:
    """Return the next h and c."""
    sigmoid, tanh = Sigmoid(), Tanh()
    f = s.g(sigmoid, gate(s, x, h, at, 1, c))
    if s.optional(at.weights) is None:
        i = s.g(Sub(), s.filled(1, f), f)
    else:
        i = s.g(sigmoid, gate(s, x, h, at, 0, c))
    g = s.g(tanh, gate(s, x, h, at, 2, None))
    after = s.g(Add(), s.g(Mul(), f, c), s.g(Mul(), i, g))
    after = limited(s, after, clip_of(s, "cell_clip"))
    y = s.g(Mul(), s.g(sigmoid, gate(s, x, h, at, 3, after)), s.g(tanh, after))
    projection, bias = s.optional(at.projection), s.optional(at.projection + 1)
    if projection is not None:
        y = times(s, y, at.projection)
        y = y if bias is None else s.apply(Add(), y, bias)
        y = limited(s, y, clip_of(s, "proj_clip"))
    return y, after


def gate(s: Site, x: Value, h: Value, at: Layer, k: int, cell: Value | None) -> Value:
    """Return the input of gate k: sums of products with x, h and a cell, normalized if asked."""
    sums = s.g(Add(), times(s, x, at.weights + k), times(s, h, at.recurrent + k))
    peephole = at.peepholes + (0, 1, 0, 2)[k]
    if cell is not None and s.optional(peephole) is not None:
        sums = s.g(Add(), sums, s.apply(Mul(), cell, floats(s, peephole)))
    if (scale := s.optional(at.norms + k)) is not None:
        return s.g(LayerNorm(1, 1e-8), sums, scale, s.input(at.biases + k))
    return s.apply(Add(), sums, s.input(at.biases + k))


def limited(s: Site, x: Value, most: float) -> Value:
    """Return x clipped to plus and minus `most`, unless `most` is 0."""
    return s.g(Clip(-most, most), x) if most else x


def clip_of(s: Site, option: str) -> float:
    """Return the limit of an option, 0 for none; raise ModelError if it is negative."""
    clip = float(s.option(option))
    if clip < 0:
        raise s.wrong(f"{option} is {clip:g}, expected at least 0")
    return clip


on_quantised("LSTM")(of_floats(lstm))
on_quantised("BIDIRECTIONAL_SEQUENCE_LSTM")(of_floats(bidirectional_sequence_lstm))
