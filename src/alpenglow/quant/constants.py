"""Weights and biases in few bits: always symmetric, with a scale a channel, block, or tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from alpenglow.ir.graph import Node
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.product.contraction import MatMul
from alpenglow.quant.layers import ConstantOrigin
from alpenglow.quant.options import QuantOptions
from alpenglow.quant.scales import Fitted, OfSums, Roomy, Scaling, along, scales_of
from alpenglow.quant.schema import steps


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A constant in few bits: `data` with the `scales` of its channels or blocks.

    The scales broadcast to the data, but along the inner axis of `source` each serves `block`
    elements where that is not 0.  `scaling` says what they follow from.
    """

    scaling: Scaling
    source: ConstantOrigin
    name: str
    dtype: str
    data: Array
    scales: Array
    block: int = 0


def weight_alone(node: Node, source: ConstantOrigin, name: str, options: QuantOptions) -> Stored:
    """Return the weight of a layer whose activations stay as they are."""
    grouped = options.group and isinstance(node.op, MatMul)
    block = min(options.group, source.array.shape[source.inner]) if grouped else 0
    by_channel = options.granularity != "tensor"
    return _stored(name, Fitted(source, options.weight_dtype, options.power2, by_channel, block))


def weight(
    node: Node,
    source: ConstantOrigin,
    bias: ConstantOrigin | None,
    name: str,
    step: float,
    options: QuantOptions,
) -> Stored:
    """Return the weight of a layer whose operand has the scale `step`.

    Its scale holds its largest elements: to cut them off for the sake of a smaller squared error of
    all makes results worse.  It grows where the bias would otherwise not fit into the sums.
    """
    granularity = options.granularity
    by_channel = granularity == "channel" or (granularity == "row" and isinstance(node.op, MatMul))
    fitted = Fitted(source, options.weight_dtype, options.power2, by_channel)
    roomy = bias is not None and options.bias == "int32"
    return _stored(name, Roomy(fitted, bias, step) if bias is not None and roomy else fitted)


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
    shift = np.reshape(moved.sum(axes) * mean, along(source))
    source = replace(source, array=(source.array - shift).astype(np.float32))
    if options.bias == "int8":
        return _stored(name, Fitted(source, "i8", options.power2, by_channel=False))
    assert not isinstance(weight.scaling, OfSums), "a weight is in steps of its own"
    return _stored(name, OfSums(source, weight.scaling, step))


def spread(scales: Array, t: TensorType, axis: int, block: int) -> Array:
    """Return scales as they broadcast to a tensor: those of blocks repeated."""
    return np.repeat(scales, block, axis).take(range(t.extents[axis]), axis) if block else scales


def _stored(name: str, how: Scaling) -> Stored:
    fitted = how.fitted if isinstance(how, Roomy) else how
    source = fitted.source
    dtype, block = ("i32", 0) if isinstance(fitted, OfSums) else (fitted.dtype, fitted.block)
    scales = scales_of(how)
    full = spread(scales, source.base.type, source.inner, block)
    return Stored(how, source, name, dtype, steps(source.array, full, dtype), scales, block)
