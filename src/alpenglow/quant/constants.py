"""Weights and biases in few bits: always symmetric, with a scale a channel, block, or tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from alpenglow.ir.graph import Node
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.contraction import MatMul
from alpenglow.quant.layers import ConstantOrigin
from alpenglow.quant.options import QuantOptions
from alpenglow.quant.schema import SMALLEST, scales_of, steps

LARGEST_BIAS = 2.0**30
"""In steps of the sums: it leaves them as much room again."""


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A constant in few bits: `data` with the `scales` of its channels or blocks.

    The scales broadcast to the data, but along the inner axis of `source` each serves `block`
    elements where that is not 0.
    """

    source: ConstantOrigin
    name: str
    dtype: str
    data: Array
    scales: Array
    block: int = 0


def weight_alone(node: Node, source: ConstantOrigin, name: str, options: QuantOptions) -> Stored:
    """Return the weight of a layer whose activations stay as they are."""
    dtype = options.weight_dtype
    grouped = options.group and isinstance(node.op, MatMul)
    block = min(options.group, source.array.shape[source.inner]) if grouped else 0
    by_channel = options.granularity != "tensor"
    return _stored(source, name, dtype, _fitted(source, dtype, by_channel, block, options), block)


def weight(
    node: Node,
    source: ConstantOrigin,
    bias: ConstantOrigin | None,
    name: str,
    step: float,
    options: QuantOptions,
) -> Stored:
    """Return the weight of a layer whose operand has the scale `step`.

    Its scale grows where the bias would otherwise not fit into the sums.
    """
    granularity = options.granularity
    by_channel = granularity == "channel" or (granularity == "row" and isinstance(node.op, MatMul))
    scales = _fitted(source, options.weight_dtype, by_channel, 0, options)
    if bias is not None and options.bias == "int32":
        needed = np.abs(bias.array.astype(np.float64)).reshape(-1) / (step * LARGEST_BIAS)
        if len(needed) != source.array.shape[source.channel] or not by_channel:
            needed = needed.max(initial=0.0, keepdims=True)
        scales = np.maximum(scales, np.reshape(needed, _along(source))).astype(np.float32)
    return _stored(source, name, options.weight_dtype, scales)


def bias(
    source: ConstantOrigin,
    name: str,
    weight: Stored,
    step: float,
    mean: float,
    options: QuantOptions,
) -> Stored:
    """Return a bias in steps of the sums that it is added to, or in i8 with a scale of its own.

    Rounding moves the weights of a channel by a little on the whole, and so its sums by as much as
    `mean`, that of the operand, makes of it: the bias takes that back.
    """
    moved = weight.data.astype(np.float64) * weight.scales - weight.source.array
    axes = tuple(a for a in range(moved.ndim) if a != weight.source.channel)
    shift = np.reshape(moved.sum(axes) * mean, _along(source))
    source = replace(source, array=(source.array - shift).astype(np.float32))
    if options.bias == "int8":
        largest = _largest(source.array, source.channel, False)
        return _stored(source, name, "i8", scales_of(largest, "i8", options.schema))
    scales = np.reshape(weight.scales.reshape(-1) * np.float32(step), _along(source))
    return _stored(source, name, "i32", np.maximum(scales, np.float32(SMALLEST)))


def spread(scales: Array, t: TensorType, axis: int, block: int) -> Array:
    """Return scales as they broadcast to a tensor: those of blocks repeated."""
    return np.repeat(scales, block, axis).take(range(t.extents[axis]), axis) if block else scales


def _along(source: ConstantOrigin) -> list[int]:
    """Return the shape of a vector along the channels of a constant."""
    shape = [1] * source.array.ndim
    shape[source.channel] = -1
    return shape


def _stored(source: ConstantOrigin, name: str, dtype: str, scales: Array, block: int = 0) -> Stored:
    full = spread(scales, source.base.type, source.inner, block)
    return Stored(source, name, dtype, steps(source.array, full, dtype), scales, block)


def _fitted(
    source: ConstantOrigin, dtype: str, by_channel: bool, block: int, options: QuantOptions
) -> Array:
    """Return the scales of a weight, which hold its largest elements.

    To cut off large weights for the sake of a smaller squared error of all makes results worse.
    """
    if block:
        largest = _in_blocks(source.array, source.inner, block)
    else:
        largest = _largest(source.array, source.channel, by_channel)
    return scales_of(largest, dtype, options.schema)


def _largest(array: Array, axis: int, by_channel: bool) -> Array:
    """Return the largest magnitude of each channel, or of all, with the rank of the array."""
    axes = tuple(a for a in range(array.ndim) if a != axis or not by_channel)
    peaks: Array = np.abs(array).max(axes, keepdims=True, initial=0)
    return peaks


def _in_blocks(array: Array, axis: int, block: int) -> Array:
    """Return the largest magnitude of each `block` elements along an axis."""
    peaks: Array = np.maximum.reduceat(np.abs(array), np.arange(0, array.shape[axis], block), axis)
    return peaks
