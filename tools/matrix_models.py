"""The models of `matrix.py`: a CNN, attention, an LSTM, a decoder and a loop, from each source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

import alpenglow as ag

ROOT = Path(__file__).parents[1]
KEYWORD = ROOT / ".models" / "tflite" / "okay_nabu.tflite"


@dataclass(frozen=True)
class Model:
    """A model as `ag.load` takes it; `extents` fix its dynamic dimensions."""

    name: str
    source: str
    given: Any
    extents: Mapping[str, int] = field(default_factory=dict)
    traced: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
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
}  # fmt: skip
"""Models of ONNX as text, their extents and their state; weights are drawn."""

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


def models(folder: Path, with_torch: bool) -> Iterator[Model]:
    """Write the models to a folder where they are files, and yield them."""
    for name, (text, extents, state) in ONNX.items():
        proto = onnx.parser.parse_model(HEAD + text)
        fill(proto)
        path = folder / f"{name}.onnx"
        onnx.save(proto, path)
        yield Model(name, "ONNX", path, extents, state=state, is_small=name in ("CNN", "loop"))
        if name == "CNN":
            graph = ag.load(path)
            yield Model(name, "graph", graph, extents, is_small=True)
    for name, text in STABLEHLO.items():
        path = folder / f"{name}.mlir"
        path.write_text(text)
        yield Model(name, "StableHLO", path, is_small=name == "attention")
    if KEYWORD.is_file():
        yield Model("keyword, int8", "TFLite", KEYWORD)
    if with_torch:
        yield from of_torch(folder)


def fill(proto: onnx.ModelProto) -> None:
    """Make constants, drawn at random, of what is declared between < and >."""
    rng = np.random.default_rng(1)
    for info in proto.graph.value_info:
        shape = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
        drawn = (rng.standard_normal(shape) / 4).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(drawn, info.name))
    del proto.graph.value_info[:]


def of_torch(folder: Path) -> Iterator[Model]:
    """Yield modules, and the files of their exported programs."""
    torch = import_module("torch")
    made = import_module("matrix_modules").modules()
    for name, (module, arguments, dynamic, extents, state) in made.items():
        traced = {"args": arguments, "dynamic_shapes": dynamic}
        small = name == "CNN"
        yield Model(name, "module", module, extents, traced, state, is_small=small)
        program = torch.export.export(module, arguments, dynamic_shapes=dynamic)
        path = folder / f"{name}.pt2"
        torch.export.save(program, path)
        yield Model(name, ".pt2", path, extents, state=state)
