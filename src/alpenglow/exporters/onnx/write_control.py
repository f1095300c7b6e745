"""Writers of control flow: regions become graphs among the attributes of If, Loop and Scan.

A region reads a captured value by its name outside, as in ONNX.  A `Scan` is written as a Scan if
its count is known and not 0, and else as a Loop: runtimes refuse a Scan without rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from alpenglow.exporters.onnx.elements import allowed
from alpenglow.exporters.onnx.extents import scalar_extent
from alpenglow.exporters.onnx.nodes import write_nodes
from alpenglow.exporters.onnx.proto import Typed, graph_of
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.writer import Refused, Tensor, Writer
from alpenglow.ir.dims import is_open
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import COUNTER, FLAG, Scan, While


@on(If)
def branch(w: Writer, op: If, condition: Value, *xs: Value) -> list[Tensor]:
    outer = [w.tensor(x) for x in xs]
    graphs, captured = {}, []
    for name, region in zip(("then_branch", "else_branch"), _regions(w), strict=True):
        body = w.inner()
        graphs[name], read = graph_of(body, [], _written(body, region, outer))
        captured += read
    return _line(w, "If", [w.tensor(condition)], graphs, captured)


@on(While)
def loop(w: Writer, op: While, going: Value, *xs: Value) -> list[Tensor]:
    outer, (region,) = [w.tensor(x) for x in xs], _regions(w)
    first, captured = outer[: op.carried_count], outer[op.carried_count :]
    body = w.inner()
    before = _given(body, region)[: op.carried_count]
    made = _written(body, region, [*(t for t, _ in before), *captured])
    heads = [(body.fresh("turn", "i64"), COUNTER), (body.fresh("going", "bool"), FLAG)]
    graph, read = graph_of(body, [*heads, *before], made)
    return _line(w, "Loop", [None, w.tensor(going), *first], {"body": graph}, read)


@on(Scan)
def scan(w: Writer, op: Scan, *xs: Value) -> list[Tensor]:
    first, scanned, captured = op.split([w.tensor(x) for x in xs])
    if is_open(op.count) or op.count == 0:
        return _counted(w, op, first, scanned, captured)
    (region,) = _regions(w)
    body = w.inner()
    turn, *given = _given(body, region)[: 1 + len(first) + len(scanned)]
    before, rows = given[: len(first)], given[len(first) :]
    made = _written(body, region, [t for t, _ in (turn, *given)] + captured)
    index = next(iter(region.inputs.values()))
    if region.users(index) or not scanned:
        scanned, rows = [w.tensor(np.arange(int(op.count))), *scanned], [turn, *rows]
    graph, read = graph_of(body, [*before, *rows], made)
    attributes: dict[str, object] = {"body": graph, "num_scan_inputs": len(scanned)}
    if op.reverse:
        attributes["scan_input_directions"] = [1] * len(scanned)
        attributes["scan_output_directions"] = [1] * (len(made) - len(first))
    return _line(w, "Scan", [*first, *scanned], attributes, read)


def _counted(
    w: Writer, op: Scan, first: list[Tensor], scanned: list[Tensor], captured: list[Tensor]
) -> list[Tensor]:
    """Write a Loop that counts, and reads rows by their numbers."""
    (region,) = _regions(w)
    count = w.tensor(scalar_extent(w, op.count))
    body = w.inner()
    turn, *before = _given(body, region)[: 1 + len(first)]
    at = turn[0]
    if op.reverse:
        at = body("Sub", body("Sub", count, np.array(1, np.int64)), at)
    rows = [body("Gather", x, at, axis=0) for x in scanned]
    made = _written(body, region, [at, *(t for t, _ in before), *rows, *captured])
    going = body.fresh("going", "bool")
    graph, read = graph_of(
        body, [turn, (going, FLAG), *before], [(body("Identity", going), FLAG), *made]
    )
    results = _line(w, "Loop", [count, None, *first], {"body": graph}, read)
    if not op.reverse:
        return results
    last, first_axis = np.array([-1], np.int64), np.array([0], np.int64)
    end = np.array([np.iinfo(np.int64).min + 1])
    return results[: len(first)] + [
        w("Slice", y, last, end, first_axis, last) for y in results[len(first) :]
    ]


def _regions(w: Writer) -> tuple[Graph, ...]:
    """Return the regions of the node that is being written."""
    assert w.node is not None, "a node is being written"
    return w.node.regions


def _given(body: Writer, region: Graph) -> list[Typed]:
    """Return tensors for the inputs of a region."""
    return [(body.fresh(n, v.type.dtype), v.type) for n, v in region.inputs.items()]


def _written(body: Writer, region: Graph, operands: Sequence[Tensor]) -> list[Typed]:
    """Write what a region computes of operands, one for each of its inputs; return its outputs."""
    body.values.update(zip(region.inputs.values(), operands, strict=True))
    write_nodes(body, region)
    return [(body.tensor(v), v.type) for v in region.outputs.values()]


def _line(
    w: Writer, op_type: str, operands: Sequence[Tensor | None], attributes: Mapping[str, object],
    captured: Sequence[str],
) -> list[Tensor]:  # fmt: skip
    """Write a node with the results of the one that is being written, and return these."""
    assert w.node is not None, "a node is being written"
    types = [v.type.dtype for v in w.node.results]
    legal = allowed(w.schema(op_type), "V")
    for dtype in types:
        if dtype not in legal:
            what = f"{dtype} results are not supported by {op_type} in opset {w.opset}"
            raise Refused(what, True)
    results = [w.fresh(op_type.lower(), dtype) for dtype in types]
    w.line(op_type, operands, results, attributes, captured)
    return results
