"""Scales of weights and biases, as nodes of a graph: they follow from what is stored.

Where that is constant NumPy computes them, once (`constants`); where it is trained they are
computed anew in each step (`aware`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from alpenglow.evaluate import evaluate
from alpenglow.ir.dims import ceil_div
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Abs, Clip, Div, Maximum, Mul
from alpenglow.ops.quantized.fake_quantize import SMALLEST, SymmetricScale
from alpenglow.ops.reduction.reduction import ReduceMax, filled
from alpenglow.ops.tensor.movement import Pad, Reshape, stretch
from alpenglow.quant.layers import ConstantOrigin

LARGEST_BIAS = 2.0**30
"""In steps of the sums: it leaves them as much room again."""


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """The largest magnitude takes all steps: of each channel, of all, or of so many neighbours
    along the inner axis (`block`)."""

    source: ConstantOrigin
    dtype: str
    power2: bool
    by_channel: bool
    block: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Roomy:
    """As fitted, and larger where a bias would else not fit into sums of what has scale `step`."""

    fitted: Fitted
    bias: ConstantOrigin
    step: float


@dataclass(frozen=True, slots=True, eq=False)
class OfSums:
    """Those of the sums of a weight and what has scale `step`, in which a bias is counted."""

    source: ConstantOrigin
    weight: Fitted | Roomy
    step: float


Scaling = Fitted | Roomy | OfSums

Read = Callable[[ConstantOrigin], Value]
"""Tells the value in a graph that stands for a constant."""


def scale_nodes(g: Graph, how: Scaling, read: Read) -> Value:
    """Append what computes scales, and return them, of the rank of the constant."""
    match how:
        case Fitted(source, dtype, power2, by_channel, block):
            size = g(Abs(), read(source))
            if block:
                peaks = _of_blocks(g, size, source.inner, block)
            else:
                peaks = g(ReduceMax(_beside(source, by_channel)), size)
            return g(SymmetricScale(dtype, power2), peaks)
        case Roomy(fitted, bias, step):
            scale = scale_nodes(g, fitted, read)
            b = g(Abs(), read(bias))
            b = g(Div(), b, filled(g, step * LARGEST_BIAS, b))
            axis = fitted.source.channel
            by_bias = fitted.by_channel and b.type.size == fitted.source.array.shape[axis]
            if not by_bias:
                b = g(ReduceMax(tuple(range(b.type.rank))), b)
            needed = g(Reshape(along(fitted.source, b.type.size)), b)
            return g(Maximum(), scale, stretch(g, needed, scale.type.shape))
        case OfSums(source, weight, step):
            scale = scale_nodes(g, weight, read)
            product = g(Mul(), scale, filled(g, step, scale))
            return g(Reshape(along(source, scale.type.size)), g(Clip(low=SMALLEST), product))


def scales_of(how: Scaling) -> Array:
    """Return scales as NumPy computes them."""
    g = Graph("scales")
    feeds: dict[str, Array] = {}

    def read(source: ConstantOrigin) -> Value:
        assert np.isfinite(source.array).all(), "what a layer has constant is finite"
        name = f"x{len(feeds)}"
        feeds[name] = source.array
        return g.input(name, TensorType("f32", source.array.shape))

    g.output("scales", scale_nodes(g, how, read))
    return evaluate(g, feeds)["scales"]


def along(source: ConstantOrigin, count: int = -1) -> tuple[int, ...]:
    """Return the shape of so many numbers along the channels of a constant."""
    shape = [1] * source.array.ndim
    shape[source.channel] = count
    return tuple(shape)


def _beside(source: ConstantOrigin, by_channel: bool) -> tuple[int, ...]:
    """Return the axes that share a scale."""
    return tuple(a for a in range(source.array.ndim) if a != source.channel or not by_channel)


def _of_blocks(g: Graph, size: Value, axis: int, block: int) -> Value:
    """Return the largest of each `block` elements along an axis."""
    shape = size.type.extents
    count = ceil_div(shape[axis], block)
    after = [0] * len(shape)
    after[axis] = count * block - shape[axis]
    if after[axis]:
        size = g(Pad((0,) * len(shape), tuple(after)), size)
    apart = g(Reshape((*shape[:axis], count, block, *shape[axis + 1 :])), size)
    return g(ReduceMax((axis + 1,), False), apart)
