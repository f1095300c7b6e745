"""Converters for plain recurrent layers and filters with a memory (SVDF).

The state is a variable: a call begins with the state that the last one left.  If only weights are
quantized, rows are quantized at run time before they are multiplied, as in LiteRT (`dynamic`).
"""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.frontends.presume import fixed, presume
from alpenglow.frontends.tflite.activate import activated
from alpenglow.frontends.tflite.dynamic import measured, own, stood_for
from alpenglow.frontends.tflite.file.schema import Activation
from alpenglow.frontends.tflite.quantised import check_weights, real
from alpenglow.frontends.tflite.table import Converter, Made, Site, on, on_quantised
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.sequence.recurrent import Activation as Formula
from alpenglow.ops.sequence.recurrent import Rnn
from alpenglow.ops.tensor.movement import Concat, Slice, Transpose, stretch

MOST_STEPS = 256
"""A sequence that is written out is no longer."""

FORMULAS: dict[Activation, Formula] = {
    Activation.NONE: ("affine", 1.0, 0.0),
    Activation.RELU: ("relu", 0.0, 0.0),
    Activation.TANH: ("tanh", 0.0, 0.0),
}


@on("RNN", "RNNOptions")
def rnn(s: Site) -> Made:
    """One step: act(x w + h r + b), which is the next h."""
    x, h = s.rank(0, 2), s.input(4)
    y = turn(s, x, h, 1)
    s.assign(4, y)
    return y


def turn(s: Site, x: Value, h: Value, first: int) -> Value:
    """Return the next h of a layer whose operands stand from `first` on."""
    sums = s.g(Add(), times(s, x, first), times(s, h, first + 1))
    return activated(s, s.apply(Add(), sums, s.input(first + 2)))


@on("UNIDIRECTIONAL_SEQUENCE_RNN", "SequenceRNNOptions")
def unidirectional_sequence_rnn(s: Site) -> Made:
    return in_order(s, layer(s, in_time(s, s.rank(0, 3)), 1, False))


@on("BIDIRECTIONAL_SEQUENCE_RNN", "BidirectionalSequenceRNNOptions")
def bidirectional_sequence_rnn(s: Site) -> Made:
    """The second layer begins at the end; results are joined if that is asked for."""
    check_inputs(s, 9, 10, 11)
    x = in_time(s, s.rank(0, 3))
    return both(s, layer(s, x, 1, False), layer(s, x, 5, True))


def check_inputs(s: Site, *auxiliary: int) -> None:
    """Raise UnsupportedError if there are operands of an auxiliary input."""
    if any(s.optional(i) is not None for i in auxiliary):
        raise s.unsupported("an auxiliary input", "one input")


def layer(s: Site, x: Value, first: int, reverse: bool) -> Value:
    """Return the results of a layer on x[T, B, I], whose operands begin at `first`."""
    h = s.input(first + 3)
    if is_dynamic(s, first):
        made, last = one_by_one(s, x, reverse, (h,), lambda row, h: (turn(s, row, h, first),))
        s.assign(first + 3, *last)
        return made
    which = s.activation(*FORMULAS)
    sums = s.apply(Add(), times(s, x, first), s.input(first + 2))
    op = Rnn(reverse, (FORMULAS[which],))
    r = s.g(Transpose((1, 0)), s.input(first + 1))
    y, last_h = s.g.add(op, [sums, r, h]).results
    s.assign(first + 3, last_h)
    return y


State = tuple[Value, ...]


def one_by_one(
    s: Site, x: Value, reverse: bool, state: State, step: Callable[..., State]
) -> tuple[Value, State]:
    """Return the first element of the state after each step over x[T, …], and the last state.

    `step` makes the next state of a row and what the state holds.
    """
    steps = fixed(x.type.shape[0])
    if steps > MOST_STEPS:
        raise s.refuse(f"sequence has {steps} steps, expected at most {MOST_STEPS} in a layer "
                       "with quantized weights, clipping, projection or normalization")  # fmt: skip
    made: list[Value] = []
    for t in reversed(range(steps)) if reverse else range(steps):
        row = s.g(Slice((t, 0, 0), (1, *x.type.shape[1:]), (1, 1, 1)), x)
        state = step(s.reshaped(row, x.type.shape[1:]), *state)
        made.append(s.reshaped(state[0], (1, *state[0].type.shape)))
    return s.g(Concat(0), *(made[::-1] if reverse else made)), state


def is_dynamic(s: Site, w: int) -> bool:
    """True if weights are quantized."""
    return s.declared(w).quantised


def times(s: Site, x: Value, w: int) -> Value:
    """Return x[…, I] times operand w[O, I]."""
    if is_dynamic(s, w):
        way = own(s.option("asymmetric_quantize_inputs"))
        x = stood_for(s, measured(s, x, (x.type.rank - 1,), way))
    return product_of(s, x, floats(s, w))


def product_of(s: Site, x: Value, w: Value) -> Value:
    """Return x[…, I] times w[O, I]."""
    rows = s.reshaped(x, (product(x.type.shape[:-1]), x.type.shape[-1]))
    y = s.g(MatMul(), rows, s.g(Transpose((1, 0)), w))
    return s.reshaped(y, (*x.type.shape[:-1], w.type.shape[0]))


def floats(s: Site, i: int) -> Value:
    """Return operand i, dequantized if it is quantized."""
    if not s.declared(i).quantised:
        return s.input(i)
    check_weights(s, i, "i8")
    return real(s, i)


def both(s: Site, forward: Value, backward: Value) -> Made:
    """Return the results of two layers, one behind the other on the last axis if merged."""
    if s.option("merge_outputs"):
        return in_order(s, s.g(Concat(2), forward, backward))
    return [in_order(s, forward), in_order(s, backward)]


def in_time(s: Site, x: Value) -> Value:
    """Return sequences with time first."""
    return x if s.option("time_major") else s.g(Transpose((1, 0, 2)), x)


def in_order(s: Site, y: Value) -> Value:
    """Return sequences whose time is first as the operand has them."""
    return y if s.option("time_major") else s.g(Transpose((1, 0, 2)), y)


@on("SVDF", "SVDFOptions")
def svdf(s: Site) -> Made:
    """Features of each step are kept for a while, weighted over time, and added up by rank."""
    x, _, over_time, state = s.rank(0, 2), s.rank(1, 2), s.rank(2, 2), s.input(4)
    filters, memory = over_time.type.shape
    rank, batch = rank_of(s, filters), x.type.shape[0]
    feature = s.reshaped(times(s, x, 1), (batch, filters, 1))
    before = s.reshaped(state, (batch, filters, memory))
    kept = s.g(Slice((0, 0, 1), (batch, filters, memory - 1), (1, 1, 1)), before)
    after = s.g(Concat(2), kept, feature)
    s.assign(4, s.reshaped(after, state.type.shape))
    weighted = s.g(Mul(), after, stretch(s.g, floats(s, 2), after.type.shape))
    units = s.reshaped(s.g(ReduceSum((2,), False), weighted), (batch, filters // rank, rank))
    y = s.g(ReduceSum((2,), False), units)
    bias = s.optional(3)
    return activated(s, y if bias is None else s.apply(Add(), y, bias))


def rank_of(s: Site, filters: Dim) -> int:
    """Return the option `rank`, which divides the number of filters."""
    rank = int(s.option("rank"))
    if rank < 1 or not presume(filters % rank, "=="):
        raise s.wrong(f"rank is {rank}, expected at least 1 and a divisor of {filters}, "
                      "the number of filters")  # fmt: skip
    return rank


def of_floats(convert: Converter) -> Converter:
    """Return a converter that refuses input other than f32; weights may be quantized."""

    def made(s: Site) -> Made:
        if s.declared(0).dtype != "f32":
            raise s.unsupported(f"input dtype {s.declared(0).dtype}", "f32")
        return convert(s)

    return made


on_quantised("RNN")(of_floats(rnn))
on_quantised("UNIDIRECTIONAL_SEQUENCE_RNN")(of_floats(unidirectional_sequence_rnn))
