"""Converters for what differs in training, and for the steps of optimizers."""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.onnx.convert.elementwise import dropped
from alpenglow.frontends.onnx.convert.random import key
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ops.elementwise.arithmetic import Div, Sub
from alpenglow.ops.elementwise.comparison import GreaterOrEqual
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.random.random import RandomUniform
from alpenglow.ops.reduction.normalize import BatchNorm
from alpenglow.ops.reduction.reduction import as_type, filled, in_floats
from alpenglow.ops.tensor.movement import Reshape, stretch
from alpenglow.ops.training.training import Adagrad, Adam, BatchNormTraining, Momentum

PREVIEW = "ai.onnx.preview.training"


@on("BatchNormalization")
def batch_normalization_by_outputs(s: Site) -> Made:
    return normalized(s, any(s.outputs[1:]))


@on("BatchNormalization", since=14)
def batch_normalization(s: Site) -> Made:
    return normalized(s, bool(s.attribute("training_mode", 0)))


def normalized(s: Site, training: bool) -> Made:
    """Return input 0 normalised by channel, or by element of a sample if not spatial."""
    x, *parameters = (s.input(i) for i in range(5))
    shape, kinds = x.type.shape, [v.type.shape for v in parameters]
    if not s.attribute("spatial", 1):
        x = s.g(Reshape((shape[0], product(shape[1:]))), x)
        parameters = [s.g(Reshape(x.type.shape[1:]), v) for v in parameters]
    epsilon = s.attribute("epsilon", 1e-5)
    if training:
        op: Op = BatchNormTraining(epsilon, s.attribute("momentum", 0.9))
    else:
        op = BatchNorm(epsilon)
    y, *statistics = s.g.add(op, [x, *parameters]).results
    back = zip([y, *statistics], [shape, *kinds[2:], *kinds[2:]], strict=False)
    return [v if v.type.shape == d else s.g(Reshape(d), v) for v, d in back]


@on("Dropout")
def dropout(s: Site) -> Made:
    return dropped(s, s.input(0).type.dtype)


@on("Dropout", since=10)
def dropout_with_mask(s: Site) -> Made:
    return dropped(s, "bool")


@on("Dropout", since=12)
def dropout_of_training(s: Site) -> Made:
    x, ratio = s.input(0), s.optional(1)
    if s.optional(2) is None or not s.constant(2).any():
        return dropped(s, "bool")
    wide = in_floats(s.g, x)
    if ratio is None:
        ratio = s.g.constant(np.asarray(0.5, wide.type.numpy))
    ratio = as_type(s.g, s.reshaped(ratio, ()), wide.type.dtype)
    # From 0 to below 1, so that a ratio of 0 keeps everything.
    u = s.g(RandomUniform(x.type.shape, dtype=wide.type.dtype), key(s))
    mask = s.g(GreaterOrEqual(), u, stretch(s.g, ratio, x.type.shape))
    rest = s.g(Sub(), filled(s.g, 1, ratio), ratio)
    scaled = s.g(Div(), wide, stretch(s.g, rest, x.type.shape))
    y = s.g(Where(), mask, scaled, filled(s.g, 0, scaled))
    return [as_type(s.g, y, x.type.dtype), mask]


@on("Momentum", domain=PREVIEW)
def momentum(s: Site) -> Made:
    mode = s.needed("mode")
    if mode not in ("standard", "nesterov"):
        raise s.wrong(f"mode is '{mode}', expected standard or nesterov")
    decay = s.needed("norm_coefficient")
    op = Momentum(s.needed("alpha"), s.needed("beta"), decay, mode == "nesterov")
    return updated(s, op, 3)


@on("Adagrad", domain=PREVIEW)
def adagrad(s: Site) -> Made:
    decay, slowing = s.attribute("norm_coefficient", 0.0), s.attribute("decay_factor", 0.0)
    return updated(s, Adagrad(s.attribute("epsilon", 1e-6), decay, slowing), 3)


@on("Adam", domain=PREVIEW)
def adam(s: Site) -> Made:
    op = Adam(
        s.attribute("alpha", 0.9),
        s.attribute("beta", 0.999),
        s.attribute("epsilon", 1e-6),
        s.attribute("norm_coefficient", 0.0),
        s.attribute("norm_coefficient_post", 0.0),
    )
    return updated(s, op, 4)


def updated(s: Site, op: Op, parts: int) -> list[Value]:
    """Return the new values of all tensors, then what is remembered of all, as they are listed.

    The inputs are the rate, the step, all tensors, all gradients and so on: `parts` lists.
    """
    rate, step, *rest = s.required()
    count = len(rest) // parts
    if count == 0 or len(rest) % parts:
        raise s.wrong(f"{len(rest)} tensors after R and T, expected {parts} for each variable")
    number, updates = s.reshaped(step, ()), []
    for i in range(count):
        mine = rest[i::count]
        factor = as_type(s.g, s.reshaped(rate, ()), mine[0].type.dtype)
        updates.append(s.g.add(op, [factor, number, *mine]).results)
    return [results[k] for k in range(parts - 1) for results in updates]
