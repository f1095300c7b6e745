"""Decoders behind an encoder, as optimum exports them: one that begins, one with a past, and both.

`first` takes the encoder's states and makes keys and values of them; `later` takes those, and keys
and values of earlier tokens; `merged` is both, between which an If on `use_cache_branch` chooses.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
LAYERS, HEADS, WIDTH, TOKENS, PLACES = 2, 2, 4, 11, 40
WIDE = HEADS * WIDTH
PARTS = ("key", "value")
DECODER = [f"{i}.decoder.{part}" for i in range(LAYERS) for part in PARTS]
ENCODER = [f"{i}.encoder.{part}" for i in range(LAYERS) for part in PARTS]


def first() -> onnx.ModelProto:
    """Return the decoder of the first step."""
    return _Writer(past=False).model()


def later() -> onnx.ModelProto:
    """Return the decoder of the steps behind it."""
    return _Writer(past=True).model()


def merged() -> onnx.ModelProto:
    """Return both as one model."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
    model: onnx.ModelProto = import_module("merge_decoders").merge(first(), later())
    return model


def feeds(tokens: int, batch: int = 1, encoded: int = 5, seed: int = 0) -> dict[str, Array]:
    """Return what the first step takes."""
    rng = np.random.default_rng(seed)
    mask = np.ones((batch, encoded), np.int64)
    mask[-1, -1] = 0
    return {
        "input_ids": rng.integers(0, TOKENS, (batch, tokens)),
        "encoder_attention_mask": mask,
        "encoder_hidden_states": rng.standard_normal((batch, encoded, WIDE)).astype(np.float32),
    }


def past(outputs: Mapping[str, Array], names: list[str]) -> dict[str, Array]:
    """Return outputs as the inputs that they are for the next step."""
    return {f"past_key_values.{name}": outputs[f"present.{name}"] for name in names}


class _Writer:
    """The nodes and weights of a decoder so far; both decoders draw the same weights."""

    def __init__(self, past: bool) -> None:
        self.past = past
        self.rng = np.random.default_rng(7)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs = [
            _info("input_ids", TensorProto.INT64, "batch", "tokens"),
            _info("encoder_attention_mask", TensorProto.INT64, "batch", "encoded"),
        ]
        self.outputs: list[onnx.ValueInfoProto] = []

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape, np.float32) / 3, np.float32)

    def heads(self, x: str) -> str:
        """Return x by an own weight, cut into heads."""
        product = self("MatMul", x, self.weight(WIDE, WIDE))
        apart = self("Reshape", product, self.constant([0, -1, HEADS, WIDTH]))
        return self("Transpose", apart, perm=[0, 2, 1, 3])

    def cached(self, name: str, made: str, length: str) -> str:
        """Make what there is of keys or values an output, and what there was an input."""
        if self.past:
            shape = ("batch", HEADS, length, WIDTH)
            self.inputs.append(_info(f"past_key_values.{name}", TensorProto.FLOAT, *shape))
        if not self.past or ".decoder." in name:
            shape = ("batch", HEADS, "now" if ".decoder." in name else "encoded", WIDTH)
            self.nodes.append(helper.make_node("Identity", [made], [f"present.{name}"]))
            self.outputs.append(_info(f"present.{name}", TensorProto.FLOAT, *shape))
        return made

    def attention(self, x: str, keys: str, values: str, bias: str = "") -> str:
        scores = self("MatMul", self.heads(x), self("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = self("Add", scores, bias) if bias else scores
        mixed = self("MatMul", self("Softmax", scores, axis=-1), values)
        joined = self("Reshape", self("Transpose", mixed, perm=[0, 2, 1, 3]),
                      self.constant([0, -1, WIDE]))  # fmt: skip
        return self("Add", x, self("MatMul", joined, self.weight(WIDE, WIDE)))

    def own(self, i: int, part: str, x: str) -> str:
        """Return keys or values of all tokens so far."""
        name, made = f"{i}.decoder.{part}", self.heads(x)
        if self.past:
            made = self("Concat", f"past_key_values.{name}", made, axis=2)
        return self.cached(name, made, "before")

    def theirs(self, i: int, part: str) -> str:
        """Return keys or values of the encoder."""
        name, place = f"{i}.encoder.{part}", len(self.nodes)
        made = self.heads("encoder_hidden_states")
        if self.past:  # the weight was drawn, and no node needs it
            del self.nodes[place:]
            self.weights = self.weights[:-2]
            made = f"past_key_values.{name}"
        return self.cached(name, made, "encoded")

    def model(self) -> onnx.ModelProto:
        embedded = self("Gather", self.weight(TOKENS, WIDE), "input_ids")
        begin = self.constant(0)
        if self.past:
            shape = self("Shape", "past_key_values.0.decoder.key")
            begin = self("Gather", shape, self.constant(2))
        count = self("Gather", self("Shape", "input_ids"), self.constant(1))
        places = self("Range", begin, self("Add", begin, count), self.constant(1))
        x = self("Add", embedded, self("Gather", self.weight(PLACES, WIDE), places))
        hidden = self("Cast", "encoder_attention_mask", to=TensorProto.FLOAT)
        hidden = self("Sub", hidden, self.constant(1, np.float32))
        hidden = self("Mul", hidden, self.constant(1e4, np.float32))
        bias = self("Unsqueeze", hidden, self.constant([1, 2]))
        for i in range(LAYERS):
            x = self.attention(x, *[self.own(i, part, x) for part in PARTS])
            x = self.attention(x, *[self.theirs(i, part) for part in PARTS], bias)
            x = self("Add", x, self("Relu", self("MatMul", x, self.weight(WIDE, WIDE))))
        self.nodes.append(helper.make_node("MatMul", [x, self.weight(WIDE, TOKENS)], ["logits"]))
        logits = _info("logits", TensorProto.FLOAT, "batch", "tokens", TOKENS)
        if not self.past:
            states = _info("encoder_hidden_states", TensorProto.FLOAT, "batch", "encoded", WIDE)
            self.inputs.append(states)
        graph = helper.make_graph(self.nodes, "later" if self.past else "first", self.inputs,
                                  [logits, *self.outputs], self.weights)  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _info(name: str, dtype: int, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)
