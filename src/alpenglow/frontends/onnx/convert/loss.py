"""Converters for losses."""

from __future__ import annotations

from alpenglow.frontends.onnx.table import Made, Site, on, scalar
from alpenglow.frontends.presume import presume
from alpenglow.ir.graph import Value
from alpenglow.ir.types import holds
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.reduction.reduction import as_type, in_floats
from alpenglow.ops.reduction.softmax import LogSoftmax
from alpenglow.ops.tensor.places import INDICES
from alpenglow.ops.training.loss import NegativeLogLikelihoodLoss


@on("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood_loss(s: Site) -> Made:
    return likelihood(s, s.input(0), s.optional(2))


@on("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(s: Site) -> Made:
    x, weight = s.input(0), s.optional(2)
    wide = in_floats(s.g, x)
    logarithms = s.g(LogSoftmax(1), wide)
    weight = None if weight is None else as_type(s.g, weight, wide.type.dtype)
    loss = likelihood(s, logarithms, weight)
    return [as_type(s.g, v, x.type.dtype) for v in (loss, logarithms)]


def likelihood(s: Site, x: Value, weight: Value | None) -> Value:
    """Return the negative log likelihood of the targets, by the attributes of the node."""
    number = s.attribute("ignore_index")
    ignored = () if number is None or not holds(s.input(1).type.dtype, number) else (number,)
    op = NegativeLogLikelihoodLoss(s.attribute("reduction", "mean"), ignored)
    return s.g(op, x, checked(s, x, op.ignored), weight)


def checked(s: Site, x: Value, ignored: tuple[int, ...]) -> Value:
    """Return the targets, each of which is a class of x[N, C, …] or ignored.

    Negative ones count from the end, as they do in the function by which ONNX defines the loss.
    """
    target = s.input(1)
    if x.type.rank < 2 or target.type.dtype not in INDICES:
        return target  # the type rule of the loss says what is wrong
    presume(x.type.shape[1], "!=")  # without classes it does so, too, in an import of its own
    if not ignored:
        return s.indices(target, x.type.shape[1], 1)
    number = scalar(s.g, ignored[0], target)
    void = s.g(Equal(), target, number)
    classes = s.indices(s.g(Where(), void, scalar(s.g, 0, target), target), x.type.shape[1], 1)
    return s.g(Where(), void, number, classes)
