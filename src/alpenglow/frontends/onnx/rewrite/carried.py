"""Move values that a loop carries unchanged out of it; its body captures them.

Exporters hand weights from turn to turn.  As captured constants they are constants of the body, and
are packed like any; carried, they are data that each turn copies.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from alpenglow.frontends.onnx.file.attributes import stated_constant
from alpenglow.frontends.onnx.functions.body import domain_of
from alpenglow.frontends.onnx.functions.functions import OPSET
from alpenglow.frontends.onnx.functions.subgraphs import as_outside, defined, graphs_of, renamed
from alpenglow.ir.types import Array


def settled(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return a node; if it is a Loop, without what it carries unchanged, and what copies that."""
    if node.op_type != "Loop" or domain_of(node):
        return [node]
    body = next((a.g for a in node.attribute if a.name == "body"), None)
    count = len(node.input) - 2
    if body is None or len(body.input) != count + 2 or len(body.output) != len(node.output) + 1:
        return [node]
    own = _defined_within(body)
    makers = {out: n for n in body.node for out in n.output if out and not domain_of(n)}
    stated = {t.name: numpy_helper.to_array(t) for t in body.initializer if _is_small(t)}
    stated |= {out: array for out, n in makers.items()
               if (array := stated_constant(n, None)) is not None}  # fmt: skip
    kept: dict[int, str] = {}
    for k, (carried, result) in enumerate(zip(body.input[2:], body.output[1:], strict=False)):
        name, start = result.name, node.input[k + 2]
        while (source := _copied(name, makers, stated)) is not None:
            name = source
        if name == carried.name and start and start not in own and _is_numbers(carried):
            kept[k] = start
    if kept and len(kept) == count:
        kept.popitem()  # a Loop had to carry something before opset 11
    return [_without(node, body, kept), *_copies(node, kept)] if kept else [node]


def _copied(
    name: str, makers: Mapping[str, onnx.NodeProto], stated: Mapping[str, Array]
) -> str | None:
    """Return of what a value is a copy: Identity, or Squeeze(Unsqueeze(x) + 0) on the same axes.

    Paddle2ONNX writes the latter for what a loop assigns.
    """
    node = makers.get(name)
    if node is None or not node.input:
        return None
    if node.op_type == "Identity":
        return str(node.input[0])
    if node.op_type != "Squeeze" or (axes := _axes(node, stated)) is None:
        return None
    inner = makers.get(node.input[0])
    if inner is not None and inner.op_type == "Add":
        others = [n for n in inner.input if not _is_zero(stated.get(n))]
        inner = makers.get(others[0]) if len(others) == 1 else None
    if inner is None or inner.op_type != "Unsqueeze" or _axes(inner, stated) != axes:
        return None
    return str(inner.input[0])


def _axes(node: onnx.NodeProto, stated: Mapping[str, Array]) -> list[int] | None:
    """Return the axes of a Squeeze or Unsqueeze, if it states them."""
    if len(node.input) > 1:
        array = stated.get(node.input[1])
        return None if array is None else array.reshape(-1).tolist()
    return next((list(a.ints) for a in node.attribute if a.name == "axes"), None)


def _is_zero(array: Array | None) -> bool:
    """Return True if an array is one zero, which adds no axis to what has one."""
    return array is not None and array.size == 1 and array.ndim <= 1 and not array.any()


def _is_small(t: TensorProto) -> bool:
    external = t.data_location == TensorProto.EXTERNAL
    return not external and t.data_type != TensorProto.STRING and int(np.prod(t.dims)) <= 8


def _is_numbers(v: onnx.ValueInfoProto) -> bool:
    # A type that is not declared may be a sequence type.
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
