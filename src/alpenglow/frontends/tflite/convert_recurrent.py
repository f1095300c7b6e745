"""Converters for plain recurrent layers and filters with a memory (SVDF).

The state is a variable: what a call leaves there, the next one begins with.
"""

from __future__ import annotations

from alpenglow.base.errors import ModelError
from alpenglow.frontends.presume import presume
from alpenglow.frontends.tflite.activate import activated
from alpenglow.frontends.tflite.schema import Activation
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Value
from alpenglow.ops.arithmetic import Add, Mul
from alpenglow.ops.contraction import MatMul
from alpenglow.ops.movement import Concat, Slice, Transpose, stretch
from alpenglow.ops.recurrent import Activation as Formula
from alpenglow.ops.recurrent import Rnn
from alpenglow.ops.reduction import ReduceSum

FORMULAS: dict[Activation, Formula] = {
    Activation.NONE: ("affine", 1.0, 0.0),
    Activation.RELU: ("relu", 0.0, 0.0),
    Activation.TANH: ("tanh", 0.0, 0.0),
}


@on("RNN", "RNNOptions")
def rnn(s: Site) -> Made:
    """One step: act(x w + h r + b), which is the next h."""
    x, h = s.rank(0, 2), s.input(4)
    sums = s.g(Add(), times(s, x, s.input(1)), times(s, h, s.input(2)))
    y = activated(s, s.apply(Add(), sums, s.input(3)))
    s.assign(4, y)
    return y


@on("UNIDIRECTIONAL_SEQUENCE_RNN", "SequenceRNNOptions")
def unidirectional_sequence_rnn(s: Site) -> Made:
    return in_order(s, layer(s, in_time(s, s.rank(0, 3)), 1, False))


@on("BIDIRECTIONAL_SEQUENCE_RNN", "BidirectionalSequenceRNNOptions")
def bidirectional_sequence_rnn(s: Site) -> Made:
    """The second layer begins at the end; results are joined if that is asked for."""
    if any(s.optional(i) is not None for i in (9, 10, 11)):
        raise s.refuse("it has an auxiliary input")
    x = in_time(s, s.rank(0, 3))
    return both(s, layer(s, x, 1, False), layer(s, x, 5, True))


def layer(s: Site, x: Value, first: int, reverse: bool) -> Value:
    """Return what a layer makes of x[T, B, I], its operands standing from `first` on."""
    w, r, bias, h = (s.input(first + i) for i in range(4))
    which = s.choice("fused_activation_function", Activation)
    if which not in FORMULAS:
        raise s.refuse(f"there is nothing for the activation {which.name} in a layer")
    sums = s.apply(Add(), times(s, x, w), bias)
    op = Rnn(reverse, (FORMULAS[which],))
    y, last = s.g.add(op, [sums, s.g(Transpose((1, 0)), r), h]).results
    s.assign(first + 3, last)
    return y


def times(s: Site, x: Value, w: Value) -> Value:
    """Return x[…, I] times w[O, I]."""
    rows = s.reshaped(x, (product(x.type.shape[:-1]), x.type.shape[-1]))
    y = s.g(MatMul(), rows, s.g(Transpose((1, 0)), w))
    return s.reshaped(y, (*x.type.shape[:-1], w.type.shape[0]))


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
    x, w, over_time, state = s.rank(0, 2), s.rank(1, 2), s.rank(2, 2), s.input(4)
    rank, (filters, memory) = s.option("rank"), over_time.type.shape
    batch = x.type.shape[0]
    if rank < 1 or not presume(filters % rank, "=="):
        raise ModelError(f"{s.kind}: {filters} filters are not of rank {rank}")
    feature = s.reshaped(times(s, x, w), (batch, filters, 1))
    before = s.reshaped(state, (batch, filters, memory))
    kept = s.g(Slice((0, 0, 1), (batch, filters, memory - 1), (1, 1, 1)), before)
    after = s.g(Concat(2), kept, feature)
    s.assign(4, s.reshaped(after, state.type.shape))
    weighted = s.g(Mul(), after, stretch(s.g, over_time, after.type.shape))
    units = s.reshaped(s.g(ReduceSum((2,), False), weighted), (batch, filters // rank, rank))
    y = s.g(ReduceSum((2,), False), units)
    bias = s.optional(3)
    return activated(s, y if bias is None else s.apply(Add(), y, bias))
