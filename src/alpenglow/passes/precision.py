"""Reduced precision: convolutions and matrix products take bf16 or f16, and sum in f32.

What they read is rounded once, where it was computed, and whoever else reads it gets the rounded
numbers too, so activations are stored in half the bytes.  Weights are rounded when the graph is
compiled.  Everything else (sums, biases, activations, norms, softmax) stays in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.types import DTYPES
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.movement import Reshape, Transpose, stretch, unstretched
from alpenglow.passes.keep import names_of


def reduce_precision(
    g: Graph, dtype: str, keep: Collection[str], stays: Callable[[Node], bool]
) -> Graph:
    """Let contractions take `dtype`, but for those that `keep` names, by result or operator.

    Those that a machine says it is better to leave in f32 `stay`, too, and those by a constant with
    an element that `dtype` has no finite number for.
    """
    narrow: dict[Value, Value] = {}
    for node in list(g.nodes):
        if not isinstance(node.op, Conv | MatMul) or node.output.type.dtype != "f32":
            continue
        x, w, *rest = node.inputs
        assert x is not None and w is not None
        if names_of(node) & set(keep) or stays(node) or not (_fits(x, dtype) and _fits(w, dtype)):
            continue
        operands = [_narrowed(g, v, dtype, narrow) for v in (x, w)]
        y = g(replace(node.op, wide=True), *operands, *rest)
        g.replace(node.output, y)
    g.prune()
    return g


def _fits(v: Value, dtype: str) -> bool:
    """Return whether a half has a finite number for each element, if v is a constant."""
    array = unstretched(v).array
    if array is None or not array.size:
        return True
    with np.errstate(over="ignore"):
        ends = np.asarray([array.min(), array.max()]).astype(DTYPES[dtype])
    return bool(np.isfinite(ends.astype(np.float32)).all())


def _weights(g: Graph, w: Value, source: Value, dtype: str) -> Value:
    """Return w, which is a constant or stretches one, rounded."""
    assert source.array is not None, f"{source} is no constant"
    c = g.constant(
        source.array.astype(source.type.with_dtype(dtype).numpy), source.name, copy=False
    )
    return stretch(g, c, w.type.shape)


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
