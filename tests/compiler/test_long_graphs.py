"""Graphs of thousands of nodes compile, whatever the depth of Python's stack, in linear time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.ir.types import Array
from alpenglow.ops.fused import Fused
from alpenglow.program.order import MemoryGraph, best_order

X = np.linspace(-1, 1, 16, dtype=np.float32)
DEEP = 600
"""Frames below the caller: of the 1,000 that Python allows, this many are somebody else's."""


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["add", "alternating"])
@pytest.mark.sampled(1)
def test_a_chain_compiles_deep_down_in_a_recursion(kind: str, count: int) -> None:
    model, expected = (added if kind == "add" else alternating)(count)

    y = from_deep_down(lambda: ag.compile(model, threads=1)(X))

    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.rest
def test_layers_with_residual_sums_compile_deep_down_in_a_recursion() -> None:
    model, expected = layers(1_000)

    y = from_deep_down(lambda: ag.compile(model, threads=1)(X[None]))

    np.testing.assert_allclose(y, expected, rtol=1e-3)


def test_transposes_between_all_nodes_meet_on_their_way_down() -> None:
    model, expected = turned(1_000)

    y = from_deep_down(lambda: ag.compile(model, threads=1)(X.reshape(2, 8)))

    np.testing.assert_array_equal(y, expected)


@pytest.mark.slow
@pytest.mark.parametrize("op", ["Sum", "Concat"])
def test_five_thousand_operands_compile_deep_down_in_a_recursion(op: str) -> None:
    model, expected = many_operands(op, 5_000)

    y = from_deep_down(lambda: ag.compile(model, threads=1)(X))

    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.rest
def test_no_fused_node_has_more_than_64_parts() -> None:
    seen: list[int] = []

    def after(p: Any, ir: Any) -> None:
        if p.name == "fuse":
            seen.extend(len(n.regions[0].nodes) for n in ir.nodes if isinstance(n.op, Fused))

    ag.compile(alternating(200)[0], options=ag.Options(after=after), threads=1)

    assert sum(seen) == 200
    assert max(seen) == 64


def test_a_long_chain_is_cut_after_each_node() -> None:
    count = 20_000
    reads = tuple((i,) for i in range(count))
    made = tuple((i + 1,) for i in range(count))

    order = best_order(MemoryGraph(reads, made, (4,) * (count + 1), frozenset({count})))

    assert order.nodes == tuple(range(count))
    assert order.peak == order.lower_bound == 8


def from_deep_down(call: Callable[[], Any], frames: int = DEEP) -> Any:
    return call() if not frames else from_deep_down(call, frames - 1)


def added(count: int) -> tuple[onnx.ModelProto, Array]:
    """x + w0 + w1 + …"""
    weights = np.random.default_rng(0).standard_normal((count, 16)).astype(np.float32)
    nodes = [helper.make_node("Add", [value(i), f"w{i}"], [value(i + 1)]) for i in range(count)]
    return chain(nodes, {f"w{i}": w for i, w in enumerate(weights)}), X + weights.sum(axis=0)


def alternating(count: int) -> tuple[onnx.ModelProto, Array]:
    """… tanh(sin(tanh(x)))"""
    nodes = [helper.make_node(("Tanh", "Sin")[i % 2], [value(i)], [value(i + 1)])
             for i in range(count)]  # fmt: skip
    y = X
    for i in range(count):
        y = (np.tanh, np.sin)[i % 2](y)
    return chain(nodes, {}), y


def layers(count: int) -> tuple[onnx.ModelProto, Array]:
    """x + relu(x @ w + b), again and again: four nodes a layer."""
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal((16, 16)).astype(np.float32) / 40, np.full(16, 0.01, np.float32)
    nodes, y = [], X[None]
    for i in range(count // 4):
        nodes += [
            helper.make_node("MatMul", [value(i), "w"], [f"m{i}"]),
            helper.make_node("Add", [f"m{i}", "b"], [f"a{i}"]),
            helper.make_node("Relu", [f"a{i}"], [f"r{i}"]),
            helper.make_node("Add", [f"r{i}", value(i)], [value(i + 1)]),
        ]
        y = y + np.maximum(y @ w + b, 0)
    return chain(nodes, {"w": w, "b": b}, [1, 16]), y


def turned(count: int) -> tuple[onnx.ModelProto, Array]:
    """relu(relu(x.T).T) and so on."""
    nodes = [helper.make_node(("Transpose", "Relu")[i % 2], [value(i)], [value(i + 1)])
             for i in range(count)]  # fmt: skip
    y = np.maximum(X.reshape(2, 8), 0)
    return chain(nodes, {}, [2, 8]), y.T if count // 2 % 2 else y


def many_operands(op: str, count: int) -> tuple[onnx.ModelProto, Array]:
    """One operator that reads relu(x) + w0, relu(x) + w1, …"""
    weights = np.random.default_rng(0).standard_normal((count, 16)).astype(np.float32)
    nodes = [helper.make_node("Relu", [value(0)], ["r"])]
    nodes += [helper.make_node("Add", ["r", f"w{i}"], [f"a{i}"]) for i in range(count)]
    axis = {"axis": 0} if op == "Concat" else {}
    nodes.append(helper.make_node(op, [f"a{i}" for i in range(count)], [value(1)], **axis))
    terms = np.maximum(X, 0) + weights
    model = chain(nodes, {f"w{i}": w for i, w in enumerate(weights)})
    return model, terms.reshape(-1) if op == "Concat" else terms.sum(axis=0)


def value(i: int) -> str:
    return f"v{i}"


def chain(
    nodes: list[onnx.NodeProto], weights: dict[str, Array], shape: list[int] | None = None
) -> onnx.ModelProto:
    """Return a model from v0 to what its last node makes."""
    first = helper.make_tensor_value_info("v0", TensorProto.FLOAT, shape or [16])
    last = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    initial = [numpy_helper.from_array(w, name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "long", [first], [last], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
