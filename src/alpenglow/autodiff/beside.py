"""Gradients that cannot stand in the class of their operator, for they need what is built on it.

A broadcast is undone by a sum, and a sum by a broadcast; one of the two files must come first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from alpenglow.autodiff import recurrent
from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ops.arithmetic import Mul
from alpenglow.ops.gather import summed_at
from alpenglow.ops.movement import Broadcast, Pad, Reshape, Transpose
from alpenglow.ops.reduction import ReduceProd, ReduceSum
from alpenglow.ops.scan import CumProd


def broadcast(op: Broadcast, b: Graph, dy: Value, x: Value) -> Value:
    new = dy.type.rank - x.type.rank
    stretched = [i + new for i, d in enumerate(x.type.shape) if d != dy.type.shape[i + new]]
    total = b(ReduceSum((*range(new), *stretched), False), dy)
    return b(Reshape(x.type.shape), total)


def pad(op: Pad, b: Graph, dy: Value, x: Value) -> Value:
    """Cut off what was added; where it repeats elements of x, it is added to them."""
    if op.mode == "constant":
        return b(Pad(tuple(-n for n in op.before), tuple(-n for n in op.after)), dy)
    for axis, extent in enumerate(x.type.shape):
        amounts = op.before[axis], op.after[axis]
        if amounts == (0, 0):
            continue
        if not known(extent):
            raise UnsupportedError(f"gradient: {op.name} by {op.mode} along an open extent")
        places = np.pad(np.arange(extent), amounts, mode=op.mode)  # type: ignore[call-overload]
        dy = summed_at(b, dy, b.constant(places.astype(np.int64)), axis, extent)
    return dy


def reduce_prod(op: ReduceProd, b: Graph, dy: Value, x: Value) -> Value:
    """Multiply by all other elements: those before times those after, so that zeros do no harm."""
    kept = [a for a in range(x.type.rank) if a not in op.axes]
    perm = (*kept, *op.axes)
    outer: list[Dim] = [x.type.shape[a] for a in kept]
    rows = (product(outer), product([x.type.shape[a] for a in op.axes]))
    moved = b(Transpose(perm), x)
    flat = b(Reshape(rows), moved)
    others = b(Mul(), b(CumProd(1, True), flat), b(CumProd(1, True, True), flat))
    repeated = b(Broadcast(rows), b(Reshape((rows[0], 1)), dy))
    back = b(Reshape(moved.type.shape), b(Mul(), repeated, others))
    return b(Transpose(tuple(perm.index(a) for a in range(x.type.rank))), back)


RULES: dict[type[Op], Callable[..., Any]] = {
    Broadcast: broadcast,
    Pad: pad,
    ReduceProd: reduce_prod,
    **recurrent.RULES,
}
