"""Messages of protobuf: nodes, the types of tensors, and bodies of loops."""

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
    node = helper.make_node(x.op_type, x.inputs, x.outputs, name=x.outputs[0])
    known = w.schema(x.op_type).attributes
    for name, value in x.attributes.items():
        kind = onnx.AttributeProto.AttributeType.Value(str(known[name].type).rpartition(".")[2])
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    return node


def info_of(name: str, t: TensorType) -> onnx.ValueInfoProto:
    """Return the name and type of an input or output."""
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
    graph, captured = _body(body, [*before, *read], [*after, *made])
    attributes = {"body": graph, "num_scan_inputs": len(inputs)}
    if axis:
        attributes["scan_input_axes"] = [axis] * len(inputs)
        attributes["scan_output_axes"] = [axis] * len(results)
    final = [w.fresh("scan", dtype) for dtype in (*(t.dtype for t in states), *results)]
    w.line("Scan", [*states, *inputs], final, attributes, captured)
    return final


Turn = Callable[[Writer, list[Tensor]], tuple[Tensor, list[Tensor]]]
"""Writes one turn of a loop: whether there is another, a bool[], and the next states."""


def loop(w: Writer, turn: Turn, going: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """Write a loop that takes turns while a bool[] is true, and return the last states."""
    body = w.inner()
    number, before = body.fresh("turn", "i64"), body.fresh("going", "bool")
    own = [body.fresh("state", t.dtype) for t in states]
    again, after = turn(body, own)
    graph, captured = _body(body, [number, before, *own], [again, *after])
    for info in graph.input[:2]:
        info.type.tensor_type.shape.SetInParent()  # runtimes need the empty shape of scalars
    final = [w.fresh("loop", t.dtype) for t in states]
    w.line("Loop", [None, going, *states], final, {"body": graph}, captured)
    return final


Typed = tuple[Tensor, TensorType]


def graph_of(
    body: Writer, given: Sequence[Typed], made: Sequence[Typed]
) -> tuple[onnx.GraphProto, list[str]]:
    """Return the written lines as a graph, and the names of the outer tensors that they read.

    ONNX demands that each output is computed by a line of this graph, and that outputs differ:
    an Identity copies the rest.
    """
    own = {n for x in body.lines for n in x.outputs}
    outs: dict[str, TensorType] = {}
    for t, kind in made:
        fresh = t.name in own and t.name not in outs
        outs[t.name if fresh else body("Identity", t).name] = kind
    lines = read_lines(body.lines, outs)
    inputs = [info_of(t.name, kind) for t, kind in given]
    outputs = [info_of(name, kind) for name, kind in outs.items()]
    graph = helper.make_graph([node_of(body, x) for x in lines], "body", inputs, outputs)
    return graph, _outside(lines, [t for t, _ in given])


def _outside(lines: Sequence[Line], given: Sequence[Tensor]) -> list[str]:
    """Return the names of what lines read that neither they make nor they are given."""
    own = {t.name for t in given} | {n for x in lines for n in x.outputs}
    return [n for x in lines for n in (*x.inputs, *x.captured) if n and n not in own]


def _body(
    body: Writer, given: Sequence[Tensor], made: Sequence[Tensor]
) -> tuple[onnx.GraphProto, list[str]]:
    """Return the written lines as a graph, and the names that it reads from outside."""
    outs = [body("Identity", t) for t in made]
    lines = read_lines(body.lines, [t.name for t in outs])
    inputs, outputs = (
        [helper.make_tensor_value_info(t.name, CODES[t.dtype], None) for t in tensors]
        for tensors in (given, outs)
    )
    graph = helper.make_graph([node_of(body, x) for x in lines], "body", inputs, outputs)
    return graph, _outside(lines, given)
