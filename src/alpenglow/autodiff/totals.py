"""Sums over the iterations of a loop, computed after it from stacked rows.

The gradient of weights that all iterations multiply by is the sum of one product an iteration.  The
factors of all iterations, one below the other, give it in a single product: dW = X^T dY.  A sum
along axes, as the gradient of a bias is, becomes a sum along the axis of iterations as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Op
from alpenglow.ops.elementwise.arithmetic import Add, Neg
from alpenglow.ops.product.contraction import MatMul, turned
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.tensor.movement import Pad, Reshape, Transpose

Stacks = Mapping[Value, Value]
"""Values of a loop's region, each with its rows of all iterations."""


@dataclass(frozen=True)
class Total:
    """The sum over all iterations of a value of a region: `build` appends it after the loop, from
    the stacks of `rows`."""

    rows: tuple[Value, ...]
    build: Callable[[Graph, Stacks], Value]


def total_of(v: Value) -> Total | None:
    """Return the sum of v over all iterations; None if it is best added up in the loop."""
    if v.type.dtype not in ("f32", "f64"):
        return None
    match v.producer:
        case Node(Add(), [Value() as x, Value() as y]):
            left, right = total_of(x), total_of(y)
            if left is None or right is None:
                return None
            return Total((*left.rows, *right.rows), partial(_added, left, right))
        case Node(MatMul(), [Value(Node(Transpose(perm=(1, 0)), [Value() as x])), Value() as dy]):
            return Total((x, dy), partial(_product, x, dy))
        case Node(ReduceSum() as op, [Value() as x]):
            return Total((x,), partial(_reduced, op, x))
        case Node(
            Reshape() | Transpose() | Pad(mode="constant", value=0) | Neg() as op, [Value() as x]
        ):
            inner = total_of(x)
            return None if inner is None else Total(inner.rows, partial(_moved, op, inner))
    return None


def _added(x: Total, y: Total, g: Graph, stacks: Stacks) -> Value:
    return g(Add(), x.build(g, stacks), y.build(g, stacks))


def _moved(op: Op, x: Total, g: Graph, stacks: Stacks) -> Value:
    return g(op, x.build(g, stacks))


def _product(x: Value, dy: Value, g: Graph, stacks: Stacks) -> Value:
    """Return X^T dY, for the rows of all iterations."""
    return g(MatMul(), turned(g, _rows(g, stacks[x])), _rows(g, stacks[dy]))


def _rows(g: Graph, stack: Value) -> Value:
    """Return a stack [T, M, N] as [T·M, N]."""
    count, rows, columns = stack.type.shape
    return g(Reshape((count * rows, columns)), stack)


def _reduced(op: ReduceSum, x: Value, g: Graph, stacks: Stacks) -> Value:
    """Return a sum along axes and over iterations."""
    axes = (0, *(a % x.type.rank + 1 for a in op.axes))
    total = g(ReduceSum(axes, False), stacks[x])
    shape = [1 if i + 1 in axes else d for i, d in enumerate(x.type.shape)]
    return g(Reshape(tuple(shape)), total) if op.keepdims else total
