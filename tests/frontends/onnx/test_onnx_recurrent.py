"""LSTM, GRU and RNN of ONNX, against ONNX Runtime and ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpenglow.base.errors import ModelError, TypeRuleError
from alpenglow.frontends.onnx import load
from alpenglow.ir.graph import Graph
from alpenglow.ops.sequence.recurrent import Gru, Lstm
from onnx_node import Array, assert_close, node_model, ours, references, runtimes

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
STEPS, BATCH, FEATURES, UNITS = 5, 3, 4, 6


def drawn(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def layer(
    op: str, direction: str = "forward", *, lengths: bool = False, states: bool = False,
    peepholes: bool = False, bias: bool = True, opset: int = 14, **attributes: Any,
) -> tuple[Any, dict[str, Array]]:  # fmt: skip
    """Return a model of one layer and its feed."""
    count, rows = 1 + (direction == "bidirectional"), GATES[op] * UNITS
    batch_first = attributes.get("layout", 0)
    feeds = {"x": drawn(0, *((BATCH, STEPS) if batch_first else (STEPS, BATCH)), FEATURES)}
    constants = {"w": drawn(1, count, rows, FEATURES), "r": drawn(2, count, rows, UNITS)}
    operands = ["x", "w", "r", *[""] * 5]
    if bias:
        constants["b"] = drawn(3, count, 2 * rows)
        operands[3] = "b"
    if lengths:
        constants["n"] = np.array([5, 2, 3], np.int32)
        operands[4] = "n"
    if states:
        for i in range(STATES[op]):
            shape = (BATCH, count) if batch_first else (count, BATCH)
            constants[f"s{i}"] = drawn(4 + i, *shape, UNITS)
            operands[5 + i] = f"s{i}"
    if peepholes:
        constants["p"] = drawn(6, count, 3 * UNITS)
        operands[7] = "p"
    outputs = ["y", "h", "c"] if op == "LSTM" else ["y", "h"]
    while not operands[-1]:
        operands.pop()
    model = node_model(op, feeds, constants, opset=opset, outputs=outputs,
                       hidden_size=UNITS, direction=direction, **attributes)  # fmt: skip
    model.graph.node[0].ClearField("input")
    model.graph.node[0].input.extend(operands)
    return model, feeds


@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("states", [False, True])
def test_every_direction_agrees(op: str, direction: str, lengths: bool, states: bool) -> None:
    model, feeds = layer(op, direction, lengths=lengths, states=states)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("opset", [7, 14, 22])
def test_every_opset_agrees_without_biases(op: str, opset: int) -> None:
    model, feeds = layer(op, bias=False, opset=opset)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("op", list(GATES))
def test_the_batch_may_come_first(op: str) -> None:
    model, feeds = layer(op, layout=1, states=True)

    assert_close(references(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_peepholes_agree(direction: str) -> None:
    model, feeds = layer("LSTM", direction, peepholes=True, states=True, lengths=True)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


def test_the_forget_gate_may_be_coupled_to_the_input_gate() -> None:
    model, feeds = layer("LSTM", input_forget=1)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("op", list(GATES))
def test_what_goes_into_activations_is_clipped(op: str) -> None:
    model, feeds = layer(op, clip=0.2)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("bias", [False, True])
def test_a_gru_may_reset_after_the_product(direction: str, bias: bool) -> None:
    model, feeds = layer("GRU", direction, bias=bias, linear_before_reset=1, lengths=True)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize(
    ("name", "alpha", "beta"),
    [
        ("Relu", None, None),
        ("Sigmoid", None, None),
        ("Tanh", None, None),
        ("HardSigmoid", 0.3, 0.4),
        ("LeakyRelu", 0.2, None),
        ("ThresholdedRelu", 0.3, None),
        ("ScaledTanh", 0.7, 0.8),
        ("Affine", 0.5, 0.1),
        ("Elu", 0.6, None),
        ("Softsign", None, None),
    ],
)
def test_every_activation_agrees(
    op: str, name: str, alpha: float | None, beta: float | None
) -> None:
    n = FUNCTIONS[op]
    attributes: dict[str, Any] = {"activations": [name] * n}
    if alpha is not None:
        attributes["activation_alpha"] = [alpha] * n
    if beta is not None:
        attributes["activation_beta"] = [beta] * n
    model, feeds = layer(op, **attributes)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


def test_softplus_agrees() -> None:
    # In an LSTM, ONNX Runtime's overflows.
    model, feeds = layer("RNN", activations=["Softplus"])

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


def test_directions_may_have_activations_of_their_own() -> None:
    names = ["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Relu", "Tanh"]
    model, feeds = layer("LSTM", "bidirectional", activations=names, activation_alpha=[0.3],
                         activation_beta=[0.6])  # fmt: skip

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


def test_outputs_may_be_left_out() -> None:
    model, feeds = layer("LSTM", "bidirectional")
    expected = runtimes(model, feeds)
    del model.graph.output[0]
    model.graph.node[0].output[0] = ""

    assert_close(expected[1:], ours(model, feeds), 1e-5)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"activations": ["Sigmoid"]}, "1 activations given, expected 3"),
        ({"activations": ["Sigmoid", "Tanh", "Swish"]}, "swish"),
    ],
)
def test_wrong_activations_are_reported(attributes: dict[str, Any], message: str) -> None:
    model, _ = layer("LSTM", **attributes)

    with pytest.raises(ModelError, match=message):
        load(model)


def test_weights_that_do_not_fit_are_reported() -> None:
    model, _ = layer("GRU")
    model.graph.node[0].op_type = "LSTM"

    with pytest.raises(ModelError, match=r"expected \[directions,24,4\] and"):
        load(model)


def test_operands_that_do_not_fit_cannot_be_built() -> None:
    g = Graph()
    xw, r, h = g.input("xw", "f32[3,2,20]"), g.input("r", "f32[5,20]"), g.input("h", "f32[2,5]")
    c = g.input("c", "f32[2,4]")

    with pytest.raises(TypeRuleError, match="c0 is"):
        g.add(Lstm(), [xw, r, h, c])
    with pytest.raises(TypeRuleError, match="xw is"):
        g.add(Gru(), [xw, r, h])
