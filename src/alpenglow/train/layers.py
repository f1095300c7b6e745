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
    """Append a fully connected layer: x[…, K] times weight[K, outputs], plus bias[outputs].

    Args:
        g: the graph.
        x: a tensor of floats, whose last axis is fixed.
        outputs: the size of the last axis of the result.
        name: the prefix of the parameters, as in `NAME.weight`.
        seed: the seed of the initial weights.
        gain: the factor of the initial weights.
        bias: False leaves out the bias.

    Returns:
        The result.

    Raises:
        TypeRuleError: if `x` is not a tensor of floats, or its last axis is dynamic.

    Example:
        >>> g = ag.Graph("layer")
        >>> ag.train.dense(g, g.input("x", "f32[4,8]"), 3, "fc").type
        f32[4,3]
        >>> list(g.variables)
        ['fc.weight', 'fc.bias']
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
    """Append a convolution of x[N, C, …] by weight[outputs, C, kernel, …], plus bias[outputs].

    Args:
        g: the graph.
        x: a tensor of floats, whose axis of channels is fixed.
        outputs: the number of channels of the result.
        kernel: the size of the kernel along each spatial axis.
        name: the prefix of the parameters, as in `NAME.weight`.
        stride: the stride along each spatial axis.
        pad: the number of zeros on each side; None: kernel // 2, which keeps the size of `x` for an
            odd kernel and a stride of 1.
        seed: the seed of the initial weights.
        gain: the factor of the initial weights.
        bias: False leaves out the bias.

    Returns:
        The result.

    Raises:
        TypeRuleError: if `x` is not such a tensor, or its number of channels is dynamic.

    Example:
        >>> g = ag.Graph("layer")
        >>> ag.train.conv(g, g.input("x", "f32[1,3,8,8]"), 16, 3, "conv", stride=2).type
        f32[1,16,4,4]
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
    """Append a maximum over windows of the spatial axes of x[N, C, …]; it has no parameters.

    Args:
        g: the graph.
        x: a tensor with spatial axes.
        kernel: the size of the window along each spatial axis.
        stride: the stride of the window; None: `kernel`.
        pad: the number of positions on each side that are ignored.

    Returns:
        The result.

    Raises:
        TypeRuleError: if `x` has no spatial axis.

    Example:
        >>> g = ag.Graph("layer")
        >>> ag.train.max_pool(g, g.input("x", "f32[1,16,8,8]"), 2).type
        f32[1,16,4,4]
    """
    if x.type.rank < 3:
        raise TypeRuleError(f"max_pool: x is {x.type}, expected [N, C, …] with a spatial axis")
    axes, apart = x.type.rank - 2, kernel if stride is None else stride
    return g(MaxPool((kernel,) * axes, (apart,) * axes, (pad,) * (2 * axes), (1,) * axes), x)


def batch_norm(
    g: Graph, x: Value, name: str, momentum: float = 0.9, epsilon: float = 1e-5
) -> Value:
    """Append a batch norm of x[N, C, …] with weight[C] and bias[C] (Ioffe and Szegedy, 2015).

    Training normalises by the mean and variance of the batch and updates running_mean[C] and
    running_var[C], which the trained model uses.  The running variance is divided by the number of
    elements, not by one less.

    Args:
        g: the graph.
        x: a tensor of floats, whose axis of channels is fixed.
        name: the prefix of the parameters, as in `NAME.weight`.
        momentum: the share of the old running values that an update keeps; PyTorch's `momentum` is
            1 less this number.
        epsilon: the number added to the variance.

    Returns:
        The result.

    Raises:
        TypeRuleError: if `x` is not such a tensor, or its number of channels is dynamic.

    Example:
        >>> g = ag.Graph("layer")
        >>> ag.train.batch_norm(g, g.input("x", "f32[4,16,8,8]"), "bn").type
        f32[4,16,8,8]
        >>> list(g.variables)
        ['bn.weight', 'bn.bias', 'bn.running_mean', 'bn.running_var']
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
    """Append a layer norm of the last axis of x[…, K], with weight[K] and bias[K].

    Ba, Kiros and Hinton (2016) describe the method.

    Args:
        g: the graph.
        x: a tensor of floats, whose last axis is fixed.
        name: the prefix of the parameters, as in `NAME.weight`.
        epsilon: the number added to the variance.

    Returns:
        The result.

    Raises:
        TypeRuleError: if `x` is not a tensor of floats, or its last axis is dynamic.

    Example:
        >>> g = ag.Graph("layer")
        >>> ag.train.layer_norm(g, g.input("x", "f32[4,8]"), "norm").type
        f32[4,8]
    """
    width = _extent("layer_norm", name, x, -1)
    scale = _filled(g, f"{name}.weight", width, 1, x)
    bias = _filled(g, f"{name}.bias", width, 0, x)
    return g(LayerNorm(x.type.rank - 1, epsilon), x, scale, bias, name=name)


def embedding(
    g: Graph, indices: Value, count: int, width: int, name: str, seed: int = 0, spread: float = 1.0
) -> Value:
    """Append a gather of rows of weight[count, width], f32, by integer indices.

    An index out of range raises FeedError in the step.

    Args:
        g: the graph.
        indices: a tensor of integers.
        count: the number of rows.
        width: the number of elements of a row.
        name: the prefix of the parameter `NAME.weight`.
        seed: the seed of the initial weights.
        spread: the standard deviation of the initial weights.

    Returns:
        The rows, of the shape of `indices` with an axis `width` at its end.

    Example:
        >>> g = ag.Graph("layer")
        >>> ag.train.embedding(g, g.input("tokens", "i64[4,10]"), 1000, 64, "words").type
        f32[4,10,64]
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
