"""Lowering: composites are replaced by what they stand for, until only primitives remain.

A loop with a count becomes one kernel if its body is of rows (`passes.scan_rows`), else a `While`.
"""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Composite, Control, Op, is_composite
from alpenglow.ops.control.loop import Scan
from alpenglow.passes.control import shrink_control
from alpenglow.passes.cse import cse
from alpenglow.passes.scan_rows import as_rows
from alpenglow.passes.simplify import simplify


def lower(g: Graph, takes: Callable[[Op], bool] = lambda op: False) -> Graph:
    """Expand every composite operator, and each of control flow that stands for others.

    `takes` says whether the machine has a kernel for an operator; it is asked about `Scan`.
    """
    while expanded := [n for n in g.nodes if is_composite(n.op) and not _is_kept(n, takes)]:
        for node in expanded:
            lower_node(g, node)
        g.prune()
    scans = [n for n in g.nodes if isinstance(n.op, Scan)]
    if scans:
        for node in scans:
            node.regions = tuple(cse(simplify(lower(r))) for r in node.regions)
        shrink_control(g)
        for node in [n for n in g.nodes if isinstance(n.op, Scan)]:
            if as_rows(g, node) is None:
                lower_node(g, node)
        g.prune()
        return lower(g, takes)
    return g


def _is_kept(node: Node, takes: Callable[[Op], bool]) -> bool:
    """Return True for a loop that may become one kernel."""
    return isinstance(node.op, Scan) and takes(node.op)


def lower_node(g: Graph, node: Node) -> None:
    """Make readers of a composite read what it stands for; the node stays for `prune` to drop."""
    op = node.op
    assert isinstance(op, Composite | Control), f"{op.name} stands for nothing else"
    assert op.lower is not None, f"{op.name} stands for nothing else"
    missing = [None] * (len(op.operands) - len(node.inputs))
    inputs = node.inputs if op.variadic else (*node.inputs, *missing)
    regions = {"regions": node.regions} if isinstance(op, Control) else {}
    lowered = op.lower(g, *inputs, **regions)
    values = [lowered] if isinstance(lowered, Value) else lowered
    for old, new in zip(node.results, values, strict=True):
        g.replace(old, new)
