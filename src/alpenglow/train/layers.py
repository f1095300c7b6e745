"""Layers: nodes with the parameters that they begin with, for graphs that are built by hand.

Each appends nodes to a graph and returns a value.  Its parameters are variables, called by the name
of the layer and what they are: ``first.weight``, ``first.bias``.  Weights are drawn from a normal
distribution by the name and a seed, so a graph that is built again begins with the same bits,
whatever else is in it.  `gain` over the square root of how many products make a sum is the
deviation: 1 keeps the spread of what comes in (LeCun et al., 1998), the square root of 2 makes up
for a relu behind it (He et al., 2015).
"""

from __future__ import annotations

import math
import zlib

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.reduction.layer_norm import LayerNorm
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Reshape, stretch
from alpenglow.ops.training.training import BatchNormTraining
from alpenglow.ops.window.pooling import MaxPool


def dense(
    g: Graph, x: Value, outputs: int, name: str, seed: int = 0, gain: float = 1.0,
    bias: bool = True,
) -> Value:  # fmt: skip
    """Return x[…, K] times weight[K, outputs], plus bias[outputs] if there is one.

    Raises TypeRuleError where x is no tensor of floats, or K is open.
    """
    inputs = _extent("dense", name, x, -1)
    _check_count("dense", name, outputs)
    w = _drawn(g, f"{name}.weight", (inputs, outputs), gain / math.sqrt(inputs), seed, x)
    rows = x if x.type.rank == 2 else g(Reshape((product(x.type.shape[:-1]), inputs)), x)
    y = g(MatMul(), rows, w, name=name)
    if bias:
        y = g(Add(), y, stretch(g, _filled(g, f"{name}.bias", outputs, 0, x), y.type.shape))
    shape = (*x.type.shape[:-1], outputs)
    return y if shape == y.type.shape else g(Reshape(shape), y)


def conv(
    g: Graph, x: Value, outputs: int, kernel: int, name: str, stride: int = 1,
    pad: int | None = None, seed: int = 0, gain: float = 1.0, bias: bool = True,
) -> Value:  # fmt: skip
    """Return x[N, C, …] convolved by weight[outputs, C, kernel, …], plus bias[outputs] if there is
    one.

    `pad` zeros stand on all sides, by default kernel // 2: with an odd kernel and a stride of 1 the
    result is as large as x.  Raises TypeRuleError where x is no such tensor of floats, or C is
    open.
    """
    if x.type.rank < 3:
        raise TypeRuleError(f"conv '{name}': x is {x.type}, expected [N, C, …] with a spatial axis")
    channels, axes = _extent("conv", name, x, 1), x.type.rank - 2
    for count in (outputs, kernel, stride):
        _check_count("conv", name, count)
    shape = (outputs, channels, *[kernel] * axes)
    spread = gain / math.sqrt(channels * kernel**axes)
    w = _drawn(g, f"{name}.weight", shape, spread, seed, x)
    pads = (kernel // 2 if pad is None else pad,) * (2 * axes)
    y = g(Conv((stride,) * axes, pads, (1,) * axes), x, w, name=name)
    if not bias:
        return y
    b = g(Reshape((outputs, *[1] * axes)), _filled(g, f"{name}.bias", outputs, 0, x))
    return g(Add(), y, stretch(g, b, y.type.shape))


def max_pool(g: Graph, x: Value, kernel: int, stride: int | None = None, pad: int = 0) -> Value:
    """Return the largest elements of x[N, C, …] in windows of kernel by kernel, `stride` apart, by
    default side by side; `pad` places around x hold nothing.

    It has no parameters.  Raises TypeRuleError where x has no spatial axis.
    """
    if x.type.rank < 3:
        raise TypeRuleError(f"max_pool: x is {x.type}, expected [N, C, …] with a spatial axis")
    axes, apart = x.type.rank - 2, kernel if stride is None else stride
    return g(MaxPool((kernel,) * axes, (apart,) * axes, (pad,) * (2 * axes), (1,) * axes), x)


def batch_norm(
    g: Graph, x: Value, name: str, momentum: float = 0.9, epsilon: float = 1e-5
) -> Value:
    """Return x[N, C, …] normalised by the mean and variance of the batch, times weight[C], plus
    bias[C]; running_mean[C] and running_var[C] are kept for use, `momentum` times what they were
    and the rest those of the batch (Ioffe and Szegedy, 2015).

    PyTorch's momentum is 1 less this one, and its running variance that of a sample.
    Raises TypeRuleError where x is no such tensor of floats, or C is open.
    """
    channels = _extent("batch_norm", name, x, 1)
    scale, bias, mean, variance = (
        _filled(g, f"{name}.{what}", channels, first, x)
        for what, first in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1))
    )
    op = BatchNormTraining(epsilon, momentum)
    y, new_mean, new_variance, *_ = g.add(op, [x, scale, bias, mean, variance], name=name).results
    g.assign(mean.name, new_mean)
    g.assign(variance.name, new_variance)
    return y


def layer_norm(g: Graph, x: Value, name: str, epsilon: float = 1e-5) -> Value:
    """Return x[…, K] less its mean, over its deviation, along the last axis, times weight[K], plus
    bias[K] (Ba, Kiros and Hinton, 2016).

    Raises TypeRuleError where x is no tensor of floats, or K is open.
    """
    width = _extent("layer_norm", name, x, -1)
    scale = _filled(g, f"{name}.weight", width, 1, x)
    bias = _filled(g, f"{name}.bias", width, 0, x)
    return g(LayerNorm(x.type.rank - 1, epsilon), x, scale, bias, name=name)


def embedding(
    g: Graph, indices: Value, count: int, width: int, name: str, seed: int = 0, spread: float = 1.0
) -> Value:
    """Return rows of weight[count, width], f32, by integer indices[…]; its elements have the
    deviation `spread`.

    An index that is out of range is a FeedError of the step.
    """
    for extent in (count, width):
        _check_count("embedding", name, extent)
    return g(Gather(0), _drawn(g, f"{name}.weight", (count, width), spread, seed), indices)


def _extent(layer: str, name: str, x: Value, axis: int) -> int:
    """Return the extent of x along an axis, which parameters are as long as."""
    t = x.type
    there = t.rank > 0 if axis < 0 else t.rank > axis
    extent: Dim = t.shape[axis] if there else 0
    if t.dtype not in FLOATS or not known(extent) or extent < 1:
        raise TypeRuleError(
            f"{layer} '{name}': x is {t}, expected floats with a fixed dimension of at least 1 "
            f"along axis {axis}"
        )
    return extent


def _check_count(layer: str, name: str, count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise TypeRuleError(f"{layer} '{name}': dimension is {count!r}, expected 1 or more")


def _drawn(
    g: Graph, name: str, shape: tuple[int, ...], spread: float, seed: int, like: Value | None = None
) -> Value:
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    dtype = np.dtype(np.float32) if like is None else like.type.numpy
    return g.variable(name, (random.standard_normal(shape) * spread).astype(dtype))


def _filled(g: Graph, name: str, extent: int, value: float, like: Value) -> Value:
    return g.variable(name, np.full(extent, value, like.type.numpy))
