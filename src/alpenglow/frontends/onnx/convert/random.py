"""Converters for random numbers.

A draw is a function of its key.  With `seed` the key is a constant made from that, so that nodes
of one seed draw the same, in every run; without, it is a hidden input that the runtime fills anew
for each call (`Graph.random_key`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alpenglow.frontends.onnx.file.attributes import element_type
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ops.elementwise.arithmetic import Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.ops.random.random import Choose, RandomNormal, RandomUniform
from alpenglow.ops.reduction.reduction import ReduceMax
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.tensor.movement import stretch


def draws(name: str, make: Callable[..., Op], **defaults: float) -> None:
    """Register an operator that draws numbers in the shape of an attribute or of its operand."""

    @on(name)
    def of_shape(s: Site) -> Made:
        return drawn(s, tuple(s.needed("shape")), wanted_type(s, "f32"))

    @on(f"{name}Like")
    def like_operand(s: Site) -> Made:
        like = s.input(0).type
        return drawn(s, like.shape, wanted_type(s, like.dtype))

    def drawn(s: Site, shape: tuple[Dim, ...], dtype: str) -> Value:
        numbers = (s.attribute(k, d) for k, d in defaults.items())
        return s.g(make(shape, *numbers, dtype), key(s))


draws("RandomUniform", RandomUniform, low=0.0, high=1.0)
draws("RandomNormal", RandomNormal, mean=0.0, scale=1.0)


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
        raise s.wrong(f"sample_size is {draws}, expected 0 or more")
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
