"""What was written, as messages of protobuf: nodes, the types of tensors, and bodies of loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx
from onnx import helper

from alpenglow.exporters.onnx.elements import CODES
from alpenglow.exporters.onnx.writer import Line, Tensor, Writer
from alpenglow.ir.dims import is_open
from alpenglow.ir.types import TensorType

Step = Callable[[Writer, list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]
"""Writes one turn of a loop, of states and of what is read in it: the next states, and results."""


def read_lines(lines: Sequence[Line], outputs: Iterable[str]) -> list[Line]:
    """Return the lines that outputs need, in order."""
    wanted, kept = set(outputs), []
    for x in reversed(lines):
        if wanted.intersection(x.outputs):
            wanted.update(x.inputs, x.captured)
            kept.append(x)
    return kept[::-1]


def node_of(w: Writer, x: Line) -> onnx.NodeProto:
    """Return a line as a node, with attributes of the types that ONNX says they have."""
    node = helper.make_node(x.op_type, x.inputs, x.outputs, domain=x.domain, name=x.outputs[0])
    known = w.schema(x.op_type, x.domain).attributes
    for name, value in x.attributes.items():
        kind = onnx.AttributeProto.AttributeType.Value(str(known[name].type).rpartition(".")[2])
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    return node


def info_of(name: str, t: TensorType) -> onnx.ValueInfoProto:
    """Return what an input or output is called, and its type."""
    dims = [str(d) if is_open(d) else int(d) for d in t.shape]
    return helper.make_tensor_value_info(name, CODES[t.dtype], dims)


def scan(
    w: Writer, step: Step, states: Sequence[Tensor], inputs: Sequence[Tensor],
    results: Sequence[str], axis: int = 0,
) -> list[Tensor]:  # fmt: skip
    """Write a loop over an axis of all inputs: return the last states, and results on that axis.

    `results` are the element types of what a turn makes besides the next states.
    """
    body = w.inner()
    before, read = (
        [body.fresh(name, t.dtype) for t in tensors]
        for name, tensors in (("state", states), ("slice", inputs))
    )
    after, made = step(body, before, read)
    outs = [body("Identity", t) for t in (*after, *made)]
    lines = read_lines(body.lines, [t.name for t in outs])
    graph = helper.make_graph(
        [node_of(body, x) for x in lines],
        "step",
        [helper.make_tensor_value_info(t.name, CODES[t.dtype], None) for t in (*before, *read)],
        [helper.make_tensor_value_info(t.name, CODES[t.dtype], None) for t in outs],
    )
    own = {t.name for t in (*before, *read)} | {n for x in lines for n in x.outputs}
    captured = [n for x in lines for n in (*x.inputs, *x.captured) if n and n not in own]
    kinds = [*(t.dtype for t in states), *results]
    final = [w.fresh("scan", dtype) for dtype in kinds]
    attributes = {"body": graph, "num_scan_inputs": len(inputs)}
    if axis:
        attributes["scan_input_axes"] = [axis] * len(inputs)
        attributes["scan_output_axes"] = [axis] * len(results)
    w.line("Scan", [*states, *inputs], final, "", attributes)
    w.lines[-1].captured = captured
    return final
