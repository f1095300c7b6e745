"""Converters for random numbers.

A draw is a function of its key.  With `seed` the key is a constant made from that, so that nodes
of one seed draw the same, in every run; without, it is a hidden input that the runtime fills anew
for each call (`Graph.random_key`).
"""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.onnx.file.attributes import element_type
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.ops.random.random import Choose, RandomNormal, RandomUniform
from alpenglow.ops.reduction.reduction import ReduceMax
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.tensor.movement import stretch


@on("RandomUniform")
def random_uniform(s: Site) -> Made:
    return uniform(s, *asked(s))


@on("RandomUniformLike")
def random_uniform_like(s: Site) -> Made:
    return uniform(s, *alike(s))


@on("RandomNormal")
def random_normal(s: Site) -> Made:
    return normal(s, *asked(s))


@on("RandomNormalLike")
def random_normal_like(s: Site) -> Made:
    return normal(s, *alike(s))


def uniform(s: Site, shape: tuple[Dim, ...], dtype: str) -> Value:
    """Return numbers spread as the attributes of the node say."""
    low, high = s.attribute("low", 0.0), s.attribute("high", 1.0)
    return s.g(RandomUniform(shape, low, high, dtype), key(s))


def normal(s: Site, shape: tuple[Dim, ...], dtype: str) -> Value:
    """Return numbers distributed as the attributes of the node say."""
    mean, scale = s.attribute("mean", 0.0), s.attribute("scale", 1.0)
    return s.g(RandomNormal(shape, mean, scale, dtype), key(s))


def asked(s: Site) -> tuple[tuple[Dim, ...], str]:
    """Return the shape and the element type that the attributes of the node name."""
    return tuple(s.needed("shape")), wanted_type(s, "f32")


def alike(s: Site) -> tuple[tuple[Dim, ...], str]:
    """Return the shape of the operand, and its element type unless the node asks for another."""
    like = s.input(0).type
    return like.shape, wanted_type(s, like.dtype)


@on("Bernoulli", since=15)
def bernoulli(s: Site) -> Made:
    p = s.input(0)
    # As fine as the probabilities: what is below p of the numbers from 0 to 1 is a share of p.
    wide = p if p.type.dtype == "f64" else s.g(Cast("f32"), p)
    u = s.g(RandomUniform(p.type.shape, dtype=wide.type.dtype), key(s))
    return s.g(Cast(wanted_type(s, p.type.dtype)), s.g(Less(), u, wide))


@on("Multinomial", since=7)
def multinomial(s: Site) -> Made:
    x = s.input(0)
    if x.type.rank != 2:
        raise s.wrong(f"input 0 is {x.type}, expected batch and classes")
    draws = s.attribute("sample_size", 1)
    if draws < 0:
        raise s.wrong(f"sample_size is {draws}")
    wide = x if x.type.dtype == "f64" else s.g(Cast("f32"), x)
    most = stretch(s.g, s.g(ReduceMax((1,), True), wide), wide.type.shape)
    totals = s.g(CumSum(1), s.g(Exp(), s.g(Sub(), wide, most)))
    u = s.g(RandomUniform((x.type.shape[0], draws), dtype=wide.type.dtype), key(s))
    return s.g(Choose(wanted_type(s, "i32")), totals, u)


def wanted_type(s: Site, otherwise: str) -> str:
    """Return the element type that the node asks for."""
    code = s.attribute("dtype")
    return otherwise if code is None else element_type(code, f"{s.op_type}: dtype")


def key(s: Site) -> Value:
    """Return the key to draw under."""
    seed = s.attribute("seed")
    if seed is None:
        return s.g.random_key()
    return s.g.constant(np.array([np.float32(seed).view(np.uint32), 0], np.uint32))
