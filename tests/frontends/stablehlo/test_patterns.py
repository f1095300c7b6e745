"""What JAX writes out in small steps is found again: softmax, norms, activations, attention.

`patterns.mlir` is text as `jax.jit(f).lower(…).as_text()` returns it, a module each.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.compiler.pipeline import run_stages
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ops.tensor.movement import Reshape, Transpose

TEXTS = {
    re.findall(r"@(\w+)", text)[0]: text.encode()
    for text in Path(__file__).with_name("patterns.mlir").read_text().split("// -----\n")
}

FOUND = {
    "softmax": ["softmax"],
    "softmax_axis": ["softmax"],
    "ln": ["layer_norm"],
    "flax_ln": ["layer_norm"],
    "rms": ["rmsnorm"],
    "rms2": ["rmsnorm"],
    "rms3": ["rmsnorm"],
    "gelu_erf": ["gelu"],
    "gelu_tanh": ["gelu"],
    "leaky": ["leaky_relu"],
    "hard_swish": ["hard_swish"],
    "attn": ["mat_mul", "broadcast", "mul", "softmax", "mat_mul"],
    "mattn": ["broadcast", "mat_mul", "broadcast", "div", "broadcast", "where", "softmax",
              "mat_mul"],
}  # fmt: skip
"""The operators of each function, but for those that move elements."""

TOLERANCE = {"f32": 1e-5, "f64": 1e-9, "bf16": 0.05}


def imported(name: str) -> Graph:
    graph = ag.load(TEXTS[name])
    assert isinstance(graph, Graph)
    return graph


@pytest.mark.parametrize("name", TEXTS)
def test_operators_are_found_in_what_jax_wrote(name: str) -> None:
    stages = run_stages(imported(name), ag.Target.parse("cpu"), ag.Options())
    graph = next(made for stage, made in stages if stage.name == "recover_f16")
    assert isinstance(graph, Graph)
    found = [n.op.name for n in graph.nodes if not isinstance(n.op, Reshape | Transpose)]

    assert found == FOUND[name.rpartition("_")[0]]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.sampled(9)
def test_results_are_those_of_the_steps(name: str) -> None:
    graph = imported(name)
    rng = np.random.default_rng(0)
    feeds = {
        n: rng.random(v.type.extents) > 0.3 if v.type.dtype == "bool"
        else rng.standard_normal(v.type.extents).astype(v.type.numpy)
        for n, v in graph.inputs.items()
    }  # fmt: skip
    (expected,) = (np.asarray(y, np.float64) for y in evaluate(graph, feeds).values())
    (actual,) = (np.asarray(y, np.float64) for y in ag.compile(graph).run(feeds).values())

    np.testing.assert_allclose(actual, expected, atol=TOLERANCE[name.rpartition("_")[2]])
