"""What nobody reads is not computed: a classifier takes one token of all that its last layer makes.

Each value is asked for whole, or for a part along one axis that is all that anybody reads of it: a
slice, or what is gathered at a number.  From there an operator that works along another axis asks
its operands for the same part.  A region of such operators in which there is a product is computed
for the part alone.

    (x w + b)[:, 0] = x[:, 0] w + b
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ir.types import TensorType
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.layer_norm import LayerNorm, RMSNorm
from alpenglow.ops.reduction.reduction import Reduction
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Slice, Transpose


@dataclass(frozen=True)
class Part:
    """`size` elements along an axis from `start` on, `step` apart."""

    axis: int
    start: Dim
    size: Dim
    step: int

    def along(self, axis: int) -> Part:
        """Return the same elements along another axis."""
        return replace(self, axis=axis)

    def shape(self, whole: Sequence[Dim]) -> tuple[Dim, ...]:
        return tuple(self.size if i == self.axis else d for i, d in enumerate(whole))

    def slice(self, t: TensorType) -> Slice:
        axes = range(t.rank)
        starts = tuple(self.start if i == self.axis else 0 for i in axes)
        steps = tuple(self.step if i == self.axis else 1 for i in axes)
        return Slice(starts, self.shape(t.shape), steps)


MOST_ANEW = 64
"""Values that are computed anew for a part at most."""

Demand = Part | None
"""Which part of a value is read; None for the whole."""


def slice_to_used(g: Graph) -> Graph:
    """Compute parts of values of which no more is read, behind products."""
    demands = _demands(g)
    made: dict[Value, Value] = {}
    masks: dict[tuple[Value, Part], Value] = {}

    def taken(x: Value, part: Demand) -> Value:
        if part is None:
            return x
        if x in made and demands[x] == part:
            return made[x]
        if (x, part) not in masks:
            masks[x, part] = _anew(g, x, part) or g(part.slice(x.type), x)
        return masks[x, part]

    for node in _worthwhile(g, demands):
        part = demands[node.output]
        assert part is not None, "it is cut"
        given = [v for v in node.inputs if v is not None]
        parts = _asked(node, part)
        op = _of_part(node.op, node.output.type, part)
        made[node.output] = g(op, *map(taken, given, parts))
    for node in list(g.nodes):
        for x in node.inputs[:1]:
            if x in made and x is not None and demands[x] == _read(node):
                shape = node.output.type.shape
                y = made[x] if isinstance(node.op, Slice) else g(Reshape(shape), made[x])
                g.replace(node.output, y)
    g.prune()
    return g


def _demands(g: Graph) -> dict[Value, Demand]:
    """Return the part that is read of each value that is read at all."""
    demands: dict[Value, Demand] = dict.fromkeys(g.outputs.values())

    def ask(x: Value, part: Demand) -> None:
        demands[x] = part if x not in demands or demands[x] == part else None

    for node in reversed(g.nodes):
        given = [v for v in node.inputs if v is not None]
        part = demands.get(node.results[0]) if len(node.results) == 1 else None
        if (read := _read(node)) is not None:
            parts: list[Demand] = [read, *[None] * (len(given) - 1)]
        elif part is not None:
            parts = _asked(node, part)
        else:
            parts = [None] * len(given)
        for x, one in zip(given, parts, strict=True):
            ask(x, one)
    return demands


def _read(node: Node) -> Demand:
    """Return which part of its operand a node reads, if it does nothing else."""
    match node:
        case Node(Slice(starts, sizes, steps), [Value() as x]):
            cut = [i for i, d in enumerate(x.type.shape) if sizes[i] != d or steps[i] != 1]
            if len(cut) == 1:
                (axis,) = cut
                return Part(axis, starts[axis], sizes[axis], steps[axis])
        case Node(Gather(axis), [Value() as x, Value(array=at)]) if at is not None:
            axis %= x.type.rank
            extent = x.type.shape[axis]
            if at.size == 1 and known(extent):
                index = int(at.reshape(-1)[0])
                return Part(axis, index + extent if index < 0 else index, 1, 1)
    return None


def _asked(node: Node, part: Part) -> list[Demand]:
    """Return which parts of its operands a node needs for a part of its result."""
    given = [v for v in node.inputs if v is not None]
    whole: list[Demand] = [None] * len(given)
    y = node.output.type
    if not all(t.is_plain for t in (y, *(v.type for v in given))):
        return whole
    axis = part.axis
    match node.op:
        case Elementwise() if node.op.pure and all(v.type.shape == y.shape for v in given):
            return [part] * len(given)
        case Transpose(perm):
            return [part.along(perm[axis])]
        case Reshape():
            (x,) = given
            same = [
                i for i, d in enumerate(x.type.shape)
                if d == y.shape[axis]
                and math.prod(x.type.shape[:i]) == math.prod(y.shape[:axis])
            ]  # fmt: skip
            return [part.along(same[-1])] if same else whole
        case LayerNorm() | RMSNorm() if axis < node.op.axis % y.rank:
            return [part, *whole[1:]]
        case Softmax() if axis != node.op.axis % y.rank:
            return [part]
        case Reduction(axes, keepdims):
            (x,) = given
            kept = [i for i in range(x.type.rank) if keepdims or i not in axes]
            return whole if kept[axis] in axes else [part.along(kept[axis])]
        case op if op.by_rows and axis < y.rank - 1:
            return [part, *whole[1:]]
        case MatMul() if all(v.type.rank == y.rank for v in given):
            rows, columns = y.rank - 2, y.rank - 1
            if axis == rows:
                return [part, None]
            return [None, part] if axis == columns else [part, part]
        case Broadcast():
            own = axis - (y.rank - given[0].type.rank)
            return whole if _stretched(node, part) else [part.along(own)]
    return whole


def _of_part(op: Op, y: TensorType, part: Part) -> Op:
    """Return the operator that computes a part of what another one does."""
    match op:
        case Reshape() | Broadcast() | Iota():
            return replace(op, shape=part.shape(y.shape))
    return op


def _anew(g: Graph, x: Value, part: Part) -> Value | None:
    """Return a part of what is computed of positions and of what is stretched, computed anew.

    That is a mask, which others read whole: nothing of it is in memory, and to slice it would put
    it there.  None if it is computed of more, or of more than `MOST_ANEW` values.
    """
    parts: dict[Value, Part] = {}
    waiting = [(x, part)]
    while waiting:
        v, one = waiting.pop()
        if v in parts and parts[v] == one:
            continue
        if v in parts or len(parts) == MOST_ANEW:
            return None
        parts[v] = one
        node = v.producer
        if node is None or isinstance(node.op, Iota) or _stretched(node, one):
            continue
        if not isinstance(node.op, Elementwise | Broadcast | Transpose | Reshape):
            return None
        given = [v for v in node.inputs if v is not None]
        asked = _asked(node, one)
        if None in asked or len(given) < len(node.inputs):
            return None
        waiting += [(v, p) for v, p in zip(given, asked, strict=True) if p is not None]
    made: dict[Value, Value] = {}

    def of(v: Value) -> Value:
        if v not in made:
            made[v] = _part_of(g, v, parts[v], of)
        return made[v]

    return of(x)


def _part_of(g: Graph, x: Value, part: Part, of: Callable[[Value], Value]) -> Value:
    """Return a part of a value that can be computed anew; `of` makes those of operands."""
    node = x.producer
    if node is None:
        return g(part.slice(x.type), x)
    given = [v for v in node.inputs if v is not None]
    if isinstance(node.op, Iota) and part.axis == node.op.axis % x.type.rank:
        every = g(Iota((x.type.shape[part.axis],), 0))
        line = g(Slice((part.start,), (part.size,), (part.step,)), every)
        alone = tuple(part.size if i == part.axis else 1 for i in range(x.type.rank))
        return g(Broadcast(part.shape(x.type.shape)), g(Reshape(alone), line))
    operands = given if _stretched(node, part) else map(of, given)
    return g(_of_part(node.op, x.type, part), *operands)


def _stretched(node: Node, part: Part) -> bool:
    """Whether a part of the result is of all of the operand, stretched to another extent."""
    if not isinstance(node.op, Broadcast):
        return False
    (x,), y = node.inputs, node.output.type
    assert x is not None, "a broadcast has an operand"
    own = part.axis - (y.rank - x.type.rank)
    return own < 0 or x.type.shape[own] != y.shape[part.axis]


def _cuts(node: Node, part: Part) -> bool:
    """Whether a node can compute a part of its result for less than the whole."""
    if isinstance(node.op, Iota):
        return part.axis != node.op.axis % node.output.type.rank
    return isinstance(node.op, Broadcast) or any(_asked(node, part))


def _worthwhile(g: Graph, demands: dict[Value, Demand]) -> list[Node]:
    """Return the nodes, in order, of which parts are computed: those around a product."""
    cut = [
        node for node in g.nodes
        if len(node.results) == 1
        and (part := demands.get(node.results[0])) is not None
        and _read(node) is None
        and _cuts(node, part)
    ]  # fmt: skip
    place = {node: i for i, node in enumerate(cut)}
    root = list(range(len(cut)))

    def find(i: int) -> int:
        while root[i] != i:
            i = root[i]
        return i

    for node, i in place.items():
        part = demands[node.output]
        assert part is not None, "it is cut"
        given = [v for v in node.inputs if v is not None]
        for x, one in zip(given, _asked(node, part), strict=True):
            j = place.get(x.producer) if x.producer is not None else None
            if one is not None and j is not None and demands[x] == one:
                root[find(i)] = find(j)
    # What adds up products along an axis takes the time.
    products = {find(i) for node, i in place.items() if type(node.op).work is not Op.work}
    return [node for node, i in place.items() if find(i) in products]
