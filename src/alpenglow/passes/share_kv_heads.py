"""Heads that share keys: exporters repeat keys and values for each of them, which is to copy both.

    attention(q[B, G R, S, E], repeated k[B, G, T, E], repeated v[B, G, T, F])

becomes attention over an axis more, [B, G, R, …], along which keys and values are the same: there
they are stretched, which costs nothing where they are read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Transpose, stretch
from alpenglow.passes.attention import attentions
from alpenglow.passes.constants import uniform

Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class Repeated:
    """An operand that is `stretched` to [B, G, R, …], perhaps `turned`, times a `number`."""

    stretched: Value
    turned: bool
    number: float

    @property
    def split(self) -> Shape:
        return self.stretched.type.shape[:3]


def share_kv_heads(g: Graph) -> Graph:
    """Let heads of attention share keys and values that are repeated for them."""
    for chain in list(attentions(g, lambda scores, product: True)):
        scores, product = (n for n in chain if isinstance(n.op, MatMul))
        if product is not chain[-1]:  # its shares are summed up, too
            continue
        keys, values = (_repeated(n.inputs[1]) for n in (scores, product))
        if keys is None or values is None or keys.split != values.split or values.number != 1:
            continue
        _regroup(g, chain, keys, values)
    g.prune()
    return g


def _repeated(operand: Value | None) -> Repeated | None:
    """Return the value that an operand [B, G R, …] repeats for each of R heads; None if none."""
    assert operand is not None, "products have two operands"
    v, turned, number = operand, False, 1.0
    heads = v.type.shape[:-2]
    while True:
        shape = v.type.shape
        match v.producer:
            case Node(Broadcast(), [Value() as x]) if len(shape) == 5:
                batch, groups, each = shape[:3]
                same = x.type.shape == (batch, groups, 1, *shape[3:])
                whole = heads == (batch, groups * each)
                return Repeated(v, turned, number) if same and whole else None
            case Node(Reshape(), [Value() as x]) if x.type.shape[-2:] == shape[-2:]:
                v = x
            case Node(Transpose(perm), [Value() as x]) if perm == _turned(len(shape)):
                v, turned = x, not turned
            case Node(Mul(), [Value() as a, Value() as b]):
                x, factor = (a, uniform(b)) if uniform(b) is not None else (b, uniform(a))
                if factor is None:
                    return None
                v, number = x, number * factor
            case _:
                return None


def _turned(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _regroup(g: Graph, chain: list[Node], keys: Repeated, values: Repeated) -> None:
    split, product = keys.split, chain[-1]
    made: dict[Value, Value] = {}

    def apart(x: Value) -> Value:
        return made[x] if x in made else _apart(g, x, split)

    for node in chain:
        x = node.inputs[0] if node.inputs else None
        match node.op:
            case MatMul():
                right = keys if node is not product else values
                y = right.stretched
                y = g(Transpose(_turned(5)), y) if right.turned else y
                assert x is not None, "products have two operands"
                left = _times(g, apart(x), right.number)
                result = g(node.op, left, y)
            case Iota(shape, axis) if axis % len(shape) >= 2:
                result = g(Iota((*split, *shape[2:]), axis % len(shape) - len(shape)))
            case Iota():
                result = _apart(g, node.output, split)
            case Softmax():
                assert x is not None, "a softmax has an operand"
                result = g(replace(node.op, axis=-1), apart(x))
            case _:
                inputs = [None if v is None else apart(v) for v in node.inputs]
                result = g(node.op, *inputs)
        made[node.output] = result
    g.replace(product.output, g(Reshape(product.output.type.shape), made[product.output]))


def _apart(g: Graph, x: Value, split: Shape) -> Value:
    """Return x[B, G R, …] as [B, G, R, …]; what is the same for all heads stays stretched."""
    rest = x.type.shape[2:]
    match x.producer:
        case Node(Broadcast(), [Value() as source]):
            if source.type.rank <= len(rest):
                return stretch(g, source, (*split, *rest))
            ones: Shape = (1,) * (4 - source.type.rank)
            batch, heads, *inner = ones + source.type.shape
            shape = (batch, *((1, 1) if heads == 1 else split[1:]), *inner)
            return stretch(g, g(Reshape(shape), source), (*split, *rest))
    return g(Reshape((*split, *rest)), x)


def _times(g: Graph, x: Value, number: float) -> Value:
    if number == 1:
        return x
    factor = g.constant(np.asarray(number, x.type.numpy))
    return g(Mul(), x, stretch(g, factor, x.type.shape))
