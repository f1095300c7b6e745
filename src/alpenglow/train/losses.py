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
    """Append the mean cross entropy of logits[N, C, …] and labels[N, …].

    A label outside 0 to C - 1 raises FeedError in the step.

    Args:
        g: the graph.
        logits: a tensor of floats.
        labels: integers from 0 to C - 1.
        weight: the weights of the classes, [C]; each label then counts by its weight.
        ignore: a label that does not count; None: all count.
        axis: the axis of the classes: 1 as in PyTorch, or -1 for language models.

    Returns:
        A scalar.

    Raises:
        TypeRuleError: if the other dimensions of logits and labels differ.

    Example:
        >>> g = ag.Graph("loss")
        >>> logits, labels = g.input("logits", "f32[2,3]"), g.input("labels", "i64[2]")
        >>> _ = g.output("loss", ag.train.cross_entropy(g, logits, labels))
        >>> loss = ag.compile(g)(np.zeros((2, 3), np.float32), np.array([0, 2]))
        >>> round(float(loss), 3)
        1.099
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
    """Append the mean CTC loss: -log of the probability of labels without an alignment.

    Each loss is divided by the number of its labels, if there are any, before the mean is taken
    (PyTorch's `mean`).  The loss of labels that no path through the steps produces is infinite; its
    gradient is 0.  Lengths and labels out of range raise FeedError in the step (Graves et al.,
    2006).

    Args:
        g: the graph.
        logits: scores [T, N, C] of the classes of each step.
        labels: integers [N, S] from 0 to C - 1, none of them `blank`.
        input_lengths: the number of steps [N] of each sequence; the others are ignored.
        label_lengths: the number of labels [N] of each sequence; the others are ignored.
        blank: the class between labels.
        zero_infinity: True replaces infinite losses by 0.

    Returns:
        A scalar.

    Example:
        >>> g = ag.Graph("loss")
        >>> logits, labels = g.input("logits", "f32[5,2,4]"), g.input("labels", "i64[2,2]")
        >>> steps, counts = g.input("steps", "i64[2]"), g.input("counts", "i64[2]")
        >>> ag.train.ctc(g, logits, labels, steps, counts).type
        f32[]
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
    """Append the mean squared error: the mean of (x - y)².

    Args:
        g: the graph.
        x: a tensor of floats.
        y: a tensor of the same type.

    Returns:
        A scalar.

    Example:
        >>> g = ag.Graph("loss")
        >>> _ = g.output("loss", ag.train.mse(g, g.input("x", "f32[2]"), g.input("y", "f32[2]")))
        >>> float(ag.compile(g)(np.array([1, 2], np.float32), np.array([1, 4], np.float32)))
        2.0
    """
    apart = g(Sub(), x, y)
    return _mean(g, g(Mul(), apart, apart))


def l1(g: Graph, x: Value, y: Value) -> Value:
    """Append the mean absolute error: the mean of `abs(x - y)`.

    Args:
        g: the graph.
        x: a tensor of floats.
        y: a tensor of the same type.

    Returns:
        A scalar.

    Example:
        >>> g = ag.Graph("loss")
        >>> _ = g.output("loss", ag.train.l1(g, g.input("x", "f32[2]"), g.input("y", "f32[2]")))
        >>> float(ag.compile(g)(np.array([1, 2], np.float32), np.array([1, 4], np.float32)))
        1.0
    """
    return _mean(g, g(Abs(), g(Sub(), x, y)))


def binary_cross_entropy(g: Graph, logits: Value, y: Value) -> Value:
    """Append the mean binary cross entropy of logits x and probabilities y.

    It is computed as softplus(x) - x y, which does not overflow.

    Args:
        g: the graph.
        logits: a tensor of floats.
        y: probabilities from 0 to 1, of the same type.

    Returns:
        A scalar.

    Example:
        >>> g = ag.Graph("loss")
        >>> x, y = g.input("x", "f32[2]"), g.input("y", "f32[2]")
        >>> _ = g.output("loss", ag.train.binary_cross_entropy(g, x, y))
        >>> zeros = np.zeros(2, np.float32)
        >>> round(float(ag.compile(g)(zeros, zeros)), 3)
        0.693
    """
    return _mean(g, g(Sub(), g(Softplus(), logits), g(Mul(), logits, y)))


def triplet(g: Graph, anchor: Value, near: Value, far: Value, margin: float = 1.0) -> Value:
    """Append the mean triplet loss: anchors should be nearer to `near` than to `far`.

    The loss of a row is max(0, d(anchor, near) - d(anchor, far) + margin), where d is the Euclidean
    distance, not squared, as in PyTorch (Schroff, Kalenichenko and Philbin, 2015).

    Args:
        g: the graph.
        anchor: rows of floats [N, D].
        near: rows that should be near to the anchors.
        far: rows that should be far from the anchors.
        margin: the difference of distances from which the loss is 0.

    Returns:
        A scalar.

    Example:
        >>> g = ag.Graph("loss")
        >>> rows = [g.input(name, "f32[4,8]") for name in ("anchor", "near", "far")]
        >>> ag.train.triplet(g, *rows).type
        f32[]
    """

    def length(x: Value) -> Value:
        apart = g(Sub(), anchor, x)
        apart = g(Add(), apart, filled(g, 1e-6, apart))
        return g(Sqrt(), g(ReduceSum((1,), False), g(Mul(), apart, apart)))

    excess = g(Sub(), length(near), length(far))
    return _mean(g, g(Relu(), g(Add(), excess, filled(g, margin, excess))))


def accuracy(g: Graph, logits: Value, labels: Value, axis: int = 1) -> Value:
    """Append the share of rows of logits[N, C, …] whose largest element is at the label.

    Args:
        g: the graph.
        logits: a tensor of floats.
        labels: integers from 0 to C - 1.
        axis: the axis of the classes.

    Returns:
        A scalar.

    Example:
        >>> g = ag.Graph("loss")
        >>> logits, labels = g.input("logits", "f32[2,3]"), g.input("labels", "i64[2]")
        >>> _ = g.output("accuracy", ag.train.accuracy(g, logits, labels))
        >>> float(ag.compile(g)(np.eye(2, 3, dtype=np.float32), np.array([0, 2])))
        0.5
    """
    logits, labels = _in_rows(g, "accuracy", logits, labels, axis)
    best = g(ArgMax(1, False), logits)
    hits = g(Equal(), as_type(g, best, labels.type.dtype), labels)
    return _mean(g, as_type(g, hits, "f32"))


def dropout(g: Graph, x: Value, share: float, seed: int = 0) -> Value:
    """Append a dropout: set a share of the elements to 0 in each step and scale up the others.

    Seed, number of the step and number of dropouts before determine the elements, so a run can be
    repeated bit for bit.  `Trainer.trained` removes dropouts.

    Args:
        g: the graph.
        x: a tensor of floats.
        share: the share of elements that become 0, from 0 to below 1.
        seed: the seed.

    Returns:
        The result.

    Example:
        >>> g = ag.Graph("layer")
        >>> ag.train.dropout(g, g.input("x", "f32[4,8]"), 0.1).type
        f32[4,8]
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
