"""A decoder of the kind of GPT-2 with seeded weights, as exporters write one to go token by token.

A step takes one token and, for each layer, the keys and values of all tokens before it; it returns
the logits of the next token and the keys and values with those of this token appended, to be handed
to the next step.  How many tokens went before is an open extent that grows with each step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
Array = NDArray[Any]


@dataclass(frozen=True)
class Size:
    """How large a decoder is; by default as GPT-2's smallest."""

    layers: int = 12
    heads: int = 12
    head: int = 64
    vocabulary: int = 50257
    positions: int = 1024

    @property
    def wide(self) -> int:
        return self.heads * self.head

    def past(self) -> dict[str, Array]:
        """The keys and values before the first token: none."""
        empty = np.zeros((1, self.heads, 0, self.head), np.float32)
        return {f"past.{i}.{part}": empty for i in range(self.layers) for part in ("key", "value")}


@dataclass
class _Writer:
    """The nodes and weights of the model so far."""

    size: Size
    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def __call__(self, op: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        names = [f"{op.lower()}_{len(self.nodes)}_{k}" for k in range(count)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if count == 1 else names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape: int, around: float = 0.0, spread: float = 0.02) -> str:
        noise = self.rng.standard_normal(shape, np.float32)
        return self.constant(around + spread * noise, np.float32)

    def linear(self, x: str, n: int, m: int) -> str:
        return str(self("Add", self("MatMul", x, self.weight(n, m)), self.weight(m)))

    def normalized(self, x: str) -> str:
        wide = self.size.wide
        scale, bias = self.weight(wide, around=1.0), self.weight(wide)
        return str(self("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5))


def decoder(size: Size, seed: int = 0) -> onnx.ModelProto:
    """Return the model: inputs `token` and `past.I.PART`, outputs `logits` and `present.I.PART`."""
    w = _Writer(size, np.random.default_rng(seed))
    tokens = w.weight(size.vocabulary, size.wide)
    places = w.weight(size.positions, size.wide)
    before = w("Gather", w("Shape", "past.0.key"), w.constant([2]))
    x = w("Add", w("Gather", tokens, "token"), w("Gather", places, before))
    for layer in range(size.layers):
        x = w("Add", x, _attention(w, w.normalized(x), layer))
        x = w("Add", x, _expansion(w, w.normalized(x)))
    logits = w("MatMul", w.normalized(x), w("Transpose", tokens, perm=[1, 0]))
    w.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
    return _model(w)


def _attention(w: _Writer, x: str, layer: int) -> str:
    size = w.size
    parts = w("Split", w.linear(x, size.wide, 3 * size.wide), count=3, axis=-1, num_outputs=3)
    shape = w.constant([1, -1, size.heads, size.head])
    query, key, value = (w("Transpose", w("Reshape", p, shape), perm=[0, 2, 1, 3]) for p in parts)
    for part, new in (("key", key), ("value", value)):
        names = [f"past.{layer}.{part}", new], [f"present.{layer}.{part}"]
        w.nodes.append(helper.make_node("Concat", *names, axis=2))
    keys = w("Transpose", f"present.{layer}.key", perm=[0, 1, 3, 2])
    scores = w("Div", w("MatMul", query, keys), w.constant(size.head**0.5, np.float32))
    seen = w("MatMul", w("Softmax", scores, axis=-1), f"present.{layer}.value")
    merged = w("Reshape", w("Transpose", seen, perm=[0, 2, 1, 3]), w.constant([1, -1, size.wide]))
    return w.linear(merged, size.wide, size.wide)


def _expansion(w: _Writer, x: str) -> str:
    """Two layers with the Gelu between them that GPT-2 has, spelled out."""
    wide = w.size.wide
    x = w.linear(x, wide, 4 * wide)
    scalar = {v: w.constant(v, np.float32) for v in (3.0, 0.044715, (2 / np.pi) ** 0.5, 1.0, 0.5)}
    three, cubic, root, one, half = scalar.values()
    inner = w("Add", x, w("Mul", w("Pow", x, three), cubic))
    gate = w("Add", w("Tanh", w("Mul", inner, root)), one)
    return w.linear(w("Mul", w("Mul", x, half), gate), 4 * wide, wide)


def _model(w: _Writer) -> onnx.ModelProto:
    size = w.size
    old, new = ([1, size.heads, n, size.head] for n in ("past", "present"))
    inputs = [helper.make_tensor_value_info("token", TensorProto.INT64, [1, 1])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1, size.vocabulary])]
    for name in size.past():
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, old))
        present = name.replace("past", "present")
        outputs.append(helper.make_tensor_value_info(present, TensorProto.FLOAT, new))
    graph = helper.make_graph(w.nodes, "decoder", inputs, outputs, w.weights)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
