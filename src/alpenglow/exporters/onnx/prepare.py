"""Prepare a graph for writing: expand operators without a writer.

Nodes on constants without a writer are computed, as the packing of weights for kernels.
"""

from __future__ import annotations

import numpy as np

from alpenglow.exporters.onnx.pairs import has_complex, in_pairs
from alpenglow.exporters.onnx.table import find
from alpenglow.ir.graph import Graph, Node, is_closed
from alpenglow.ir.op import Composite, Control, Elementwise, Primitive
from alpenglow.ir.region import inlined, take_in
from alpenglow.ops.fused import Fused
from alpenglow.ops.image.resize import Resize
from alpenglow.ops.image.sampling import AffineGrid
from alpenglow.ops.sequence.cache import UpdateCache
from alpenglow.ops.sequence.signal import CosineWindow, Dft
from alpenglow.ops.window.deform import DeformConv
from alpenglow.passes.lower import lower_node

OF_NUMBERS = (AffineGrid, CosineWindow, DeformConv, Dft, Resize)
"""The composites whose `lower` reads extents as numbers, as it can under an assumption."""


def prepared(graph: Graph, opset: int) -> tuple[Graph, list[Node]]:
    """Return a copy without fused nodes and complex numbers, and with no composite without writer.

    With it come the nodes that prevent that.
    """
    g = spelled_out(graph.copy(), opset)
    return in_pairs(g) if has_complex(g) else (g, [])


def spelled_out(g: Graph, opset: int) -> Graph:
    """Expand nodes without a writer, in regions too."""
    while waiting := [n for n in g.nodes if _stands_for_others(n, opset)]:
        for node in waiting:
            if isinstance(node.op, Fused):
                _inline(g, node)
            else:
                lower_node(g, node)
        g.prune()
    for node in g.nodes:
        if isinstance(node.op, Control):
            take_in(node)
            for region in node.regions:
                spelled_out(region, opset)
    for node in list(g.nodes):
        if isinstance(node.op, UpdateCache):
            operands = [v for v in node.inputs if v is not None]
            g.replace(node.output, node.op.spelled_out(g, *operands))
    g.prune()
    for node in list(g.nodes):
        if find(node, opset) is None and not isinstance(node.op, Elementwise):
            _computed(g, node)
    g.prune()
    return g


def _stands_for_others(node: Node, opset: int) -> bool:
    if isinstance(node.op, Fused):
        return True
    if not isinstance(node.op, Composite) or find(node, opset) is not None:
        return False
    return not needs_numbers(node)


def needs_numbers(node: Node) -> bool:
    """Return True if a node expands only for fixed dimensions, and it has dynamic dimensions."""
    return isinstance(node.op, OF_NUMBERS) and has_open(node)


def has_open(node: Node) -> bool:
    """Return True if an operand, a result or an attribute of a node has open extents."""
    return not is_closed(node) or any(v is not None and v.type.symbols() for v in node.inputs)


def _computed(g: Graph, node: Node) -> None:
    """Put the results of a node without a writer in its place, if its operands are constants."""
    arrays = [None if v is None else v.array for v in node.inputs]
    known = all(v is None or v.array is not None for v in node.inputs)
    if not known or not isinstance(node.op, Primitive) or not is_closed(node):
        return
    results = node.op.reference(*arrays)
    for v, array in zip(
        node.results, results if len(node.results) > 1 else (results,), strict=True
    ):
        g.replace(v, g.constant(np.ascontiguousarray(array), v.name, v.type, copy=False))


def _inline(g: Graph, node: Node) -> None:
    """Put the parts of a fused node in its place."""
    (body,) = node.regions
    for old, new in zip(node.results, inlined(g, body, node.inputs), strict=True):
        g.replace(old, new)
