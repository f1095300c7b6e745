"""Converters for losses."""

from __future__ import annotations

from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ops.loss import NegativeLogLikelihoodLoss
from alpenglow.ops.reduction import as_type, in_floats
from alpenglow.ops.softmax import LogSoftmax


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
    ignored = s.attribute("ignore_index")
    op = NegativeLogLikelihoodLoss(
        s.attribute("reduction", "mean"), () if ignored is None else (ignored,)
    )
    return s.g(op, x, s.input(1), weight)
