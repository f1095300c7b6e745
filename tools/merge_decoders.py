"""Two decoders as one file, as optimum merges them: one that begins, and one that has a past.

A model of both takes the inputs of both and `use_cache_branch`, bool[1], by which an If chooses.
Weights of equal bytes are one.  What the decoder with a past does not return, keys and values of
the encoder, is of no elements there.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto, helper

BRANCH = "use_cache_branch"


def merge(begins: onnx.ModelProto, goes_on: onnx.ModelProto) -> onnx.ModelProto:
    """Return both decoders as one model; they are changed."""
    weights: dict[bytes, onnx.TensorProto] = {}
    outputs = list(begins.graph.output)
    complete(goes_on.graph, outputs)
    branches = [branch(model.graph, prefix, weights)
                for model, prefix in ((goes_on, "past."), (begins, "first."))]  # fmt: skip
    inputs = {x.name: x for model in (begins, goes_on) for x in model.graph.input}
    choose = helper.make_node("Squeeze", [BRANCH], ["chosen"])
    node = helper.make_node("If", ["chosen"], [x.name for x in outputs],
                            then_branch=branches[0], else_branch=branches[1])  # fmt: skip
    flag = helper.make_tensor_value_info(BRANCH, TensorProto.BOOL, [1])
    graph = helper.make_graph([choose, node], "merged", [*inputs.values(), flag],
                              [untyped(x) for x in outputs], list(weights.values()))  # fmt: skip
    model = helper.make_model(graph, opset_imports=begins.opset_import,
                              ir_version=begins.ir_version)  # fmt: skip
    model.functions.extend(begins.functions)
    return model


def untyped(x: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """Return an output with its type of elements alone: branches differ in extents."""
    shape = [None] * len(x.type.tensor_type.shape.dim)
    return helper.make_tensor_value_info(x.name, x.type.tensor_type.elem_type, shape)


def complete(graph: onnx.GraphProto, outputs: list[onnx.ValueInfoProto]) -> None:
    """Give a graph the outputs that it lacks, of no elements, and bring them into this order."""
    known = {x.name: x for x in graph.output}
    for x in outputs:
        if x.name in known:
            continue
        dims = [0, *(d.dim_value or 1 for d in x.type.tensor_type.shape.dim[1:])]
        empty = helper.make_tensor(x.name, x.type.tensor_type.elem_type, dims, [])
        graph.node.append(helper.make_node("Constant", [], [x.name], value=empty))
        known[x.name] = x
    del graph.output[:]
    graph.output.extend(known[x.name] for x in outputs)


def branch(
    graph: onnx.GraphProto, prefix: str, weights: dict[bytes, onnx.TensorProto]
) -> onnx.GraphProto:
    """Return a graph as a branch, whose names begin with `prefix`; its weights go to `weights`."""
    names = {x.name: x.name for x in graph.input}
    for tensor in graph.initializer:
        tensor_name = tensor.name
        tensor.name = ""
        weight = weights.setdefault(tensor.SerializeToString(), tensor)
        if weight is tensor:
            tensor.name = f"{prefix}{tensor_name}"
        names[tensor_name] = weight.name
    for node in nodes_of(graph):
        for ends in (node.input, node.output):
            for i, name in enumerate(ends):
                ends[i] = names.setdefault(name, f"{prefix}{name}") if name else ""
    outputs = [untyped(x) for x in graph.output]
    for x in outputs:
        x.name = names[x.name]
    return helper.make_graph(graph.node, prefix.rstrip("."), [], outputs)


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of the graphs in them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*attribute.graphs, attribute.g):
                yield from nodes_of(inner)
