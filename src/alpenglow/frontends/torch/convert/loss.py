"""Converters for losses that stay whole, as PyTorch's own parts round between them."""

from __future__ import annotations

from alpenglow.base.errors import ModelError
from alpenglow.frontends.numbers import wide
from alpenglow.frontends.shapes import common_shape
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Clip, Div, Minimum, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.logarithm import Log1p
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.ops.reduction.reduction import ReduceMean, ReduceSum, filled
from alpenglow.ops.training.loss import BinaryCrossEntropy

MEAN = 1
"""What `reduction` is by default; 0 is none, 2 the sum."""


@on("aten.binary_cross_entropy_with_logits.default")
def cross_entropy_of_logits(
    s: Site, x: Value, target: Value, weight: Value | None = None,
    pos_weight: Value | None = None, reduction: int = MEAN,
) -> Made:  # fmt: skip
    """(1 - t) x - log(sigmoid(x)), this times 1 + (p - 1) t where p is the positives' weight."""
    g, dtype, shape = s.g, wide(s.result.dtype), x.type.shape
    y, t = s.broadcast(s.cast(x, dtype), s.cast(target, dtype), shape=shape)
    one = filled(g, 1, y)
    logarithm = g(Sub(), g(Minimum(), y, filled(g, 0, y)),
                  g(Log1p(), g(Exp(), g(Neg(), g(Abs(), y)))))  # fmt: skip
    if pos_weight is not None:
        (p,) = s.broadcast(s.cast(pos_weight, dtype), shape=shape)
        logarithm = g(Mul(), logarithm, g(Add(), g(Mul(), g(Sub(), p, one), t), one))
    loss = g(Sub(), g(Mul(), g(Sub(), one, t), y), logarithm)
    if weight is not None:
        loss = g(Mul(), loss, *s.broadcast(s.cast(weight, dtype), shape=shape))
    return s.cast(reduced(s, loss, reduction), s.result.dtype)


@on("aten.binary_cross_entropy.default")
def cross_entropy_of_two(
    s: Site, x: Value, target: Value, weight: Value | None = None, reduction: int = MEAN
) -> Made:
    dtype, shape = wide(s.result.dtype), x.type.shape
    y, t = s.broadcast(s.cast(x, dtype), s.cast(target, dtype), shape=shape)
    loss = s.g(BinaryCrossEntropy(), y, t)
    if weight is not None:
        loss = s.g(Mul(), loss, *s.broadcast(s.cast(weight, dtype), shape=shape))
    return s.cast(reduced(s, loss, reduction), s.result.dtype)


@on("aten.huber_loss.default")
def huber(s: Site, x: Value, target: Value, reduction: int = MEAN, delta: float = 1.0) -> Made:
    g, distance = s.g, distances(s, x, target)
    half, width = filled(g, 0.5 * delta, distance), filled(g, delta, distance)
    line = g(Mul(), g(Sub(), distance, half), width)
    loss = g(Where(), g(Less(), distance, width), half_square(s, distance, delta), line)
    return s.cast(reduced(s, loss, reduction), s.result.dtype)


@on("aten.smooth_l1_loss.default")
def smooth_l1(s: Site, x: Value, target: Value, reduction: int = MEAN, beta: float = 1.0) -> Made:
    g, loss = s.g, distances(s, x, target)
    if beta > 0:
        half, width = filled(g, 0.5 * beta, loss), filled(g, beta, loss)
        curve = g(Div(), half_square(s, loss, beta), width)
        loss = g(Where(), g(Less(), loss, width), curve, g(Sub(), loss, half))
    return s.cast(reduced(s, loss, reduction), s.result.dtype)


def distances(s: Site, x: Value, target: Value) -> Value:
    """Return |x - target|."""
    dtype, shape = wide(s.result.dtype), common_shape(s.label, (x.type.shape, target.type.shape))
    operands = s.broadcast(s.cast(x, dtype), s.cast(target, dtype), shape=shape)
    return s.g(Abs(), s.g(Sub(), *operands))


def half_square(s: Site, distance: Value, limit: float) -> Value:
    """Return half the square of a distance of at most the limit.

    The gradient of a square of infinity, which is not chosen, is 0 times infinity.
    """
    near = s.g(Clip(high=limit), distance)
    return s.g(Mul(), s.g(Mul(), near, filled(s.g, 0.5, near)), near)


def reduced(s: Site, loss: Value, reduction: int) -> Value:
    """Return losses as they are, their mean or their sum."""
    axes = tuple(range(loss.type.rank))
    match reduction:
        case 0:
            return loss
        case 1:
            return s.g(ReduceMean(axes, False), loss)
        case 2:
            return s.g(ReduceSum(axes, False), loss)
    raise ModelError(f"reduction is {reduction}, expected 0, 1 or 2")
