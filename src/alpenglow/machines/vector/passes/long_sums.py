"""Products with long sums: the sum of products of parts of both operands.

A kernel packs a panel of an operand that is computed, on the stack: a long one has no room there,
nor in the cache of a core.  Each part adds to what the parts before have made.
"""

from __future__ import annotations

from dataclasses import replace

from alpenglow.ir.dims import ceil_div, estimate, is_open, product
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.types import FLOATS, HALVES
from alpenglow.machines.vector.operators.blocked import FEW, LONGEST, MULTIPLIED
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import as_type
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Slice

EVEN = 64
"""Parts begin at multiples of so many elements."""

MOST_PARTS = 64
"""Each part is an instruction."""


def in_parts(g: Graph, node: Node) -> None:
    """Compute a matrix product in parts of its inner extent, if that is too long for a kernel."""
    x, y = node.inputs
    assert x is not None and y is not None and isinstance(node.op, MatMul)
    size = _part(x, y)
    if size is None or is_of_shares(x):
        return
    inner = x.type.extents[-1]
    op = replace(node.op, wide=x.type.dtype in HALVES)
    total: Value | None = None
    for start in range(0, inner, size):
        own = min(size, inner - start)
        part = g(op, _slice(g, x, x.type.rank - 1, start, own),
                 _slice(g, y, y.type.rank - 2, start, own))  # fmt: skip
        total = part if total is None else g(Add(), part, total)
    assert total is not None, "there are parts"
    g.replace(node.output, as_type(g, total, node.output.type.dtype))


def _part(x: Value, y: Value) -> int | None:
    """Return how long parts are; None if there are none.

    One row or column is read where it lies; a few columns of floats are put in order first.
    """
    *batch, rows, inner = x.type.shape
    columns = y.type.shape[-1]
    dtypes = {x.type.dtype, y.type.dtype}
    if is_open(inner) or not dtypes <= MULTIPLIED or 0 in (*x.type.shape, *y.type.shape):
        return None
    few = x.type.dtype in FLOATS and estimate(columns) <= FEW
    most = LONGEST // 2 if few else LONGEST
    if inner <= most or 1 in (estimate(product([*batch, rows])), estimate(columns)):
        return None
    assert isinstance(inner, int), "it is not dynamic"
    parts = ceil_div(inner, most)
    return ceil_div(ceil_div(inner, parts), EVEN) * EVEN if parts <= MOST_PARTS else None


def makes_scores(y: Value) -> bool:
    """Return True if y may be the scores of an attention, which is computed in one kernel."""
    waiting, seen = [*y.users], set[Node]()
    while waiting:
        node = waiting.pop()
        if isinstance(node.op, Softmax):
            return True
        if isinstance(node.op, Elementwise) and node not in seen:
            seen.add(node)
            waiting += [user for v in node.results for user in v.users]
    return False


def is_of_shares(x: Value) -> bool:
    """Return True if x may be the shares of an attention, which is computed in one kernel."""
    while x.producer is not None and isinstance(x.producer.op, Elementwise):
        (x, *_) = (v for v in x.producer.inputs if v is not None)
    return x.producer is not None and isinstance(x.producer.op, Softmax)


def _slice(g: Graph, v: Value, axis: int, start: int, size: int) -> Value:
    starts, sizes = [0] * v.type.rank, list(v.type.shape)
    starts[axis], sizes[axis] = start, size
    return g(Slice(tuple(starts), tuple(sizes), (1,) * v.type.rank), v)
