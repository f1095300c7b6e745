"""Complex numbers as pairs of reals: what a graph becomes where it has some.

No operator of ONNX computes with complex numbers, few move them, and none takes them apart.  So
each complex tensor becomes one of reals with a last axis of 2, the real part and the imaginary one,
as other exporters have it; inputs, outputs and constants too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Control, Op
from alpenglow.ir.types import COMPLEX, PARTS, Array, TensorType
from alpenglow.ops.elementwise.complex import ViewAsComplex, ViewAsReal
from alpenglow.ops.elementwise.select import BitCast, Cast, Where
from alpenglow.ops.tensor.copy import Copy, Fill
from alpenglow.ops.tensor.gather import (
    Gather,
    GatherElements,
    GatherNd,
    ScatterElements,
    ScatterNd,
)
from alpenglow.ops.tensor.generate import Shape
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose
from alpenglow.ops.window.conv_transpose import Dilate

Operands = Sequence[Value | None]


def has_complex(g: Graph) -> bool:
    """Return True if a value of a graph is complex."""
    values = [*g.inputs.values(), *g.constants(), *(v for n in g.nodes for v in n.results)]
    regions = (r for n in g.nodes if isinstance(n.op, Control) for r in n.regions)
    return any(v.type.dtype in COMPLEX for v in values) or any(map(has_complex, regions))


def is_complex(node: Node) -> bool:
    """Return True if a node reads or makes complex numbers."""
    return any(v is not None and v.type.dtype in COMPLEX for v in (*node.inputs, *node.results))


def pair(t: TensorType) -> TensorType:
    """Return the type of pairs of reals for a complex type; other types as they are."""
    return TensorType(PARTS[t.dtype], (*t.shape, 2)) if t.dtype in COMPLEX else t


def as_pairs(v: Value) -> Array:
    """Return the elements of a complex constant as pairs of reals."""
    assert v.array is not None, "a constant has elements"
    return np.asarray(ViewAsReal().reference(v.array))


def in_pairs(g: Graph) -> tuple[Graph, list[Node]]:
    """Return a graph of pairs, and the nodes that cannot be said of pairs, of which there is none.

    If there are any, the graph holds the nodes before the first of them.
    """
    new = Graph(g.name)
    new.metadata, new.guards = g.metadata, g.guards
    env: dict[Value, Value] = {
        v: new.input(n, pair(v.type), hidden=v.hidden) for n, v in g.inputs.items()
    }
    for v in g.constants():
        env[v] = v if v.type.dtype not in COMPLEX else new.constant(as_pairs(v), v.name)
    inner = {n: [in_pairs(r) for r in n.regions] for n in g.nodes if isinstance(n.op, Control)}
    unmoved = [n for n in g.nodes if is_complex(n) and n not in inner and not is_movement(n)]
    if unmoved := unmoved + [n for pairs in inner.values() for _, rest in pairs for n in rest]:
        return new, unmoved
    for node in g.nodes:
        operands = [None if v is None else env[v] for v in node.inputs]
        if node in inner:
            regions = [r for r, _ in inner[node]]
            results: Sequence[Value] = new.add(node.op, operands, regions).results
        elif is_complex(node):
            results = [moved(new, node, operands)]
        else:
            results = new.add(node.op, operands, node.regions, node.results[0].name).results
        for old, v in zip(node.results, results, strict=True):
            v.name = v.name or old.name
            env[old] = v
    for name, v in g.initial.items():
        new.initial[name] = new.constant(as_pairs(v)) if v.type.dtype in COMPLEX else v
    new.outputs = {name: env[v] for name, v in g.outputs.items()}
    return new, []


def is_movement(node: Node) -> bool:
    """Return True if a node on complex numbers is one on pairs."""
    op = node.op
    if isinstance(op, BitCast):
        (x,) = node.inputs
        return x is not None and x.type.dtype == op.dtype
    kinds = (
        ViewAsReal, ViewAsComplex, Copy, Cast, Gather, GatherNd, ScatterNd, Shape,
        GatherElements, ScatterElements, Where, Fill,
    )  # fmt: skip
    return isinstance(op, kinds) or widened(op, 1) is not None


def moved(b: Graph, node: Node, xs: Operands) -> Value:
    """Apply a node that moves complex numbers to pairs, and return the result."""
    op, rank = node.op, 0 if not node.inputs or node.inputs[0] is None else node.inputs[0].type.rank
    match op:
        case ViewAsReal() | ViewAsComplex() | Copy() | Cast() | BitCast():
            assert xs[0] is not None, "the operand is there"
            return xs[0]
        case Gather(axis) | GatherElements(axis) | ScatterElements(axis):
            op = replace(op, axis=axis % rank)
        case Fill(dtype, shape, value):
            parts = [Fill(PARTS[dtype], (*shape, 1), number) for number in (value, 0.0)]
            return b(Concat(len(shape)), *(b(part) for part in parts))
    match op:
        case GatherElements() | ScatterElements():
            return b(op, xs[0], _twice(b, xs[1]), *xs[2:])
        case Where():
            return b(op, _twice(b, xs[0]), *xs[1:])
    return b(widened(op, rank) or op, *xs)


def _twice(b: Graph, v: Value | None) -> Value:
    """Return a value with one element per complex number, repeated for both parts."""
    assert v is not None, "the operand is there"
    column = b(Reshape((*v.type.shape, 1)), v)
    return b(Broadcast((*v.type.shape, 2)), column)


def widened(op: Op, rank: int) -> Op | None:
    """Return an operator that leaves the last axis of pairs as it is; None if there is none."""
    match op:
        case Reshape(shape):
            return Reshape((*shape, 2))
        case Transpose(perm):
            return Transpose((*perm, rank))
        case Broadcast(shape):
            return Broadcast((*shape, 2))
        case Slice(starts, sizes, steps):
            return Slice((*starts, 0), (*sizes, 2), (*steps, 1))
        case Concat(axis):
            return Concat(axis % rank)
        case Pad(before, after, mode, value) if mode != "constant" or value == 0:
            return Pad((*before, 0), (*after, 0), mode, value)
        case Dilate(steps):
            return Dilate((*steps, 1))
    return None
