"""How nodes of ONNX run the graphs among their attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
from onnx import TensorProto, helper, numpy_helper

from alpenglow.base.errors import ModelError
from alpenglow.frontends.control import Along, Branch, Repeat, Scan
from alpenglow.frontends.onnx.functions.subgraphs import graphs_of
from alpenglow.frontends.onnx.steps import Inner, NodeStep, graph_of
from alpenglow.ir.dims import Dim
from alpenglow.ir.types import TensorType

MOST_NODES = 128
"""Loops of no more nodes, in all of their turns, are imported turn by turn."""

LOOPS = ("Loop", "Scan")


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Three questions to an importer: the integer that a value is (None if unknown), the number or
    extent that it is (raises Needed if unknown), and its type."""

    number: Callable[[str], int | None]
    extent: Callable[[str], Dim]
    type_of: Callable[[str], TensorType]


@dataclass(frozen=True, slots=True)
class Scanning:
    """The operands of a Scan, and the axes that it goes along.

    The first `states` operands are carried, the others are scanned.  `along` has the axes of the
    scanned operands, then of the stacked results.  If it is `batched`, the operand `lengths` may
    give the length of each sequence of the batch; it is "" if there is none.
    """

    inputs: tuple[str, ...]
    states: int
    along: tuple[Along, ...]
    batched: bool
    lengths: str


def branches(step: NodeStep, folder: Path | None) -> Branch[onnx.NodeProto]:
    """Return the branches of an If."""
    if len(step.inputs) != 1 or not step.inputs[0]:
        raise ModelError(f"If: inputs are {list(step.inputs)}, expected one, the condition")
    names = ("then_branch", "else_branch")
    return Branch(step.inputs[0], tuple(Inner(step.payload, n, folder) for n in names))


def turning(
    step: NodeStep, opset: int, known: Knowledge, folder: Path | None
) -> Scan[onnx.NodeProto] | Repeat[onnx.NodeProto] | None:
    """Return a Loop or a Scan that is known to turn so often as a scan, a Loop whose end data
    decide as one that repeats, any other as None.

    Raises Needed for a number of turns that data decide, if results are stacked so often.
    """
    node = step.payload
    body = graph_of(node, "body")
    strings = any(t.data_type == TensorProto.STRING for t in body.initializer)
    if strings or body.sparse_initializer or not step.outputs or not all(step.inputs[2:]):
        return None
    loop: Scan[onnx.NodeProto] | Repeat[onnx.NodeProto] | None = None
    if step.kind == "Loop":
        loop = _loop(step, body, known, folder)
    elif opset >= 9:
        loop = _scan(node, body, known, folder)
    if not isinstance(loop, Scan):
        return loop
    most = MOST_NODES // max(_size(body), 1)
    return replace(loop, short=isinstance(loop.count, int) and 0 < loop.count <= most)


def _loop(
    step: NodeStep, body: onnx.GraphProto, known: Knowledge, folder: Path | None
) -> Scan[onnx.NodeProto] | Repeat[onnx.NodeProto] | None:
    """Return a Loop; None if it stacks rows, and nothing says how many at most."""
    trips, condition, *carried = [*step.inputs, "", ""][: max(len(step.inputs), 2)]
    states = len(carried)
    rows = len(step.outputs) - states
    if len(body.input) != states + 2 or len(body.output) != len(step.outputs) + 1 or rows < 0:
        return None
    leading = tuple(map(_shape, body.input[:2]))
    begins = not condition or bool(known.number(condition))
    if trips and begins and _never_ends(body) and (rows or known.number(trips) is not None):
        region = Inner(step.payload, "body", folder, skipped=1)
        return Scan(
            region, known.extent(trips), tuple(carried), (), (Along(0),) * rows, leading
        )  # fmt: skip
    if rows and not trips:
        return None
    most = known.extent(trips) if rows else 0
    region = Inner(step.payload, "body", folder)
    return Repeat(region, trips, condition, tuple(carried), leading, most)


def _scan(
    node: onnx.NodeProto, body: onnx.GraphProto, known: Knowledge, folder: Path | None
) -> Scan[onnx.NodeProto] | None:
    form = scanning(node, body, batched=False)
    sources = form.inputs[form.states :]
    scanned = tuple(zip(sources, form.along, strict=False))
    types = [(known.type_of(name), along.axis) for name, along in scanned]
    if not all(-t.rank <= axis < t.rank for t, axis in types):
        return None
    lengths = {t.shape[axis] for t, axis in types}
    length = lengths.pop()
    if lengths:
        return None
    region = Inner(node, "body", folder)
    carried, stacked = form.inputs[: form.states], form.along[len(sources) :]
    return Scan(region, length, carried, scanned, stacked)


def scanning(node: onnx.NodeProto, body: onnx.GraphProto, batched: bool) -> Scanning:
    """Return how a Scan goes along its operands; before opset 9 along each of a batch.

    Raises ModelError if its attributes, its operands and its body do not fit.
    """
    settings = {a.name: helper.get_attribute_value(a) for a in node.attribute if a.name != "body"}
    scanned = settings.get("num_scan_inputs", 0)
    inputs = list(node.input)
    lengths = inputs.pop(0) if batched and inputs else ""
    if not 0 < scanned <= len(inputs) or len(body.input) != len(inputs):
        raise ModelError(
            f"Scan: {len(inputs)} operands and num_scan_inputs {scanned}, expected "
            f"{len(body.input)} operands for the body and num_scan_inputs of 1 to that"
        )
    if not all(inputs):
        raise ModelError(f"Scan: input {list(node.input).index('')} is missing")
    states = len(inputs) - scanned
    results = len(node.output) - states
    if results < 0 or len(body.output) != len(node.output):
        raise ModelError(
            f"Scan: the body has {len(body.output)} outputs and the node {len(node.output)}, "
            f"expected equal numbers, at least {states}"
        )
    rows, made = [0] * scanned, [0] * results
    if batched:
        axes, reverse = [*rows, *made], [*settings.get("directions", rows), *made]
    else:
        axes, reverse = (
            [*settings.get(f"scan_input_{what}", rows), *settings.get(f"scan_output_{what}", made)]
            for what in ("axes", "directions")
        )
    if len(axes) != scanned + results or len(reverse) != scanned + results:
        raise ModelError(
            f"Scan: axes are {axes} and directions {reverse}, expected {scanned + results} of each"
        )
    along = tuple(Along(a, bool(r)) for a, r in zip(axes, reverse, strict=True))
    return Scanning(tuple(inputs), states, along, batched, lengths)


def _size(g: onnx.GraphProto) -> int:
    """Return the number of nodes of a graph and of all graphs in it."""
    return sum(1 + sum(map(_size, graphs_of(node))) for node in g.node)


def _shape(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    """Return the shape in which a body declares a number: a scalar, or a vector of one."""
    return (1,) if len(info.type.tensor_type.shape.dim) == 1 else ()


def _never_ends(body: onnx.GraphProto) -> bool:
    """Return True if a body continues its loop whenever its condition input is true."""
    makers = {o: node for node in body.node for o in node.output}
    constants = {t.name: t for t in body.initializer}
    name = body.output[0].name
    for _ in body.node:
        node = makers.get(name)
        if node is None or node.domain not in ("", "ai.onnx"):
            break
        if node.op_type == "Constant":
            constants[name] = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type not in ("Identity", "Cast") or len(node.input) != 1:
            break
        name = node.input[0]
    told = constants.get(name)
    if told is not None:
        return bool(told.data_type == TensorProto.BOOL and numpy_helper.to_array(told).all())
    return bool(name == body.input[1].name)
