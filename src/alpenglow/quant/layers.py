"""Layers: convolutions and matrix products, and what belongs to them.

Convolutions have weights that are known; a product may be of two operands that are both computed.
Weights and biases often reach their operator through a transposition or a broadcast, or are
computed from other constants.  What is stored in few bits is the last tensor before those
movements, which are then repeated on what is read back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpenglow.evaluate import apply
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.quantized.fake_quantize import FakeQuantize
from alpenglow.ops.quantized.quantize import Dequantize
from alpenglow.ops.sequence.recurrent import Gru, Lstm, Rnn
from alpenglow.ops.tensor.movement import Broadcast, Transpose
from alpenglow.ops.window.conv_transpose import ConvTranspose

HEAVY = (Conv, MatMul, ConvTranspose, Lstm, Gru, Rnn)
"""The operators that a report of layers tells of."""

OPEN = 16
"""What an extent that is open counts as."""

Place = tuple[Node, int]
"""An operand: a node and the position among its operands."""


@dataclass(frozen=True, slots=True)
class ConstantOrigin:
    """Where a constant operand comes from: `base`, then the movements of `path`.

    `channel` and `inner` are the axes of `base` that hold output channels and what is summed; -1
    where there is no such axis.
    """

    place: Place
    base: Value
    array: Array
    path: tuple[Op, ...]
    channel: int
    inner: int = -1


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution or matrix product, its weight, and the bias that is added to it at once.

    A product of two operands that are both computed has no weight.
    """

    node: Node
    weight: ConstantOrigin | None = None
    bias: ConstantOrigin | None = None

    @property
    def x(self) -> Value:
        """The first operand, which is computed."""
        return self.computed[0][1]

    @property
    def computed(self) -> tuple[tuple[Place, Value], ...]:
        """The operands that are computed, and where they are read."""
        operands = self.node.inputs[: 2 if self.weight is None else 1]
        return tuple(((self.node, i), v) for i, v in enumerate(operands) if v is not None)


def varying(g: Graph) -> set[Value]:
    """Return the values that depend on inputs, or differ from run to run."""
    moving = set(g.inputs.values())
    for node in g.nodes:
        if not node.op.pure or any(v in moving for v in node.inputs):
            moving.update(node.results)
    return moving


def quantized_already(node: Node) -> bool:
    """Whether an operand of a node has just been read back from few bits."""
    for v in node.inputs:
        while v is not None and v.producer and isinstance(v.producer.op, Broadcast | Transpose):
            v = v.producer.inputs[0]
        if v is not None and v.producer and isinstance(v.producer.op, Dequantize | FakeQuantize):
            return True
    return False


def taps(node: Node) -> int:
    """Return how many products each element of a layer's result is the sum of, about."""
    w = node.inputs[1]
    assert w is not None, "a layer has two operands"
    t = w.type.bind(dict.fromkeys(w.type.symbols(), OPEN))
    match node.op:
        case MatMul():
            return int(t.extents[-2])
        case ConvTranspose(group=group, strides=strides):
            return t.size // max(t.extents[1] * group * math.prod(strides), 1)
    return t.size // max(t.extents[0], 1)


def layer(g: Graph, node: Node, moving: set[Value]) -> Layer | str:
    """Return a node as a layer, or a sentence that says why it is none."""
    match node.op:
        case ConvTranspose(dilations=dilations) if max(dilations) > 1:
            return "its windows are dilated, and there is no form of that in integers"
        case ConvTranspose():
            channel, inner, at = 1, 0, 1
        case Conv():
            channel, inner, at = 0, 1, 1
        case MatMul():
            channel, inner, at = -1, -2, node.output.type.rank - 1
        case _:
            return f"{node.op.name} has no form that computes with integers"
    if node.output.type.dtype != "f32":
        return f"it computes in {node.output.type.dtype}, and only f32 is converted"
    if quantized_already(node):
        return "it is quantized already"
    x, w, *rest = node.inputs
    assert x is not None and w is not None, "the operands are required"
    if x not in moving:
        return "its weight is the first operand"
    if w in moving:
        product = isinstance(node.op, MatMul)
        return Layer(node) if product else "its weight is computed while it runs"
    rank = w.type.rank
    weight = _source((node, 1), w, channel % rank, inner % rank)
    if weight is None:
        return "the extents of its weight are open"
    if not np.isfinite(weight.array).all():
        return "its weight holds NaN or infinities"
    bias = None
    shared = isinstance(node.op, ConvTranspose) and node.op.group > 1
    if rest and rest[0] is not None and rest[0] not in moving and not shared:
        bias = _source((node, 2), rest[0], 0)
    elif not rest:
        bias = _added(g, node, at, moving)
    if bias is not None and not np.isfinite(bias.array).all():
        bias = None
    return Layer(node, weight, bias)


def size(t: TensorType) -> int:
    """Return the elements of a type, open extents taken to be `OPEN`."""
    return t.bind(dict.fromkeys(t.symbols(), OPEN)).size


def _source(place: Place, v: Value, channel: int, inner: int = -1) -> ConstantOrigin | None:
    """Follow a constant operand back through movements that leave its axes whole."""
    path: list[Op] = []
    while v.array is None and v.producer is not None:
        op, x = v.producer.op, v.producer.inputs[0]
        assert x is not None, "movements have an operand"
        if isinstance(op, Transpose):
            channel, inner = op.perm[channel], op.perm[inner] if inner >= 0 else -1
        elif isinstance(op, Broadcast) and _whole(x, v, (channel, inner)):
            added = v.type.rank - x.type.rank
            channel, inner = channel - added, inner - added if inner >= 0 else -1
        else:
            break
        path.insert(0, op)
        v = x
    array = computed_constant(v)
    return None if array is None else ConstantOrigin(place, v, array, tuple(path), channel, inner)


def _whole(x: Value, v: Value, axes: Sequence[int]) -> bool:
    """Whether a broadcast of x to v leaves these axes (-1: none) as they are."""
    added = v.type.rank - x.type.rank
    return all(a < 0 or (a >= added and x.type.shape[a - added] == v.type.shape[a]) for a in axes)


def computed_constant(v: Value) -> Array | None:
    """Return the elements of a constant or of what is computed from some; None if it is open."""
    if v.array is not None:
        return v.array
    if not v.type.static or v.producer is None:
        return None
    arrays: list[Array | None] = []
    for operand in v.producer.inputs:
        array = None if operand is None else computed_constant(operand)
        if array is None and operand is not None:
            return None
        arrays.append(array)
    types = [r.type for r in v.producer.results]
    if not all(t.static for t in types):
        return None
    return apply(v.producer.op, arrays, v.producer.regions, types)[v.index]


def _added(g: Graph, node: Node, at: int, moving: set[Value]) -> ConstantOrigin | None:
    """Return the constant, one number a channel, that is all that happens to a result."""
    v = node.output
    add = next(iter(v.users), None)
    if add is None or not isinstance(add.op, Add) or g.users(v) != 1:
        return None
    index, other = next((i, x) for i, x in enumerate(add.inputs) if x is not v)
    if other is None or other in moving:
        return None
    source = _source((add, index), other, at)
    if source is None or source.channel < 0:
        return None
    shape = source.array.shape
    alone = all(d == 1 or a == source.channel for a, d in enumerate(shape))
    return source if alone and shape[source.channel] == v.type.shape[at] else None
