"""Converters of batch normalisation: with moments that are given, of the batch, and backwards."""

from __future__ import annotations

from alpenglow.frontends.presume import fixed
from alpenglow.frontends.stablehlo.table import Made, Site, on
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul, Sub
from alpenglow.ops.elementwise.transcendental import Sqrt
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.tensor.movement import stretch


@on("stablehlo.batch_norm_inference")
def batch_norm_inference(s: Site) -> Made:
    x, scale, offset, mean, variance = s.required(5)
    return _normal(s, x, scale, offset, mean, variance)


@on("stablehlo.batch_norm_training")
def batch_norm_training(s: Site) -> Made:
    x, scale, offset = s.required(3)
    mean = _mean(s, x)
    away = s.g(Sub(), x, _along(s, mean, x))
    variance = _mean(s, s.g(Mul(), away, away))
    return [_normal(s, x, scale, offset, mean, variance), mean, variance]


@on("stablehlo.batch_norm_grad")
def batch_norm_grad(s: Site) -> Made:
    """The gradients of the operand, the scale and the offset, as the specification has them."""
    x, scale, mean, variance, dy = s.required(5)
    away = s.g(Sub(), x, _along(s, mean, x))
    wide = s.g(Add(), _along(s, variance, x), s.filled(s.attribute("epsilon"), x))
    deviation = s.g(Sqrt(), wide)
    normal = s.g(Div(), away, deviation)
    count = s.filled(_count(s, x), x)
    total = _along(s, _sum(s, dy), x)
    slope = _along(s, _sum(s, s.g(Mul(), dy, away)), x)
    bent = s.g(Div(), s.g(Mul(), slope, away), wide)
    rest = s.g(Sub(), s.g(Sub(), s.g(Mul(), dy, count), total), bent)
    factor = s.g(Div(), s.g(Div(), _along(s, scale, x), deviation), count)
    return [s.g(Mul(), factor, rest), _sum(s, s.g(Mul(), dy, normal)), _sum(s, dy)]


def _normal(s: Site, x: Value, scale: Value, offset: Value, mean: Value, variance: Value) -> Value:
    """Return x less the mean, over the deviation, times the scale, plus the offset."""
    away = s.g(Sub(), x, _along(s, mean, x))
    wide = s.g(Add(), _along(s, variance, x), s.filled(s.attribute("epsilon"), x))
    normal = s.g(Div(), away, s.g(Sqrt(), wide))
    return s.g(Add(), s.g(Mul(), normal, _along(s, scale, x)), _along(s, offset, x))


def _axis(s: Site, x: Value) -> int:
    return s.axis(s.number("feature_index"), x.type.rank, "feature_index")


def _along(s: Site, v: Value, x: Value) -> Value:
    """Return a vector with an entry per feature, stretched to the shape of x."""
    axis = _axis(s, x)
    narrow = tuple(d if i == axis else 1 for i, d in enumerate(x.type.shape))
    return stretch(s.g, s.reshaped(v, narrow), x.type.shape)


def _sum(s: Site, x: Value) -> Value:
    axis = _axis(s, x)
    return s.g(ReduceSum(tuple(i for i in range(x.type.rank) if i != axis), False), x)


def _count(s: Site, x: Value) -> int:
    """Return how many elements each feature has."""
    axis = _axis(s, x)
    return fixed(product([d for i, d in enumerate(x.type.shape) if i != axis]))


def _mean(s: Site, x: Value) -> Value:
    total = _sum(s, x)
    return s.g(Div(), total, s.filled(_count(s, x), total))
