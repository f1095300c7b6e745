"""Nodes of a graph as lines of a model: by their entries of the table, or by their formulas."""

from __future__ import annotations

from alpenglow.base.words import shown
from alpenglow.exporters.onnx.prepare import needs_numbers
from alpenglow.exporters.onnx.table import find, operands
from alpenglow.exporters.onnx.write_elementwise import formula
from alpenglow.exporters.onnx.writer import Failure, Refused, Tensor, Writer
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ops.tensor.movement import Broadcast

OF_A_MACHINE = "a pass of a machine made it; export the graph before that pass"


def write_nodes(w: Writer, g: Graph) -> None:
    """Write all nodes of a graph; those that cannot be written are added to the failures."""
    w.late = lambda v: _late(w, v)
    for node in g.nodes:
        if isinstance(node.op, Broadcast):
            continue  # written where it is read as it is: most operators of ONNX stretch operands
        try:
            _write(w, node)
        except Refused as error:
            w.failures.append(failure(node, str(error), error.newer))
            for v in node.results:
                w.values[v] = Tensor("?", v.type.dtype)


def failure(node: Node, why: str, newer: bool = False) -> Failure:
    """Return that a node cannot be written."""
    name = node.results[0].name
    return Failure(f"'{shown(name)}'" if name else "", node.op.name, why, newer)


def _late(w: Writer, v: Value) -> Tensor:
    """Write what was put off until something reads it."""
    if v.producer is None:
        raise Refused("a hidden random input is not supported as an operand")
    assert isinstance(v.producer.op, Broadcast), f"{v} is read before it is written"
    _write(w, v.producer)
    return w.values[v]


def _write(w: Writer, node: Node) -> None:
    """Write a node by its entry of the table, or by its formula."""
    start, outer = len(w.lines), w.node
    w.node = node
    if not all(v is None or v.type.is_plain for v in (*node.inputs, *node.results)):
        raise Refused(OF_A_MACHINE)
    write = find(node, w.opset)
    if write is not None:
        made = write(w, node.op, *operands(node))
    elif isinstance(node.op, Elementwise):
        made = formula(w, node)
    else:
        raise Refused(why_not(node))
    w.node = outer
    results = [made] if isinstance(made, Tensor) else list(made)
    for v, t in zip(node.results, results, strict=True):
        assert t.dtype == v.type.dtype, f"{node.op.name}: {t} for {v}"
        w.values[v] = w.renamed(t, v, start)
        w.held.add(w.values[v].name)


def why_not(node: Node) -> str:
    """Return why a node that has no writer cannot be written."""
    if needs_numbers(node):
        return "its extents are open, and without them it stands for nothing; bind them"
    if type(node.op).__module__.startswith("alpenglow.machines"):
        return OF_A_MACHINE
    return "ONNX has no operators that say this, or nobody has written down which"
