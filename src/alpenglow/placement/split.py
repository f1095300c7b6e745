"""Nodes whose weights fit no worker, as several nodes that have a part of the weights each.

Convolutions and products are split by output channels, which are joined; tables by rows: each
part is read at the nearest row that it has, and what it gives counts where the index is its own.
Sums are of the same numbers, though the kernel of a narrow part may add them in another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.words import shown
from alpenglow.host.worker import Worker
from alpenglow.ir.dims import ceil_div
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.arithmetic import Add, Maximum, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape
from alpenglow.placement.schedule import Schedule, nbytes

Splitter = Callable[[Graph, Node, int], Value]


def parts_needed(s: Schedule, most: int) -> dict[str, int]:
    """Return into how many parts nodes have to be split, by name, so that none needs more bytes.

    A node that cannot be split so is left out.
    """
    needed: dict[str, int] = {}
    varying = {life.value for life in s.lives}
    for k, node in enumerate(s.nodes):
        weights = _weights(node)
        operands = {v for v in node.inputs if v in varying}
        others = sum(map(nbytes, operands)) + sum(map(nbytes, node.results))
        if weights is None or others + nbytes(weights) <= most or others >= most:
            continue
        # Parts of results are joined, and parts of a table are chosen from, beside their own.
        room = most - others - (2 * nbytes(node.output) if isinstance(node.op, Gather) else 0)
        if room > 0 and (count := ceil_div(nbytes(weights), room)) <= _extent(node, weights):
            needed[s.name(k)] = count
    return needed


def handed_out(s: Schedule, workers: Sequence[Worker]) -> dict[int, int]:
    """Return the workers, by number, of nodes that gather rows of tables: the largest tables first,
    each on the first worker that has room for it; those that none has room for are left out."""
    tables = [
        (nbytes(weights), k)
        for k, node in enumerate(s.nodes)
        if isinstance(node.op, Gather) and (weights := _weights(node)) is not None
    ]
    room = [math.inf if w.memory is None else w.memory for w in workers]
    where: dict[int, int] = {}
    for size, k in sorted(tables, key=lambda t: (-t[0], t[1])):
        d = next((d for d, free in enumerate(room) if size <= free), None)
        if d is not None:
            where[k], room[d] = d, room[d] - size
    return where


def split(graph: Graph, counts: Mapping[str, int]) -> Graph:
    """Return a graph with nodes split into parts, as `counts` says by their names in the schedule.

    Raises UnsupportedError where there is no such node, or it cannot be split.
    """
    if not counts:
        return graph
    s = Schedule(graph)
    for name, count in counts.items():
        node = next((n for k, n in enumerate(s.nodes) if s.name(k) == name), None)
        weights = None if node is None else _weights(node)
        if node is None or weights is None or not 1 < count <= _extent(node, weights):
            raise UnsupportedError(
                f"{shown(graph.name)} has no node '{shown(name)}' that has {count} parts",
                hint="place the model anew",
            )
        s.graph.replace(node.output, _SPLITTERS[type(node.op)](s.graph, node, count))
        s.graph.prune()
    return s.graph


def _weights(node: Node) -> Value | None:
    """Return the constant by which a node can be split."""
    match node:
        case Node(Conv(group=1), [_, w]):
            found = w
        case Node(Conv(group=1), [_, w, Value() as bias]) if bias.array is not None:
            found = w
        case Node(MatMul(), [_, Value(Node(Broadcast(), [w]))]) | Node(MatMul(), [_, w]):
            found = w
        case Node(Gather(axis=0), [table, _]):
            found = table
        case _:
            return None
    if found is None or found.array is None:
        return None
    # What is stretched along its columns has none of its own.
    if isinstance(node.op, MatMul) and found.type.extents[-1] != node.output.type.extents[-1]:
        return None
    return found


def _extent(node: Node, weights: Value) -> int:
    """Return the most parts there can be."""
    return weights.type.extents[-1 if isinstance(node.op, MatMul) else 0]


def _bounds(extent: int, count: int) -> list[tuple[int, int]]:
    """Return parts of about the same size."""
    return [(i * extent // count, (i + 1) * extent // count) for i in range(count)]


def _array(v: Value) -> Array:
    assert v.array is not None, "weights are constants"
    return v.array


def _split_conv(g: Graph, node: Node, count: int) -> Value:
    x, w, *bias = node.inputs
    assert x is not None and w is not None, "a convolution has two operands"
    results: list[Value] = []
    for low, high in _bounds(w.type.extents[0], count):
        operands = [x, _slice(g, w, low, high)]
        for b in bias:
            assert b is not None and b.array is not None, "the bias is constant"
            operands.append(_slice(g, b, low, high))
        results.append(g(node.op, *operands))
    return g(Concat(1), *results)


def _split_product(g: Graph, node: Node, count: int) -> Value:
    x, w = node.inputs
    assert x is not None and w is not None, "a product has two operands"
    results: list[Value] = []
    weights = _weights(node)
    assert weights is not None, "a product by a constant"
    for low, high in _bounds(weights.type.extents[-1], count):
        columns = np.ascontiguousarray(_array(weights)[..., low:high])
        t = weights.type.with_shape((*weights.type.extents[:-1], high - low))
        part = g.constant(columns, f"{weights.name}.{low}", t, copy=False)
        if weights is not w:
            part = g(Broadcast((*w.type.extents[:-1], high - low)), part)
        results.append(g(node.op, x, part))
    return g(Concat(results[0].type.rank - 1), *results)


def _split_table(g: Graph, node: Node, count: int) -> Value:
    table, indices = node.inputs
    assert table is not None and indices is not None, "a table is read at indices"
    rows, shape = table.type.extents[0], indices.type.extents

    def number(n: int) -> Value:
        return g(Broadcast(shape), g.constant(np.array(n, indices.type.numpy)))

    behind = g(Less(), indices, number(0))
    front = g(Where(), behind, g(Add(), indices, number(rows)), indices)
    result: Value | None = None
    for low, high in _bounds(rows, count):
        part = _slice(g, table, low, high)
        there = g(Gather(0), part, g(Maximum(), g(Sub(), front, number(low)), number(0)))
        if result is None:
            result = there
            continue
        extents = there.type.extents
        column = (*shape, *[1] * (len(extents) - len(shape)))
        before = g(Reshape(column), g(Less(), front, number(low)))
        result = g(Where(), g(Broadcast(extents), before), result, there)
    assert result is not None, "a table has parts"
    return result


def _slice(g: Graph, v: Value, low: int, high: int) -> Value:
    """Return rows of a constant as a constant, in the same memory."""
    rows = v.type.with_shape((high - low, *v.type.extents[1:]))
    return g.constant(_array(v)[low:high], f"{v.name}.{low}", rows, copy=False)


_SPLITTERS: Mapping[type[Op], Splitter] = {
    Conv: _split_conv, MatMul: _split_product, Gather: _split_table,
}  # fmt: skip
