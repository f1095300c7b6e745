"""Graphs and ONNX models with open extents, and the extents to run them at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import TensorType

Array = NDArray[Any]
Extents = Mapping[str, int]

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@dataclass(frozen=True)
class Case:
    """A graph with open extents, and how many times it is compiled at most for ordinary ones.

    `least` are the least extents that the operator allows, where 0 is not among them.
    """

    name: str
    make: Callable[[], Graph]
    compilations: int = 1
    least: Mapping[str, int] | None = None

    def __str__(self) -> str:
        return self.name


def symbols(g: Graph) -> list[str]:
    """Return the names of the open extents of a graph."""
    return sorted({s for v in g.inputs.values() for s in v.type.symbols()})


def feeds(g: Graph, extents: Extents, seed: int = 0) -> dict[str, Array]:
    """Return arrays for the inputs of a graph: floats, and integers that may be indices."""
    random = np.random.default_rng(seed)
    return {name: array(v.type.bind(dict(extents)), random) for name, v in g.inputs.items()}


def array(t: TensorType, random: np.random.Generator) -> Array:
    if t.dtype == "bool":
        return np.asarray(random.random(t.extents) < 0.5)
    if t.numpy.kind in "iu":
        return random.integers(0, 3, t.extents).astype(t.numpy)
    return np.asarray(random.standard_normal(t.extents)).astype(t.numpy)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    constants: Mapping[str, Array] | None = None,
    outputs: Sequence[str] = ("y",),
    codes: Mapping[str, int] | None = None,
    opset: int = 21,
) -> onnx.ModelProto:
    """Return a model; an extent that is a name is open."""
    infos = [
        helper.make_tensor_value_info(name, (codes or {}).get(name, F32), shape)
        for name, shape in inputs.items()
    ]
    tensors = [numpy_helper.from_array(a, name) for name, a in (constants or {}).items()]
    results = [helper.make_empty_tensor_value_info(o) for o in outputs]
    graph = helper.make_graph(nodes, "open", infos, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def weights(*shape: int, seed: int = 1) -> Array:
    drawn = np.random.default_rng(seed).standard_normal(shape)
    return np.asarray(drawn / max(shape[-1], 1) ** 0.5, np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def case(
    op: str,
    *shapes: Sequence[int | str],
    constants: Mapping[str, Array] | None = None,
    codes: Sequence[int] = (),
    outputs: int = 1,
    compilations: int = 1,
    least: Mapping[str, int] | None = None,
    name: str = "",
    opset: int = 21,
    **attributes: Any,
) -> Case:
    """Return a case of one ONNX node: its operands are the inputs, then the constants."""
    inputs = {f"x{i}": shape for i, shape in enumerate(shapes)}
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, [*inputs, *(constants or {})], made, **attributes)
    kinds = {f"x{i}": code for i, code in enumerate(codes)}

    def make() -> Graph:
        return ag.load(model([node], inputs, constants, made, kinds, opset))

    return Case(name or op, make, compilations, least)


def chain(
    name: str,
    nodes: Sequence[tuple[Any, ...]],
    inputs: Mapping[str, Sequence[int | str]],
    constants: Mapping[str, Array] | None = None,
    compilations: int = 1,
    least: Mapping[str, int] | None = None,
    codes: Mapping[str, int] | None = None,
) -> Case:
    """Return a case of several ONNX nodes: (operator, operands, result, attributes)."""
    made = [
        helper.make_node(op, operands.split(), results.split(), **dict(*rest))
        for op, operands, results, *rest in nodes
    ]

    def make() -> Graph:
        last = list(made[-1].output)
        return ag.load(model(made, inputs, constants, last, codes))

    return Case(name, make, compilations, least)


CASES: tuple[Case, ...] = (
    # ── elementwise and broadcasting ──
    case("Relu", ("N", 3)),
    case("Add", ("N", "M"), ("N", "M")),
    case("Add", ("N", "M"), ("M",), name="add a row"),
    case("Mul", ("N", "M"), ("N", 1), name="scale rows"),
    case("Sub", ("N", 1), (1, "M"), name="outer difference"),
    case("Where", ("N", "M"), ("N", "M"), ("M",), codes=(BOOL,)),
    case("Softmax", ("N", "M"), axis=-1),
    case("Softmax", ("N", "M", 4), axis=0, name="softmax of the first axis"),
    case("LayerNormalization", ("N", 12), constants={"s": weights(12), "b": weights(12, seed=2)}),
    case("LayerNormalization", ("N", 3, "M"), ("M",), name="layer norm of an open axis",
         least={"M": 1}),
    # ── contraction ──
    case("MatMul", ("N", 8), constants={"w": weights(8, 24)}, name="matmul with weights"),
    case("MatMul", ("N", "M"), ("M", "K"), name="matmul of all open"),
    case("MatMul", ("B", "N", 8), ("B", 8, "N"), name="batches of matmuls"),
    case("MatMul", ("B", 2, "N", 4), (4, 5), name="matmul of rank 4 with weights"),
    case("Gemm", ("N", 6), constants={"w": weights(10, 6), "b": weights(10)}, transB=1),
    case("Conv", ("N", 3, 9, 9), constants={"w": weights(8, 3, 3, 3)}, pads=[1, 1, 1, 1],
         name="conv of open batch"),
    case("Conv", (1, 3, "H", "W"), constants={"w": weights(8, 3, 3, 3), "b": weights(8)},
         pads=[1, 1, 1, 1], name="conv of open image", least={"H": 1, "W": 1}),
    case("Conv", ("N", 4, "H", "W"), constants={"w": weights(4, 1, 3, 3)}, group=4, strides=[2, 2],
         pads=[1, 1, 1, 1], name="depthwise conv of all open", least={"H": 1, "W": 1}),
    case("Conv", ("N", 4, "L"), constants={"w": weights(6, 4, 3)}, name="conv of rank 3",
         least={"L": 3}),
    case("ConvTranspose", (1, 3, "H", "W"), constants={"w": weights(3, 4, 3, 3)}, strides=[2, 2],
         least={"H": 1, "W": 1}),
    case("MaxPool", ("N", 3, "H", "W"), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
         least={"H": 2, "W": 2}),
    case("AveragePool", (1, 3, "H", 8), kernel_shape=[2, 2], strides=[2, 2], least={"H": 2}),
    case("GlobalAveragePool", ("N", 3, "H", "W"), least={"H": 1, "W": 1}),
    # ── movement ──
    case("Concat", ("N", 3), ("M", 3), axis=0),
    case("Concat", ("N", "M"), ("N", "M"), axis=1, name="concat of columns"),
    case("Transpose", ("N", "M", 5), perm=[1, 2, 0]),
    case("Reshape", ("N", "M", 6), constants={"s": ints(0, -1, 3)}),
    case("Flatten", ("N", "M", 6), axis=1),
    case("Squeeze", ("N", 1, "M"), constants={"a": ints(1)}),
    case("Expand", ("N", 1), constants={"s": ints(2, 1, 4)}),
    case("Tile", ("N", 3), constants={"r": ints(2, 3)}),
    case("Slice", ("N", "M"), constants={"b": ints(1), "e": ints(2**31), "a": ints(0)},
         name="slice from 1", least={"N": 1}),
    case("Slice", ("N", "M"), constants={"b": ints(-3), "e": ints(2**31), "a": ints(1)},
         name="slice the last three", least={"M": 3}),
    case("Slice", ("N",), constants={"b": ints(-1), "e": ints(-2**31), "a": ints(0), "s": ints(-1)},
         name="reverse"),
    case("Slice", ("N", 4), constants={"b": ints(0), "e": ints(5), "a": ints(0), "s": ints(2)},
         name="every other of the first five", least={"N": 5}),
    case("Split", ("N", 6), constants={"s": ints(2, 4)}, outputs=2, axis=1),
    case("Pad", ("N", "M"), constants={"p": ints(1, 0, 2, 3)}),
    case("Pad", ("N", "M"), constants={"p": ints(1, 2, 1, 0)}, mode="reflect",
         least={"N": 3, "M": 3}, name="pad by reflection"),
    case("Pad", ("N", 3), constants={"p": ints(2, 1, 2, 1)}, mode="edge", least={"N": 1},
         name="pad by the edge"),
    case("Trilu", ("N", "N"), upper=0),
    # ── gathering ──
    case("Gather", (7, "N"), ("M",), codes=(F32, I64), axis=0),
    case("Gather", (9, 4), ("B", "N"), codes=(F32, I64), name="embedding"),
    case("GatherElements", ("N", 4), ("N", 2), codes=(F32, I64), axis=1),
    case("GatherND", ("N", 3, 4), ("M", 2), codes=(F32, I64), least={"N": 3}),
    case("OneHot", ("N",), constants={"d": ints(5), "v": np.array([0, 1], np.float32)},
         codes=(I64,)),
    case("CumSum", ("N", "M"), constants={"a": np.array(1, np.int64)}),
    case("ScatterElements", ("N", 4), ("N", 2), ("N", 2), codes=(F32, I64, F32), axis=1,
         reduction="add"),
    # ── reductions ──
    case("ReduceSum", ("N", "M"), constants={"a": ints(1)}, keepdims=0),
    case("ReduceSum", ("N", "M"), constants={"a": ints(0)}, name="sum of columns"),
    case("ReduceMean", ("N", "M", 4), constants={"a": ints(0, 1)}, least={"N": 1, "M": 1}),
    case("ReduceMax", ("N", "M"), constants={"a": ints(1)}, least={"M": 1}),
    case("ReduceL2", ("N", "M"), constants={"a": ints(0, 1)}),
    case("ArgMax", ("N", "M"), axis=1, least={"M": 1}),
    case("TopK", ("N", "M"), constants={"k": ints(2)}, outputs=2, least={"M": 2}),
    # ── recurrent ──
    case("LSTM", ("T", "B", 4), constants={"w": weights(1, 20, 4), "r": weights(1, 20, 5)},
         outputs=3, hidden_size=5),
    case("GRU", ("T", "B", 4), constants={"w": weights(2, 15, 4), "r": weights(2, 15, 5)},
         outputs=2, hidden_size=5, direction="bidirectional"),
    # ── several nodes ──
    chain("attention",
          [("MatMul", "q k", "s"), ("Softmax", "s", "p", {"axis": -1}), ("MatMul", "p v", "y")],
          {"q": ("B", 2, "N", 8), "k": ("B", 2, 8, "M"), "v": ("B", 2, "M", 8)},
          compilations=2, least={"M": 1}),  # few queries have a kernel of their own
    chain("heads",
          [("Shape", "x", "s"), ("Gather", "s zero", "b"), ("Gather", "s one", "n"),
           ("Concat", "b n four minus", "t", {"axis": 0}), ("Reshape", "x t", "h"),
           ("Transpose", "h", "y", {"perm": [0, 2, 1, 3]})],
          {"x": ("B", "N", 12)}, {"zero": ints(0), "one": ints(1), "four": ints(4),
                                  "minus": ints(-1)}),
    chain("perceptron",
          [("Gemm", "x w b", "h"), ("Relu", "h", "a"), ("Gemm", "a v", "o"), ("Softmax", "o", "y")],
          {"x": ("N", 16)}, {"w": weights(16, 32), "b": weights(32), "v": weights(32, 10)}),
    chain("count",
          [("Shape", "x", "s"), ("Gather", "s zero", "n"), ("Range", "zero n one", "r"),
           ("Cast", "r", "f", {"to": F32}), ("Unsqueeze", "f axis", "c"), ("Add", "x c", "y")],
          {"x": ("N", 3)}, {"zero": np.array(0), "one": np.array(1), "axis": ints(1)}),
    chain("fill",
          [("Shape", "x", "s"), ("ConstantOfShape", "s", "z"), ("Concat", "x z", "y", {"axis": 1})],
          {"x": ("N", "M")}),
    chain("conv net",
          [("Conv", "x w", "a", {"pads": [1, 1, 1, 1]}), ("Relu", "a", "b"),
           ("MaxPool", "b", "c", {"kernel_shape": [2, 2], "strides": [2, 2]}),
           ("Conv", "c v", "d", {"pads": [1, 1, 1, 1]}), ("GlobalAveragePool", "d", "e"),
           ("Flatten", "e", "y")],
          {"x": ("N", 3, 16, 16)}, {"w": weights(8, 3, 3, 3), "v": weights(16, 8, 3, 3)}),
    chain("residual",
          [("Conv", "x w", "a", {"pads": [1, 1, 1, 1]}), ("Add", "a x", "b"), ("Relu", "b", "y")],
          {"x": (1, 8, "H", "W")}, {"w": weights(8, 8, 3, 3)}, least={"H": 1, "W": 1}),
    chain("upsample",
          [("Resize", "x empty f", "y", {"mode": "nearest"})],
          {"x": (1, 2, "H", "W")}, {"f": np.array([1, 1, 2, 2], np.float32), "empty": weights(0)}),
    chain("bilinear",
          [("Resize", "x empty f", "y", {"mode": "linear"})],
          {"x": (1, 2, "H", "W")}, {"f": np.array([1, 1, 2, 0.5], np.float32),
                                    "empty": weights(0)}, least={"H": 1, "W": 2}),
)  # fmt: skip
