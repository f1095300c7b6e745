"""Common subexpressions: equal nodes are computed once, equal constants are held once.

Nodes are equal if operator, operands and regions (compared by their text) are; operators whose
operands may be swapped are recognised either way.  Random and stateful nodes stay as they are.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.text import print_graph
from alpenglow.ir.types import TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Maximum, Minimum, Mul
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.logic import BitAnd, BitOr, BitXor
from alpenglow.ops.tensor.in_range import InRange

COMMUTATIVE = (Add, Mul, Minimum, Maximum, Equal, BitAnd, BitOr, BitXor)


def cse(g: Graph) -> Graph:
    """Merge equal constants, then equal nodes from the inputs on."""
    _merge_constants(g)
    first: dict[Hashable, Node] = {}
    merged = False
    for node in list(g.nodes):
        if not node.op.pure:
            continue
        same = first.setdefault(_key(node), node)
        if same is not node:
            for old, new in zip(node.results, same.results, strict=True):
                g.replace(old, new)
            merged = True
    if merged:
        g.prune()
    return g


def _merge_constants(g: Graph) -> None:
    alike: dict[TensorType, list[Value]] = {}
    for v in g.constants():
        alike.setdefault(v.type, []).append(v)
    for group in alike.values():
        if len(group) == 1:
            continue  # hashing reads every byte, so it is left to where it may find something
        first: dict[str, Value] = {}
        for v in group:
            same = first.setdefault(v.digest, v)
            if same is not v:
                g.replace(v, same)


def _key(node: Node) -> Hashable:
    """Return the key of a node, which equal nodes share: operator, operands, regions."""
    operands = [id(v) for v in node.inputs]
    if isinstance(node.op, COMMUTATIVE):
        operands.sort()
    op = node.op
    if isinstance(op, InRange):
        op = replace(op, of="")  # the error names the first check
    return op, tuple(operands), tuple(print_graph(r) for r in node.regions)
