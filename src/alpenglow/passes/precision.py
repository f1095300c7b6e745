"""Reduced precision: convolutions and matrix products take bf16 or f16, and sum in f32.

What they read is rounded once, where it was computed, and whoever else reads it gets the rounded
numbers too, so activations are stored in half the bytes.  Weights are rounded when the graph is
compiled.  Everything else (sums, biases, activations, norms, softmax) stays in f32, and so do
products of few rows by weights of few bits, which are read faster still.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from alpenglow.base.errors import OptionError
from alpenglow.ir.dims import estimate, known, product
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.target import Target
from alpenglow.ops.blocked import DOTS
from alpenglow.ops.contraction import Conv, MatMul
from alpenglow.ops.few_bits import MatMulFewBits
from alpenglow.ops.movement import Broadcast, Reshape, Transpose
from alpenglow.ops.select import Cast
from alpenglow.passes.constants import unstretched
from alpenglow.passes.winograd import DIRECT, best_block, winograd_fits

PRECISIONS = ("f32", "bf16", "f16")
"""What contractions can take: f32 is as they are written."""

FEW = 8
"""Rows of a product that takes as long as reading its weights: those of few bits stay."""

FOLLOWED = 3
"""So many elementwise operators behind a contraction go by its name: a bias, an activation."""


def reduce_precision(
    g: Graph, dtype: str, keep: Collection[str], target: Target, fast: bool
) -> Graph:
    """Let contractions take `dtype`, but for those that `keep` names, by result or operator.

    Convolutions that are faster in f32 by Winograd's way, which `fast` numerics allow, stay in f32.
    """
    narrow: dict[Value, Value] = {}
    if dtype in DOTS and target.has("avx512bf16"):
        _unpack(g)
    for node in list(g.nodes):
        if not isinstance(node.op, Conv | MatMul) or node.output.type.dtype != "f32":
            continue
        x, w, *rest = node.inputs
        assert x is not None and w is not None
        if _names(node) & set(keep) or (fast and _faster_in_f32(node, w, dtype, target)):
            continue
        operands = [_narrowed(g, v, dtype, narrow) for v in (x, w)]
        y = g(replace(node.op, wide=True), *operands, *rest)
        g.replace(node.output, y)
    g.prune()
    return g


def check_kept(g: Graph, keep: Sequence[str]) -> None:
    """Raise OptionError if a name is that of no result and no operator that `keep` can name."""
    known = {v.name for n in g.nodes for v in n.results} | {Conv.name, MatMul.name}
    for name in keep:
        if name not in known:
            raise OptionError(
                f"keep names '{name}', which is no result of a node",
                hint=f"names of results, or {Conv.name} or {MatMul.name} for all of a kind",
            )


def known_as(g: Graph, keep: Collection[str]) -> frozenset[str]:
    """Return what `keep` names in a graph as it was read, with the names it will go by later.

    A bias or a scale that joins a contraction takes the name of the result away with it.
    """
    found = set(keep)
    for node in g.nodes:
        if isinstance(node.op, Conv | MatMul) and node.output.name in keep:
            found.update(v.name for v in _followed(node) if v.name)
    return frozenset(found)


def _followed(node: Node) -> Iterator[Value]:
    """Yield what is computed of a result and constants alone, as far as nobody else reads it."""
    for _ in range(FOLLOWED):
        v = node.output
        if len(v.users) != 1:
            return
        (node,) = v.users
        others = (x for x in node.inputs if x is not None and x is not v)
        if len(node.results) != 1 or not all(map(_constant, others)):
            return
        yield node.output


def _constant(v: Value) -> bool:
    """Whether a value depends on constants alone."""
    return v.array is not None or (
        v.producer is not None and all(x is None or _constant(x) for x in v.producer.inputs)
    )


def _unpack(g: Graph) -> None:
    """Let products of many rows have their weights in floats: these are multiplied faster."""
    for node in list(g.nodes):
        match node:
            case Node(MatMulFewBits() as op, [Value() as x, Value() as q, Value() as grid]):
                inner, rows = x.type.shape[-1], estimate(product(x.type.shape[:-1]))
                if rows <= FEW or q.array is None or grid.array is None or not known(inner):
                    continue
                w = g.constant(op.matrix(q.array, grid.array, inner))
                shape = (*x.type.shape[:-2], *w.type.shape)
                g.replace(node.output, g(MatMul(), x, g(Broadcast(shape), w)))


def _faster_in_f32(node: Node, w: Value, dtype: str, target: Target) -> bool:
    """Whether a convolution takes less time in f32, with fewer multiplications."""
    op, result = node.op, node.output.type
    if not isinstance(op, Conv) or w.array is None or not result.static:
        return False
    at_once = DOTS[dtype] if dtype in DOTS and target.has("avx512bf16") else 1
    fits = winograd_fits(op, w.type.extents, result.extents, target.lanes)
    return fits and best_block(w.type.extents, result.extents, at_once) != DIRECT


def _names(node: Node) -> set[str]:
    """Return the names of a contraction: its operator's, its result's, and what it becomes."""
    names = {node.op.name}
    for _ in range(FOLLOWED):
        names.add(node.output.name)
        users = list(node.output.users)
        if len(users) != 1 or not isinstance(users[0].op, Elementwise):
            break
        (node,) = users
    return names


def _weights(g: Graph, w: Value, source: Value, dtype: str) -> Value:
    """Return w, which is a constant or stretches one, rounded."""
    assert source.array is not None, f"{source} is no constant"
    c = g.constant(source.array.astype(source.type.with_dtype(dtype).numpy), source.name)
    return c if c.type.shape == w.type.shape else g(Broadcast(w.type.shape), c)


def _narrowed(g: Graph, x: Value, dtype: str, narrow: dict[Value, Value]) -> Value:
    """Return x rounded, and let all who read what was computed read that."""
    source = unstretched(x)
    if source.array is not None:
        return _weights(g, x, source, dtype)
    match x:
        case Value(Node(Reshape() | Transpose() as move, [Value() as inner])):
            return g(move, _narrowed(g, inner, dtype, narrow))
        case Value(Node(Cast(dtype="f32"), [Value() as source])) if source.type.dtype == dtype:
            return source
    if x not in narrow:
        others = list(x.users)
        narrow[x] = g(Cast(dtype, loose=True), x)
        wide = g(Cast("f32"), narrow[x])
        for user in others:
            user.inputs = tuple(wide if v is x else v for v in user.inputs)
            x.users.pop(user, None)
            wide.users[user] = None
    return narrow[x]
