"""Losses and what else training adds to a graph: each appends nodes and returns a value.

Losses are means over the batch, scalars of the type of what they are of.
"""

from __future__ import annotations

import zlib

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.activation import Relu, Softplus
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Div, Maximum, Mul, Sub
from alpenglow.ops.elementwise.comparison import Equal, IsInf, Less
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Sqrt
from alpenglow.ops.reduction.reduction import (
    ArgMax,
    ReduceMean,
    ReduceSum,
    as_type,
    filled,
    in_floats,
)
from alpenglow.ops.reduction.softmax import LogSoftmax
from alpenglow.ops.sequence.ctc import Ctc
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Concat, Reshape, Transpose, append_axes, stretch
from alpenglow.ops.training.loss import NegativeLogLikelihoodLoss
from alpenglow.ops.training.training import Dropout
from alpenglow.train.step import counter


def cross_entropy(
    g: Graph, logits: Value, labels: Value, weight: Value | None = None,
    ignore: int | None = None, axis: int = 1,
) -> Value:  # fmt: skip
    """Return the mean of -log softmax(logits[N, C, …]) at the labels[N, …], integers below C.

    Classes lie along an `axis` of the logits that the labels do not have: 1 as in PyTorch, or -1 as
    in a model of language.  With a `weight`[C] it is the mean weighted by those of the labels;
    labels that are `ignore` do not count.  Others that are no class are a FeedError of the step.
    Raises TypeRuleError where labels have other extents than logits besides.
    """
    logits, labels = _in_rows(g, "cross_entropy", logits, labels, axis)
    classes = logits.type.shape[1]
    ignored = () if ignore is None else (ignore,)
    if ignore is None:
        labels = g(InRange(0, classes - 1, "label"), labels)
    else:
        void = g(Equal(), labels, filled(g, ignore, labels))
        some = g(InRange(0, classes - 1, "label"), g(Where(), void, filled(g, 0, labels), labels))
        labels = g(Where(), void, labels, some)
    scores = g(LogSoftmax(1), logits)
    return g(NegativeLogLikelihoodLoss("mean", ignored), scores, labels, weight)


def ctc(
    g: Graph, logits: Value, labels: Value, input_lengths: Value, label_lengths: Value,
    blank: int = 0, zero_infinity: bool = False,
) -> Value:  # fmt: skip
    """Return the mean of -log of how probable labels are, without a word on when each comes.

    logits[T, N, C] score the classes of each step, as in PyTorch, and as recurrent layers leave
    them; labels[N, S] are integers below C, none of them `blank`.  Of sequence n the first
    input_lengths[n] steps count, and the first label_lengths[n] labels: what is behind may be any.
    Lengths and labels that are out of range are a FeedError of the step.

    Each loss is divided by the number of its labels, if there is one, before the mean is taken
    (PyTorch's `mean`).  That of labels which no path through the steps gives, as they are more than
    steps or equal ones leave no room for blanks, is infinite, or 0 with `zero_infinity`; its
    gradient is 0 either way.  (Graves, Fernández, Gomez and Schmidhuber, 2006.)
    """
    if logits.type.rank != 3 or labels.type.rank != 2:
        raise TypeRuleError(
            f"ctc: logits are {logits.type} and labels {labels.type}, expected [T,N,C] and [N,S]"
        )
    steps, batch, classes = logits.type.shape
    if labels.type.shape[0] != batch:
        swapped = labels.type.shape[0] == steps
        raise TypeRuleError(
            f"ctc: labels are {labels.type}, expected {batch} rows for logits {logits.type}",
            hint="logits[T,N,C] have their steps first: Transpose((1, 0, 2))" if swapped else "",
        )
    input_lengths = g(InRange(0, steps, "input length"), input_lengths)
    label_lengths = g(InRange(0, labels.type.shape[1], "label length"), label_lengths)
    count = stretch(g, as_type(g, append_axes(g, label_lengths, 1), "i64"), labels.type.shape)
    counts = g(Less(), g(Iota(labels.type.shape, 1)), count)
    labels = g(Where(), counts, labels, filled(g, 0, labels))
    labels = g(InRange(0, classes - 1, "label"), labels)
    blanks = g(BitAnd(), counts, g(Equal(), labels, filled(g, blank, labels)))
    number = g(ReduceSum((1,), False), as_type(g, blanks, label_lengths.type.dtype))
    none = g(InRange(0, 0, f"number of blanks ({blank}) among the labels of a sequence"), number)
    label_lengths = g(Add(), label_lengths, none)
    scores = g(LogSoftmax(2), in_floats(g, logits))
    loss = g.add(Ctc(blank), [scores, labels, input_lengths, label_lengths]).results[0]
    if zero_infinity:
        loss = g(Where(), g(IsInf(), loss), filled(g, 0, loss), loss)
    share = g(Maximum(), label_lengths, filled(g, 1, label_lengths))
    return as_type(g, _mean(g, g(Div(), loss, as_type(g, share, loss.type.dtype))),
                   logits.type.dtype)  # fmt: skip


def mse(g: Graph, x: Value, y: Value) -> Value:
    """Return the mean of (x - y)²."""
    apart = g(Sub(), x, y)
    return _mean(g, g(Mul(), apart, apart))


def l1(g: Graph, x: Value, y: Value) -> Value:
    """Return the mean of |x - y|."""
    return _mean(g, g(Abs(), g(Sub(), x, y)))


def binary_cross_entropy(g: Graph, logits: Value, y: Value) -> Value:
    """Return the mean of -y log s - (1 - y) log(1 - s), s the sigmoid of the logits, y from 0 to 1.

    It is softplus(x) - x y, which nowhere overflows.
    """
    return _mean(g, g(Sub(), g(Softplus(), logits), g(Mul(), logits, y)))


def triplet(g: Graph, anchor: Value, near: Value, far: Value, margin: float = 1.0) -> Value:
    """Return the mean of max(0, |anchor - near| - |anchor - far| + margin) over rows[N, D].

    (Schroff, Kalenichenko and Philbin, 2015; lengths, not their squares, as in PyTorch.)
    """

    def length(x: Value) -> Value:
        apart = g(Sub(), anchor, x)
        apart = g(Add(), apart, filled(g, 1e-6, apart))
        return g(Sqrt(), g(ReduceSum((1,), False), g(Mul(), apart, apart)))

    excess = g(Sub(), length(near), length(far))
    return _mean(g, g(Relu(), g(Add(), excess, filled(g, margin, excess))))


def accuracy(g: Graph, logits: Value, labels: Value, axis: int = 1) -> Value:
    """Return the share of rows of logits[N, C, …] whose largest element is that at the label;
    classes lie along an `axis`, as those of `cross_entropy`."""
    logits, labels = _in_rows(g, "accuracy", logits, labels, axis)
    best = g(ArgMax(1, False), logits)
    hits = g(Equal(), as_type(g, best, labels.type.dtype), labels)
    return _mean(g, as_type(g, hits, "f32"))


def dropout(g: Graph, x: Value, share: float, seed: int = 0) -> Value:
    """Return x with a `share` of its elements 0, others in each step, and the rest made larger.

    What is dropped is told by the seed, the number of the step and how many there are before it in
    the graph, so a run can be repeated bit for bit.  A trained graph has no dropout any more.
    """
    before = sum(isinstance(n.op, Dropout) for n in g.nodes)
    own = g.constant(np.array([zlib.crc32(b"%d %d" % (seed, before))], np.uint32))
    step = g(Reshape((1,)), as_type(g, counter(g), "u32"))
    return g(Dropout(share), x, g(Concat(0), step, own))


def _in_rows(g: Graph, what: str, logits: Value, labels: Value, axis: int) -> tuple[Value, Value]:
    """Return logits whose classes lie along axis 1, and labels; rows where they lay elsewhere."""
    rank = logits.type.rank
    if not -rank <= axis < rank:
        raise TypeRuleError(f"{what}: axis is {axis}, expected an axis of {logits.type}")
    axis %= rank
    rest = tuple(a for a in range(rank) if a != axis)
    shape = tuple(logits.type.shape[a] for a in rest)
    if labels.type.shape != shape:
        raise TypeRuleError(
            f"{what}: the labels are {labels.type}, but the logits {logits.type} with classes "
            f"along axis {axis}",
            hint="axis= says which axis of the logits goes through classes",
        )
    if axis == 1:
        return logits, labels
    if axis != rank - 1:
        logits = g(Transpose((*rest, axis)), logits)
    count = product(shape)
    rows = g(Reshape((count, logits.type.shape[-1])), logits)
    return rows, g(Reshape((count,)), labels)


def _mean(g: Graph, x: Value) -> Value:
    if x.type.rank == 0:
        return x
    return g(ReduceMean(tuple(range(x.type.rank)), False), x)
