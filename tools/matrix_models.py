"""The models of `matrix.py`: a CNN, attention, an LSTM, a decoder, a loop, a selection by data."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

import alpenglow as ag
from alpenglow import train
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.reduction.reduction import ReduceMean
from alpenglow.train.parameters import fixed

ROOT = Path(__file__).parents[1]
MODELS = Path(os.environ.get("ALPENGLOW_MODELS") or ROOT / ".models")
sys.path.append(str(ROOT))  # tests write models of TFLite

FILES = {
    ("ONNX", "keras2onnx CNN"): "zoo/mtcnn_keras_rnet.onnx",
    ("ONNX", "tf2onnx perceptron"): "zoo/oww_hey_mycroft.onnx",
    ("ONNX", "skl2onnx forest"): "zoo/surfaces_validity.onnx",
    ("TFLite", "perceptron"): "tflite/open_hey_rhasspy.tflite",
    ("TFLite", "keyword, int8"): "tflite/okay_nabu.tflite",
}
"""Models that `make matrix` fetches, by source and name; one that is not there is left out."""


@dataclass(frozen=True)
class Model:
    """A model as `ag.load` takes it; `extents` fix its dynamic dimensions.

    `parameters` are inputs that training takes as constants.  With `in_place`, PyTorch calls the
    module as `torch.compile` makes it, and `traced` holds its arguments.
    """

    name: str
    source: str
    given: Any
    extents: Mapping[str, int] = field(default_factory=dict)
    traced: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    in_place: bool = False
    is_small: bool = False

    def feeds(self, loaded: Any, extents: Mapping[str, int]) -> dict[str, Any]:
        """Return arrays for the inputs."""
        rng = np.random.default_rng(0)
        feeds: dict[str, Any] = {}
        for name, t in types(loaded).items():
            shape = t.bind(extents).extents
            if t.dtype == "bool":
                feeds[name] = np.ones(shape, bool)
            elif t.numpy.kind in "iu":
                feeds[name] = rng.integers(0, 4, shape).astype(t.numpy)
            else:
                feeds[name] = rng.standard_normal(shape).astype(t.numpy)
        return feeds


def types(loaded: Any) -> dict[str, Any]:
    """Return the types of the inputs of a graph or a model in parts."""
    if isinstance(loaded, ag.Graph):
        return {n: v.type for n, v in loaded.callers_inputs().items()}
    return dict(loaded.inputs)


HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'

ONNX = {
    "CNN": ("""cnn (float[N,3,8,8] x) => (float[N,4] y)
        <float[8,3,3,3] w, float[8] b, float[8,4] v> {
        c = Conv<pads=[1,1,1,1]>(x, w, b)
        r = Relu(c)
        m = GlobalAveragePool(r)
        f = Flatten(m)
        y = MatMul(f, v)
    }""", {"N": 2}, {}),
    "attention": ("""attention (float[N,4,16] x) => (float[N,4,16] y)
        <float[16,16] wq, float[16,16] wk, float[16,16] wv, float[16] s, float[16] b> {
        q = MatMul(x, wq)
        k = MatMul(x, wk)
        v = MatMul(x, wv)
        t = Transpose<perm=[0,2,1]>(k)
        scores = MatMul(q, t)
        shares = Softmax(scores)
        a = MatMul(shares, v)
        r = Add(x, a)
        y = LayerNormalization(r, s, b)
    }""", {"N": 2}, {}),
    "LSTM": ("""lstm (float[T,1,8] x) => (float[T,1,1,8] y)
        <float[1,32,8] w, float[1,32,8] r> { y = LSTM<hidden_size=8>(x, w, r) }""", {"T": 3}, {}),
    "decoder": ("""decoder (float[1,S,16] x, float[1,P,16] past_key) =>
        (float[1,S,16] y, float[1,Q,16] present_key) <float[16,16] w> {
        k = MatMul(x, w)
        present_key = Concat<axis=1>(past_key, k)
        t = Transpose<perm=[0,2,1]>(present_key)
        scores = MatMul(x, t)
        shares = Softmax(scores)
        y = MatMul(shares, present_key)
    }""", {"S": 1, "P": 4}, {"past_key": "present_key"}),
    "loop": ("""loop (float[4] x, int64 n) => (float[4] y) {
        go = Constant<value = bool {1}>()
        y = Loop(n, go, x) <body = step (int64 i, bool going, float[4] before)
            => (bool goes, float[4] after) {
            goes = Identity(going)
            total = ReduceSum<keepdims=0>(before)
            zero = Constant<value = float {0.0}>()
            positive = Greater(total, zero)
            after = If(positive) <
                then_branch = then () => (float[4] a) { a = Neg(before) },
                else_branch = other () => (float[4] c) { c = Add(before, before) }>
        }>
    }""", {}, {}),
    "selection": ("""selection (float[6] x) => (float[M] y) {
        zero = Constant<value = int64[1] {0}>()
        r = Relu(x)
        at = NonZero(r)
        rows = Squeeze(at, zero)
        y = Gather(r, rows)
    }""", {}, {}),
}  # fmt: skip
"""Models of ONNX as text, their extents and their state; weights are drawn."""

SMALL = ("CNN", "loop", "selection")
"""Models of ONNX that a sample runs; only the last is in parts."""

STABLEHLO = {
    "attention": """module @attention {
  func.func @main(%x: tensor<2x4x16xf32>, %w: tensor<16x16xf32>) -> tensor<2x4x16xf32> {
    %q = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0]
         : (tensor<2x4x16xf32>, tensor<16x16xf32>) -> tensor<2x4x16xf32>
    %s = stablehlo.dot_general %q, %x, batching_dims = [0] x [0], contracting_dims = [2] x [2]
         : (tensor<2x4x16xf32>, tensor<2x4x16xf32>) -> tensor<2x4x4xf32>
    %e = stablehlo.tanh %s : tensor<2x4x4xf32>
    %y = stablehlo.dot_general %e, %x, batching_dims = [0] x [0], contracting_dims = [2] x [1]
         : (tensor<2x4x4xf32>, tensor<2x4x16xf32>) -> tensor<2x4x16xf32>
    return %y : tensor<2x4x16xf32>
  }
}""",
    "loop": """module @loop {
  func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4xf32>
     cond {
      %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %z = stablehlo.add %y, %y : tensor<4xf32>
      stablehlo.return %j, %z : tensor<i32>, tensor<4xf32>
    }
    return %r#1 : tensor<4xf32>
  }
}""",
}


def models(folder: Path, everything: bool) -> Iterator[Model]:
    """Write the models to a folder where they are files, and yield them.

    Without `everything`, only models that need neither PyTorch nor JAX nor fetched files.
    """
    for name, (text, extents, state) in ONNX.items():
        proto = onnx.parser.parse_model(HEAD + text)
        fill(proto)
        path = folder / f"{name}.onnx"
        onnx.save(proto, path)
        yield Model(name, "ONNX", path, extents, state=state, is_small=name in SMALL)
    yield Model("CNN", "graph", by_hand(), {"N": 2}, is_small=True)
    for name, text in STABLEHLO.items():
        path = folder / f"{name}.mlir"
        path.write_text(text)
        parameters = ("w",) if name == "attention" else ()
        yield Model(name, "StableHLO", path, parameters=parameters, is_small=name == "attention")
    if everything:
        yield from quantized(folder)
        for package, module in (("jax", "matrix_jax"), ("torch", "matrix_modules")):
            if find_spec(package) is not None:
                yield from import_module(module).models(folder)
        for (source, name), file in FILES.items():
            path = MODELS / file
            if path.is_file():
                yield Model(name, source, path)


def fill(proto: onnx.ModelProto) -> None:
    """Make constants, drawn at random, of what is declared between < and >."""
    rng = np.random.default_rng(1)
    for info in proto.graph.value_info:
        shape = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
        drawn = (rng.standard_normal(shape) / 4).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(drawn, info.name))
    del proto.graph.value_info[:]


def by_hand() -> ag.Graph:
    """Return a CNN that calls of the API make, with constant weights."""
    g = ag.Graph("cnn")
    x = g.input("x", "f32[N,3,8,8]")
    r = g(Relu(), train.conv(g, x, 8, 3, "first"))
    m = g(ReduceMean((2, 3)), r)
    g.output("y", train.dense(g, m, 4, "last"))
    return fixed(g, {name: v.array for name, v in g.initial.items()})


def quantized(folder: Path) -> Iterator[Model]:
    """Yield a convolution with int8 operands, as converters for microcontrollers write it."""
    flat = import_module("tests.frontends.tflite.flat")
    rng = np.random.default_rng(2)
    w = rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    b = rng.integers(-99, 100, 4).astype(np.int32)
    content = flat.one_op("CONV_2D", ["i8[1,8,8,3]", w, b], ["i8[1,8,8,4]"], "Conv2DOptions",
                          padding=0, stride_w=1, stride_h=1)  # fmt: skip
    scales = (0.05, 0.01, 0.0005, 0.1)
    for tensor, scale in zip(content["subgraphs"][0]["tensors"], scales, strict=True):
        tensor["quantization"] = {
            "scale": np.array([scale], np.float32), "zero_point": np.array([0], np.int64)
        }  # fmt: skip
    path = folder / "convolution.tflite"
    path.write_bytes(flat.file_of(content))
    yield Model("convolution, int8", "TFLite", path)
