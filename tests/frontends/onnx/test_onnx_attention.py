"""Attention, its relatives and what feeds them, against ONNX's node tests and its reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, ModelError, TypeRuleError
from alpenglow.frontends.onnx import load
from node_cases import cases, check_cases
from onnx_node import Array, assert_close, node_model, ours, references

OPERATORS = (
    "Attention",
    "CausalConvWithState",
    "FlexAttention",
    "LinearAttention",
    "RMSNormalization",
    "RotaryEmbedding",
    "SwiGLU",
    "TensorScatter",
)


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compare(
    op: str, feeds: dict[str, Array], opset: int, outputs: int = 1, tolerance: float = 1e-5,
    **attributes: Any,
) -> None:  # fmt: skip
    """Assert that the interpreter and compiled code agree with ONNX's reference."""
    # An operand without a name is absent.
    model = node_model(op, feeds, opset=opset, outputs=[f"y{i}" for i in range(outputs)],
                       **attributes)  # fmt: skip
    del model.graph.input[:]
    for k, a in feeds.items():
        if a.size:
            kind = helper.np_dtype_to_tensor_dtype(a.dtype)
            model.graph.input.append(helper.make_tensor_value_info(k, kind, a.shape))
    for i, k in enumerate(feeds):
        if not feeds[k].size:
            model.graph.node[0].input[i] = ""
    given = {k: a for k, a in feeds.items() if a.size}
    expected = references(model, given)
    assert_close(expected, ours(model, given), tolerance)
    exe = ag.compile(model, threads=1)
    assert all(entry.kernel for entry in exe.artifact.table)
    made = exe(*given.values())
    assert_close(expected, list(made) if isinstance(made, tuple | list) else [made], tolerance)


ABSENT = np.zeros(0, np.float32)


@pytest.mark.sampled(0, "LinearAttention")
@pytest.mark.parametrize("op", OPERATORS)
def test_node_tests_of_onnx_agree(op: str) -> None:
    check_cases(cases(op))


# ── attention ──


@pytest.mark.parametrize("groups", [6, 2, 1])
@pytest.mark.parametrize("options", [
    {},
    {"is_causal": 1},
    {"scale": 0.3, "softcap": 1.5, "qk_matmul_output_mode": 1},
    {"left_window_size": 1, "right_window_size": 2, "qk_matmul_output_mode": 3},
    {"is_causal": 1, "left_window_size": 0, "qk_matmul_output_mode": 2},
    {"softmax_precision": TensorProto.DOUBLE},
])  # fmt: skip
@pytest.mark.sampled(8)
def test_attention_of_heads_in_one_axis(groups: int, options: dict[str, Any]) -> None:
    feeds = {
        "q": drawn(2, 3, 6 * 5),
        "k": drawn(2, 4, groups * 5, seed=1),
        "v": drawn(2, 4, groups * 7, seed=2),
        "mask": np.random.default_rng(3).random((6, 3, 6)) < 0.7,
        "past_k": drawn(2, groups, 2, 5, seed=4),
        "past_v": drawn(2, groups, 2, 7, seed=5),
    }
    compare("Attention", feeds, 25, 4, q_num_heads=6, kv_num_heads=groups, **options)


@pytest.mark.parametrize("shape", [(6,), (3, 6), (1, 1, 6), (2, 1, 3, 6), (3, 4), (1,)])
@pytest.mark.parametrize("boolean", [True, False])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.sampled(12)
def test_masks_of_all_shapes(shape: tuple[int, ...], boolean: bool, causal: int) -> None:
    drawing = drawn(*shape)
    mask = drawing < 0.8 if boolean else np.where(drawing > 1, -np.inf, drawing).astype("f4")
    feeds = {"q": drawn(2, 4, 3, 8), "k": drawn(2, 4, 6, 8, seed=1), "v": drawn(2, 4, 6, 8, seed=2)}
    # With is_causal the reference does not stretch the rows of a mask.
    rows = np.broadcast_to(mask, np.broadcast_shapes(shape, (3, 1)))
    compare("Attention", feeds | {"mask": rows if causal else mask}, 24, is_causal=causal)
    narrow, wide = (
        ours(node_model("Attention", given, opset=24, is_causal=causal), given)
        for given in (feeds | {"mask": mask}, feeds | {"mask": rows})
    )

    assert_close(wide, narrow, 1e-6)


@pytest.mark.parametrize("options", [{}, {"is_causal": 1}, {"left_window_size": 1}])
def test_counted_keys(options: dict[str, Any]) -> None:
    feeds = {
        "q": drawn(3, 4, 3, 8),
        "k": drawn(3, 2, 7, 8, seed=1),
        "v": drawn(3, 2, 7, 8, seed=2),
        "mask": ABSENT,
        "past_k": ABSENT,
        "past_v": ABSENT,
        "lengths": np.array([7, 4, 1]),
    }
    compare("Attention", feeds, 25, **options)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_attention_in_every_float(dtype: str) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    wide = {"q": drawn(2, 3, 5, 8), "k": drawn(2, 3, 4, 8, seed=1), "v": drawn(2, 3, 4, 8, seed=2)}
    feeds = {k: a.astype(kind) for k, a in wide.items()}
    exact = {k: a.astype(np.float64) for k, a in feeds.items()}
    expected = references(node_model("Attention", exact, opset=23, is_causal=1), exact)[0]
    model = node_model("Attention", feeds, opset=23, is_causal=1)
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-12}[dtype]

    assert_close([expected.astype(kind)], ours(model, feeds), tolerance)


def test_a_large_attention_is_computed_in_blocks() -> None:
    feeds = {"q": drawn(1, 3, 70, 64), "k": drawn(1, 3, 90, 64, seed=1)}
    feeds["v"] = drawn(1, 3, 90, 48, seed=2)
    compare("Attention", feeds, 23, is_causal=1, tolerance=1e-4)


def open_attention(past: bool) -> onnx.ModelProto:
    """Return a model of attention whose batch and lengths are open."""
    names = ["q", "k", "v"] + (["", "past_k", "past_v"] if past else [])
    node = helper.make_node("Attention", names, ["y", "present_k", "present_v"], is_causal=1)
    shapes: dict[str, list[str | int]] = {
        "q": ["B", 4, "S", 8], "k": ["B", 2, "S", 8], "v": ["B", 2, "S", 6],
    }  # fmt: skip
    if past:
        shapes |= {"past_k": ["B", 2, "P", 8], "past_v": ["B", 2, "P", 6]}
    infos = [helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in shapes.items()]
    outs = [helper.make_empty_tensor_value_info(k) for k in node.output]
    graph = helper.make_graph([node], "open", infos, outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


@pytest.mark.parametrize(("past", "steps"), [(0, 5), (3, 2), (7, 1)])
def test_open_extents_are_bound_later(past: int, steps: int) -> None:
    feeds = {"q": drawn(2, 4, steps, 8), "k": drawn(2, 2, steps, 8, seed=1)}
    feeds["v"] = drawn(2, 2, steps, 6, seed=2)
    if past:
        feeds |= {"past_k": drawn(2, 2, past, 8, seed=3), "past_v": drawn(2, 2, past, 6, seed=4)}
    model = open_attention(bool(past))
    expected = references(model, feeds)
    exe = ag.compile(load(model), shapes={k: a.shape for k, a in feeds.items()}, threads=1)

    assert_close(expected, list(exe(*feeds.values())), 1e-5)


# ── positions, caches, states ──


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("turned", [0, 4])
@pytest.mark.parametrize("flat", [True, False])
def test_rotary_embedding(interleaved: int, turned: int, flat: bool) -> None:
    half = (turned or 10) // 2
    feeds = {
        "x": drawn(2, 7, 30) if flat else drawn(2, 3, 7, 10),
        "cos": drawn(20, half, seed=1),
        "sin": drawn(20, half, seed=2),
        "at": np.arange(14).reshape(2, 7) + 3,
    }
    attributes: dict[str, Any] = {"interleaved": interleaved, "rotary_embedding_dim": turned}
    compare("RotaryEmbedding", feeds, 23, **attributes, **({"num_heads": 3} if flat else {}))


@pytest.mark.parametrize("axis", [1, -2, 3])
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(axis: int, mode: str) -> None:
    cache = drawn(2, 5, 6, 7)
    shape = list(cache.shape)
    shape[axis] = 3
    at = np.array([1, 4] if mode == "circular" else [0, 2])
    compare("TensorScatter", {"cache": cache, "new": drawn(*shape), "at": at}, 24, mode=mode,
            axis=axis)  # fmt: skip


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("scalar", [True, False])
@pytest.mark.parametrize(("heads", "groups", "size", "width"), [(4, 2, 5, 7), (3, 3, 16, 40)])
@pytest.mark.sampled(8)
def test_linear_attention(
    rule: str, scalar: bool, heads: int, groups: int, size: int, width: int
) -> None:
    steps = 6
    feeds = {
        "q": drawn(2, steps, heads * size),
        "k": drawn(2, steps, groups * size, seed=1) * 0.3,
        "v": drawn(2, steps, groups * width, seed=2),
        "state": drawn(2, groups, size, width, seed=3),
        "decay": -np.abs(drawn(2, steps, groups * (1 if scalar else size), seed=4)),
        "beta": np.abs(drawn(2, steps, 1 if scalar else groups, seed=5)) * 0.5,
    }
    feeds["decay"] = feeds["decay"] if "gated" in rule else ABSENT
    feeds["beta"] = feeds["beta"] if "delta" in rule else ABSENT
    if not feeds["beta"].size:
        del feeds["beta"]
    if not feeds["decay"].size and "beta" not in feeds:
        del feeds["decay"]
    compare("LinearAttention", feeds, 27, 2, 1e-4, update_rule=rule, q_num_heads=heads,
            kv_num_heads=groups)  # fmt: skip


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("steps", [1, 9])
def test_causal_convolution(activation: str, steps: int) -> None:
    feeds = {"x": drawn(2, 20, steps), "w": drawn(20, 1, 4, seed=1), "b": drawn(20, seed=2)}
    feeds["state"] = drawn(2, 20, 3, seed=3)
    compare("CausalConvWithState", feeds, 27, 2, activation=activation)


# ── what does not fit ──


@pytest.mark.parametrize(("op", "opset", "shapes", "attributes", "error"), [
    ("Attention", 23, [(2, 3, 8)] * 3, {"q_num_heads": 3, "kv_num_heads": 3}, ModelError),
    ("Attention", 23, [(2, 3, 8)] * 3, {}, ModelError),
    ("Attention", 23, [(2, 3, 4, 8), (2, 2, 4, 8), (2, 2, 4, 8)], {}, TypeRuleError),
    ("Attention", 23, [(2, 3, 4, 8)] * 3, {"qk_matmul_output_mode": 4}, ModelError),
    ("Attention", 23, [*[(2, 3, 4, 8)] * 3, (3, 4)], {}, TypeRuleError),
    ("Attention", 23, [*[(2, 3, 4, 8)] * 3, (4, 4), (2, 3, 4, 8)], {}, ModelError),
    ("RotaryEmbedding", 23, [(2, 3, 8), (2, 3, 4), (2, 3, 4)], {}, ModelError),
    ("RotaryEmbedding", 23, [(2, 3, 4, 8), (2, 4, 3), (2, 4, 3)], {}, ModelError),
    ("TensorScatter", 24, [(2, 4, 3), (2, 5, 3)], {}, TypeRuleError),
    ("TensorScatter", 24, [(2, 4, 3), (2, 2, 3)], {"axis": 0}, TypeRuleError),
    ("LinearAttention", 27, [(2, 3, 8)] * 3, {"q_num_heads": 2, "kv_num_heads": 2}, ModelError),
    ("CausalConvWithState", 27, [(2, 3, 8), (3, 1, 2)], {"activation": "relu"}, ModelError),
])  # fmt: skip
def test_what_does_not_fit_raises(
    op: str, opset: int, shapes: list[tuple[int, ...]], attributes: dict[str, Any],
    error: type[AlpenglowError],
) -> None:  # fmt: skip
    feeds = {f"x{i}": drawn(*shape) for i, shape in enumerate(shapes)}
    with pytest.raises(error):
        load(node_model(op, feeds, opset=opset, **attributes))
