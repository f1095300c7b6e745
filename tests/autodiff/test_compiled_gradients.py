"""Gradients of the operators' examples, compiled for the CPU, are what evaluation makes of them."""

from __future__ import annotations

import numpy as np
import pytest
from test_gradients import EXAMPLES, drawn, types_of

import alpenglow as ag
from alpenglow.autodiff import gradients
from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from differences import Array, total_of
from drawn_operators import Application

PER_OPERATOR = 2
"""The most examples of one operator."""


def slopes_of(op: Application) -> tuple[Graph, dict[str, Array]] | None:
    """Return a graph that computes gradients in f32 and what to feed it, None if there are none."""
    kind, operands = op
    wide = types_of(operands)
    types = [t.with_dtype("f32") if t is not None and t.dtype == "f64" else t for t in wide]
    if any(t is not None and 0 in t.shape for t in types):
        return None
    g = Graph("slopes")
    inputs = [None if t is None else g.input(f"x{i}", t) for i, t in enumerate(types)]
    try:
        results = [v for v in g.add(kind, inputs).results if v.type.dtype == "f32"]
        xs = [v for v in g.inputs.values() if v.type.dtype == "f32"]
        if not results or not xs:
            return None
        grads = gradients(g, total_of(g, results), xs)
    except (TypeRuleError, UnsupportedError):
        return None
    for x, dx in zip(xs, grads, strict=True):
        g.output(f"d{x.name}", dx)
    g.prune()
    feeds = dict(zip(g.inputs, drawn(kind.name, wide, operands), strict=True))
    return g, {name: x.astype(g.inputs[name].type.numpy) for name, x in feeds.items()}


@pytest.mark.parametrize("name", sorted({op.name for op, _ in EXAMPLES}))
@pytest.mark.sampled(4, "conv", "attention", "layer_norm", "max_pool")
def test_compiled_gradients_of_examples_agree_with_evaluated_ones(name: str) -> None:
    found = [slopes_of(example) for example in EXAMPLES if example[0].name == name]
    for g, feeds in [case for case in found if case is not None][:PER_OPERATOR]:
        with np.errstate(all="ignore"):
            expected = evaluate(g, feeds)
        exe = ag.compile(g, threads=1)
        actual = exe.run(feeds)
        for key, slope in expected.items():
            largest = np.abs(slope, where=np.isfinite(slope), out=np.zeros_like(slope)).max()

            np.testing.assert_allclose(actual[key], slope, 2e-4, 2e-4 * largest + 1e-6, err_msg=key)
