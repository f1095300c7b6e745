"""Writers of recurrent layers: LSTM, GRU and RNN, one direction each.

ONNX's layers multiply the inputs by their weights, which ours leave to a matrix product outside.
Where that product is found, its operands are given to the layer of ONNX; what else the layer is
given is multiplied by a unit matrix, which changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_gather import limited
from alpenglow.exporters.onnx.write_movement import expanded, reshaped, transposed
from alpenglow.exporters.onnx.writer import Operand, Tensor, Writer
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Node, Value
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.sequence.recurrent import Activation, Gru, Lstm, Rnn
from alpenglow.ops.tensor.movement import Reshape, Transpose, unstretched

NAMES = {
    "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "affine": "Affine",
    "leakyrelu": "LeakyRelu", "thresholdedrelu": "ThresholdedRelu", "scaledtanh": "ScaledTanh",
    "hardsigmoid": "HardSigmoid", "elu": "Elu", "softsign": "Softsign", "softplus": "Softplus",
}  # fmt: skip
"""Names of activations in ONNX."""

ALPHA = frozenset({"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"})
BETA = frozenset({"affine", "scaledtanh", "hardsigmoid"})
"""The activations that take numbers from the lists of a layer."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The operands of xw: x[T, B, I], weights [I, G·H], and a bias [G·H] if there is one."""

    x: Value
    weights: Value
    bias: Value | None


@on(Lstm)
def lstm(
    w: Writer, op: Lstm, xw: Value, r: Value, h0: Value, c0: Value, peepholes: Value | None,
    lengths: Value | None,
) -> list[Tensor]:  # fmt: skip
    more = [stacked(w, v) for v in (h0, c0)]
    if peepholes is not None:
        more.append(reshaped(w, peepholes, (1, product(peepholes.type.shape))))
    attributes: dict[str, Any] = {"input_forget": 1} if op.couple else {}
    return _layer(w, "LSTM", op, xw, r, lengths, [h0, c0], more, None, attributes)


@on(Gru)
def gru(
    w: Writer, op: Gru, xw: Value, r: Value, h0: Value, bias: Value | None, lengths: Value | None
) -> list[Tensor]:
    recurrent, attributes = None, {}
    if bias is not None:
        (units,) = bias.type.shape
        zeros = np.zeros(2 * int(units), bias.type.numpy)
        recurrent, attributes = w("Concat", zeros, bias, axis=0), {"linear_before_reset": 1}
    more = [stacked(w, h0)]
    return _layer(w, "GRU", op, xw, r, lengths, [h0], more, recurrent, attributes)


@on(Rnn)
def rnn(w: Writer, op: Rnn, xw: Value, r: Value, h0: Value, lengths: Value | None) -> list[Tensor]:
    return _layer(w, "RNN", op, xw, r, lengths, [h0], [stacked(w, h0)], None, {})


def stacked(w: Writer, v: Operand) -> Tensor:
    """Return a tensor with a first axis for one direction."""
    return w("Unsqueeze", v, np.array([0], np.int64))


def _layer(
    w: Writer, name: str, op: Lstm | Gru | Rnn, xw: Value, r: Value, lengths: Value | None,
    states: list[Value], more: list[Tensor], recurrent_bias: Tensor | None,
    attributes: dict[str, Any],
) -> list[Tensor]:  # fmt: skip
    """Return the states after each step, and the last ones; `more` are the last operands."""
    steps, batch, gates = xw.type.shape
    units = r.type.shape[0]
    if 0 in (steps, batch):
        y = expanded(w, np.zeros((1, 1, 1), xw.type.numpy), (steps, batch, units))
        return [y, *(w.tensor(v) for v in states)]
    x, weights, bias = _projected(w, xw)
    recurrent = stacked(w, turned(w, r))
    both = _biases(w, bias, recurrent_bias, int(gates), xw)
    counts = None if lengths is None else limited(w, lengths, 0, steps)
    results = w.several(
        1 + len(states), name, x, stacked(w, weights), recurrent, both, counts, *more,
        hidden_size=int(units), direction="reverse" if op.reverse else "forward",
        **_activations(op), **attributes,
    )  # fmt: skip
    axes = [1, *[0] * len(states)]
    y, *last = (
        w("Squeeze", v, np.array([a], np.int64)) for v, a in zip(results, axes, strict=True)
    )
    return [y, *(_kept(w, counts, *pair) for pair in zip(last, states, strict=True))]


def _kept(w: Writer, counts: Tensor | None, last: Tensor, initial: Value) -> Tensor:
    """Return the last state, the initial one of a sequence without steps: runtimes differ there."""
    if counts is None:
        return last
    going = w("Greater", counts, np.array(0, np.int32))
    return w("Where", w("Unsqueeze", going, np.array([1], np.int64)), last, initial)


def _activations(op: Lstm | Gru | Rnn) -> dict[str, Any]:
    """Return the attributes for activations and for the limit before them."""
    chosen: tuple[Activation, ...] = op.activations
    attributes: dict[str, Any] = {"activations": [NAMES[name] for name, _, _ in chosen]}
    alphas = [alpha for name, alpha, _ in chosen if name in ALPHA]
    betas = [beta for name, _, beta in chosen if name in BETA]
    for key, numbers in (("activation_alpha", alphas), ("activation_beta", betas)):
        if numbers:
            attributes[key] = numbers
    return attributes | ({"clip": op.clip} if op.clip else {})


def _projected(w: Writer, xw: Value) -> tuple[Operand, Tensor, Operand]:
    """Return x, its weights [G·H, I] and a bias that make up xw."""
    found = projection(xw)
    if found is not None:
        return found.x, turned(w, found.weights), found.bias
    gates = xw.type.shape[2]
    square = expanded(w, np.zeros((1, 1), xw.type.numpy), (gates, gates))
    return xw, w("EyeLike", square, makes=xw.type.dtype), None


def projection(xw: Value) -> Projection | None:
    """Return the operands of xw[T, B, G·H], if it is a product of x[T, B, I]."""
    flat = _reshaped_from(xw)
    bias = None
    if flat is not None and isinstance(flat.producer, Node) and isinstance(flat.producer.op, Add):
        flat, bias = _summands(flat.producer)
    match flat:
        case Value(Node(MatMul(wide=False), [Value() as rows, Value() as weights])):
            x = _reshaped_from(rows)
            steps_batch = xw.type.shape[:2]
            if x is not None and x.type.rank == 3 and x.type.shape[:2] == steps_batch:
                return Projection(x, weights, bias)
    return None


def _reshaped_from(v: Value | None) -> Value | None:
    match v:
        case Value(Node(Reshape(), [Value() as x])):
            return x
    return None


def _summands(node: Node) -> tuple[Value | None, Value | None]:
    """Return a matrix and the vector that is added to its rows, in which order they stand."""
    x, y = node.inputs
    assert x is not None and y is not None, "a sum has two operands"
    for matrix, other in ((x, y), (y, x)):
        vector = unstretched(other)
        if vector.type.rank == 1 and vector.type.shape == matrix.type.shape[-1:]:
            return matrix, vector
    return None, None


def turned(w: Writer, v: Value) -> Tensor:
    """Return a matrix with its axes exchanged, or what it is the exchange of."""
    match v:
        case Value(Node(Transpose((1, 0)), [Value() as x])):
            return w.tensor(x)
    return transposed(w, v, (1, 0))


def _biases(
    w: Writer, bias: Operand, recurrent: Tensor | None, gates: int, xw: Value
) -> Tensor | None:
    """Return both biases as ONNX has them, side by side; None if there are none."""
    if bias is None and recurrent is None:
        return None
    zeros = np.zeros(gates, xw.type.numpy)
    parts = [zeros if b is None else b for b in (bias, recurrent)]
    return stacked(w, w("Concat", *parts, axis=0))
