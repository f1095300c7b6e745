"""Unpacks sink past operators that work as well on blocked tensors.

There they meet the packs of the next convolution, and both vanish: a network converts at its edges
only, and each value once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from alpenglow.ir.dims import Dim, ceil_div, known
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.rewrite import Rules
from alpenglow.machines.vector.operators.layout import Blocked, Pack, Unpack
from alpenglow.ops.reduction.reduction import Reduction
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.lookup import Lookup
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape
from alpenglow.ops.window.pooling import AveragePool, MaxPool

rules = Rules()


def propagate_layout(g: Graph) -> Graph:
    """Move unpacks down until they meet packs and cancel, or a result is asked for."""
    rules.apply(g)
    for node in g.nodes:
        match node:
            case Node(Unpack(), [Value() as x]):
                called(x, node.output)
    _pack_once(g)
    return g


def _pack_once(g: Graph) -> None:
    """Merge packs of one value, but for those that are written into padding as they are made."""
    first: dict[tuple[Pack, Value], Node] = {}
    for node in list(g.nodes):
        match node:
            case Node(Pack() as op, [Value() as x]):
                if any(isinstance(user.op, Pad) for user in node.users):
                    continue
                same = first.setdefault((op, x), node)
                if same is not node:
                    g.replace(node.output, same.output)
    g.prune()


@dataclass(frozen=True, slots=True)
class Blocks:
    """The layout that the operands of a node share."""

    lanes: int
    channels: Dim


def _blocks(node: Node) -> Blocks | None:
    """Return the layout of the first operand that is an unpack."""
    for v in node.inputs:
        match v:
            case Value(Node(Unpack(channels), [Value() as x])):
                lanes = x.type.shape[-1]
                assert known(lanes)
                return Blocks(lanes, channels)
    return None


def _blocked(g: Graph, v: Value, blocks: Blocks, shape: tuple[Dim, ...]) -> Value | None:
    """Return `v` in the given layout if that is free: an unpack, or the broadcast of a constant
    or of one element a channel."""
    match v:
        case Value(Node(Unpack(), [Value() as x])) if x.type.shape[-1] == blocks.lanes:
            return called(x, v)
        case Value(Node(Broadcast(), [Value(Node(Unpack(channels), [Value() as x]))])):
            if x.type.shape[-1] == blocks.lanes and channels == blocks.channels:
                return g(Broadcast(shape, Blocked(blocks.channels)), x)
        case Value(Node(Broadcast(), [Value() as x])) if x.array is not None or _little(x, v):
            if x.type.size == 1:
                flat = g(Reshape(()), x) if x.type.rank else x
                return g(Broadcast(shape, Blocked(blocks.channels)), flat)
            full = (1,) * (v.type.rank - x.type.rank) + x.type.extents
            if full[1] != blocks.channels:
                return None
            packed = g(Pack(blocks.lanes), g(Reshape(full), x))
            return g(Broadcast(shape, Blocked(blocks.channels)), packed)
    if v.array is not None and v.type.shape[1] == blocks.channels:
        return g(Pack(blocks.lanes), v)
    return None


def _little(x: Value, v: Value) -> bool:
    """Whether x, which v stretches, has one element at most for each channel."""
    shape = (1,) * (v.type.rank - x.type.rank) + x.type.shape
    return x.type.static and all(d == 1 for i, d in enumerate(shape) if i != 1)


def called(x: Value, v: Value) -> Value:
    """Return x, called as its unpacked form v is: that may vanish, and its name with it."""
    x.name = x.name or v.name
    return x


@rules.on(Elementwise)
def sink_elementwise(g: Graph, node: Node) -> Value | None:
    """f(unpack(x), unpack(y), constant)  =>  unpack(f(x, y, pack(constant)))"""
    blocks = _blocks(node)
    if blocks is None or len(node.results) != 1:
        return None
    t = node.output.type
    shape = (t.shape[0], ceil_div(t.shape[1], blocks.lanes), *t.shape[2:], blocks.lanes)
    operands = []
    for v in node.inputs:
        assert v is not None
        x = _blocked(g, v, blocks, shape)
        if x is None:
            return None
        operands.append(x)
    return g(Unpack(blocks.channels), g(node.op, *operands))


@rules.on(MaxPool, AveragePool)
def sink_pool(g: Graph, node: Node) -> Value | None:
    """pool(unpack(x))  =>  unpack(pool(x))"""
    match node.inputs:
        case [Value(Node(Unpack(channels), [Value() as x])) as v]:
            return g(Unpack(channels), g(node.op, called(x, v)))
    return None


@rules.on(Reduction)
def sink_reduction(g: Graph, node: Node) -> Value | None:
    """reduce(unpack(x))  =>  unpack(reduce(x)), where channels are not reduced"""
    match node:
        case Node(Reduction() as op, [Value(Node(Unpack(channels), [Value() as x])) as v]):
            if not op.axes or 1 in op.axes:
                return None
            y = g(Unpack(channels), g(replace(op, keepdims=True), called(x, v)))
            return y if op.keepdims else g(Reshape(node.output.type.shape), y)
    return None


@rules.on(Gather)
def sink_gather(g: Graph, node: Node) -> Value | None:
    """gather(unpack(x), positions)  =>  unpack(gather(x, positions)), along a spatial axis"""
    match node:
        case Node(Gather(axis), [Value(Node(Unpack(channels), [Value() as x])) as v, Value() as i]):
            if axis % v.type.rank < 2 or i.type.rank != 1:
                return None
            return g(Unpack(channels), g(Gather(axis % v.type.rank), called(x, v), i))
    return None


@rules.on(Lookup)
def sink_lookup(g: Graph, node: Node) -> Value | None:
    """lookup(unpack(x), table)  =>  unpack(lookup(x, table))"""
    match node.inputs:
        case [Value(Node(Unpack(channels), [Value() as x])) as v, table]:
            return g(Unpack(channels), g(node.op, called(x, v), table))
    return None


@rules.on(Pad)
def sink_pad(g: Graph, node: Node) -> Value | None:
    """pad(unpack(x))  =>  unpack(pad(x)), where the batch and the channels stay as they are"""
    match node:
        case Node(Pad(before, after), [Value(Node(Unpack(channels), [Value() as x])) as v]):
            if before[1] or after[1] or before[0] or after[0]:
                return None
            op = replace(node.op, before=(*before, 0), after=(*after, 0))  # type: ignore[type-var]
            return g(Unpack(channels), g(op, called(x, v)))
    return None


@rules.on(Pad)
def sink_more_channels(g: Graph, node: Node) -> Value | None:
    """pad(unpack(x)), channels behind x's  =>  unpack(concat(pad(x), constant))

    Those of x must fill their blocks."""
    match node:
        case Node(Pad(before, after, "constant", value), [
            Value(Node(Unpack(channels), [Value() as x])) as v
        ]):  # fmt: skip
            blocks, lanes = x.type.shape[1], x.type.shape[-1]
            if before[:2] != (0, 0) or after[0] or after[1] <= 0 or channels != blocks * lanes:
                return None
            y = called(x, v)
            if any((*before, *after[2:])):
                y = g(Pad((*before, 0), (0, 0, *after[2:], 0), "constant", value), y)
            shape = (y.type.shape[0], ceil_div(after[1], lanes), *y.type.shape[2:])
            one = g.constant(np.asarray(value, x.type.numpy))
            more = g(Broadcast(shape, Blocked(after[1])), one)
            return g(Unpack(channels + after[1]), g(Concat(1), y, more))
    return None


@rules.on(Concat)
def sink_concat(g: Graph, node: Node) -> Value | None:
    """concat(unpack(x), unpack(y))  =>  unpack(concat(x, y)), where all but the last fill blocks"""
    match node:
        case Node(Concat(axis)):
            rank = node.output.type.rank
            if axis % rank != 1:
                return None
            parts: list[Value] = []
            last = len(node.inputs) - 1
            for i, v in enumerate(node.inputs):
                match v:
                    case Value(Node(Unpack(channels), [Value() as x])):
                        full = channels == x.type.shape[1] * x.type.shape[-1]
                        if not full and i != last:
                            return None
                        parts.append(called(x, v))
                    case _:
                        return None
            if len({p.type.shape[-1] for p in parts}) > 1:
                return None
            return g(Unpack(node.output.type.shape[1]), g(Concat(1), *parts))
    return None


@rules.on(Pack)
def cancel_pack(g: Graph, node: Node) -> Value | None:
    """pack(unpack(x), lanes)  =>  x, where x has blocks of that many lanes"""
    match node:
        case Node(Pack(lanes), [Value(Node(Unpack(), [Value() as x])) as v]):
            return called(x, v) if x.type.shape[-1] == lanes else None
    return None


@rules.on(Unpack)
def cancel_unpack(g: Graph, node: Node) -> Value | None:
    """unpack(pack(x))  =>  x"""
    match node:
        case Node(_, [Value(Node(Pack(), [x]))]):
            return x
    return None
