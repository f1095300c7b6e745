"""Small valid models that use every part of the format: what damage begins with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .models import draft

F32 = TensorProto.FLOAT


def info(name: str, shape: Sequence[int | str], code: int = F32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, code, shape)


def floats(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.full(shape, 0.5, np.float32), name)


def ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def made(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto], weights: Sequence[onnx.TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:  # fmt: skip
    graph = helper.make_graph(nodes, "small", inputs, outputs, weights)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=functions)


def network() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], axis=1),
        helper.make_node("Gemm", ["f", "v"], ["y"], transB=1, alpha=0.5),
    ]
    weights = [floats("w", 4, 3, 3, 3), floats("b", 4), floats("v", 5, 16)]
    return made(nodes, [info("x", (1, 3, 8, 8))], [info("y", (1, 5))], weights)


def shapes() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["r"]),
        helper.make_node("Slice", ["r", "from", "until", "axes"], ["c"]),
        helper.make_node("Split", ["c"], ["left", "right"], axis=1, num_outputs=2),
        helper.make_node("Pad", ["left", "pads"], ["l"], mode="constant"),
        helper.make_node("Tile", ["right", "reps"], ["y"]),
        helper.make_node("Expand", ["one", "wide"], ["e"]),
        helper.make_node("Range", ["i", "j", "k"], ["z"]),
        helper.make_node("ConstantOfShape", ["wide"], ["full"]),
        helper.make_node("Resize", ["image", "", "", "sizes"], ["big"]),
        helper.make_node("TopK", ["x", "count"], ["top", "at"]),
        helper.make_node("OneHot", ["rest", "count", "two"], ["hot"]),
    ]
    weights = [
        ints("zero", 0), ints("rest", -1), ints("from", 1), ints("until", 9), ints("axes", 1),
        ints("pads", 0, 1, 0, 2), ints("reps", 2, 1), ints("wide", 3, 4), ints("count", 2),
        ints("sizes", 1, 1, 4, 4), floats("one", 1), floats("two", 2), floats("image", 1, 1, 2, 2),
        *(numpy_helper.from_array(np.int64(v), n) for v, n in ((0, "i"), (9, "j"), (2, "k"))),
    ]  # fmt: skip
    outputs = [helper.make_empty_tensor_value_info(o) for o in
               ("l", "y", "e", "z", "full", "big", "top", "at", "hot")]  # fmt: skip
    return made(nodes, [info("x", (2, 3, 4))], outputs, weights)


def branches() -> onnx.ModelProto:
    """If, Loop and Scan, with values captured from around them."""

    def graph(name: str, nodes: Any, inputs: Any, outputs: Any) -> onnx.GraphProto:
        return helper.make_graph(nodes, name, inputs, outputs)

    yes = graph("yes", [helper.make_node("Relu", ["x"], ["a"])], [], [info("a", (2, 3))])
    no = graph("no", [helper.make_node("Neg", ["x"], ["b"])], [], [info("b", (2, 3))])
    boolean = TensorProto.BOOL
    body = graph(
        "body",
        [helper.make_node("Identity", ["go"], ["again"]),
         helper.make_node("Add", ["h", "x"], ["n"]),
         helper.make_node("Identity", ["n"], ["row"])],
        [info("i", (), TensorProto.INT64), info("go", (), boolean), info("h", (2, 3))],
        [info("again", (), boolean), info("n", (2, 3)), info("row", (2, 3))],
    )  # fmt: skip
    step = graph(
        "step",
        [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Identity", ["t"], ["o"])],
        [info("s", (3,)), info("e", (3,))], [info("t", (3,)), info("o", (3,))],
    )  # fmt: skip
    nodes = [
        helper.make_node("If", ["c"], ["p"], then_branch=yes, else_branch=no),
        helper.make_node("Loop", ["count", "", "p"], ["last", "rows"], body=body),
        helper.make_node("Scan", ["first", "last"], ["end", "all"], body=step, num_scan_inputs=1),
    ]
    weights = [numpy_helper.from_array(np.int64(3), "count"), floats("first", 3)]
    outputs = [helper.make_empty_tensor_value_info(o) for o in ("rows", "end", "all")]
    return made(nodes, [info("x", (2, 3)), info("c", (), boolean)], outputs, weights)


def functions() -> onnx.ModelProto:
    """A local function with an attribute of its own, that calls another."""
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    inner = helper.make_function("local", "Twice", ["a"], ["b"],
                                 [helper.make_node("Add", ["a", "a"], ["b"])], imports)  # fmt: skip
    leaky = helper.make_node("LeakyRelu", ["t"], ["q"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope",
                                               type=onnx.AttributeProto.FLOAT))  # fmt: skip
    outer = helper.make_function(
        "local", "Bent", ["p"], ["q"],
        [helper.make_node("Twice", ["p"], ["t"], domain="local"), leaky], imports, ["slope"],
    )  # fmt: skip
    nodes = [helper.make_node("Bent", ["x"], ["y"], domain="local", slope=0.5)]
    return made(nodes, [info("x", (2, 3))], [info("y", (2, 3))], functions=[inner, outer])


def sequences() -> onnx.ModelProto:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("SequenceInsert", ["s", "x"], ["t"]),
        helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0),
        helper.make_node("SequenceLength", ["t"], ["n"]),
    ]
    outputs = [helper.make_empty_tensor_value_info(o) for o in ("y", "n")]
    return made(nodes, [info("x", (2, 3))], outputs)


def outside() -> onnx.ModelProto:
    """A weight that lies in a file beside the model, called `data`, of 64 bytes."""
    tensor = TensorProto(name="w", data_type=F32, dims=[4, 4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "data"), ("offset", "0"), ("length", "64")):
        tensor.external_data.add(key=key, value=value)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return made(nodes, [info("x", (2, 4))], [info("y", (2, 4))], [tensor])


def sparse() -> onnx.ModelProto:
    tensor = helper.make_sparse_tensor(floats("w", 3), ints("at", 0, 5, 9), [4, 4])
    model = made([helper.make_node("MatMul", ["x", "w"], ["y"])], [info("x", (2, 4))],
                 [info("y", (2, 4))])  # fmt: skip
    model.graph.sparse_initializer.append(tensor)
    return model


def corpus() -> list[onnx.ModelProto]:
    """Return all models of this file, and some random ones."""
    written = [network(), shapes(), branches(), functions(), sequences(), outside(), sparse()]
    return written + [d.model() for d in map(draft, range(40)) if d.nodes]
