"""What a loop carries and never changes stands outside of it, and its body captures it.

Exporters hand weights from turn to turn.  As captured constants they are constants of the body, and
are packed like any; carried, they are data that each turn copies.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto

from alpenglow.frontends.onnx.function_body import domain_of
from alpenglow.frontends.onnx.functions import OPSET
from alpenglow.frontends.onnx.subgraphs import as_outside, defined, graphs_of, renamed


def settled(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return a node; if it is a Loop, without what it carries unchanged, and what copies that."""
    if node.op_type != "Loop" or domain_of(node):
        return [node]
    body = next((a.g for a in node.attribute if a.name == "body"), None)
    count = len(node.input) - 2
    if body is None or len(body.input) != count + 2 or len(body.output) != len(node.output) + 1:
        return [node]
    own = _defined_within(body)
    sources = {n.output[0]: n.input[0] for n in body.node
               if n.op_type == "Identity" and not domain_of(n)}  # fmt: skip
    kept: dict[int, str] = {}
    for k, (carried, result) in enumerate(zip(body.input[2:], body.output[1:], strict=False)):
        name, start = result.name, node.input[k + 2]
        while name in sources:
            name = sources[name]
        if name == carried.name and start and start not in own and _is_numbers(carried):
            kept[k] = start
    if len(kept) == count:
        kept.popitem()  # a Loop had to carry something before opset 11
    return [_without(node, body, kept), *_copies(node, kept)] if kept else [node]


def _is_numbers(v: onnx.ValueInfoProto) -> bool:
    # A type that is not declared may be that of a sequence.
    others = (TensorProto.UNDEFINED, TensorProto.STRING)
    return v.type.HasField("tensor_type") and v.type.tensor_type.elem_type not in others


def _defined_within(g: onnx.GraphProto) -> set[str]:
    """Return the names that a graph or a graph in it gives to values."""
    inner = (_defined_within(other) for node in g.node for other in graphs_of(node))
    return defined(g).union(*inner)


def _without(node: onnx.NodeProto, body: onnx.GraphProto, kept: dict[int, str]) -> onnx.NodeProto:
    """Return a Loop whose body reads from outside what it was given."""
    names = {body.input[k + 2].name: start for k, start in kept.items()}
    new = onnx.NodeProto()
    new.CopyFrom(node)
    inner = next(a.g for a in new.attribute if a.name == "body")
    nodes = [renamed(n, names) for n in inner.node]
    for out in inner.output:
        out.name = names.get(out.name, out.name)
    for field, before in (
        (new.input, 2), (new.output, 0), (inner.input, 2), (inner.output, 1)
    ):  # fmt: skip
        for k in sorted(kept, reverse=True):
            del field[k + before]
    del inner.node[:]
    inner.node.extend(nodes)
    return new


def _copies(node: onnx.NodeProto, kept: dict[int, str]) -> list[onnx.NodeProto]:
    pairs = [(start, node.output[k]) for k, start in kept.items() if node.output[k]]
    copied = [onnx.helper.make_node("Identity", [start], [name]) for start, name in pairs]
    return [as_outside(copy, node, (OPSET,)) for copy in copied]
