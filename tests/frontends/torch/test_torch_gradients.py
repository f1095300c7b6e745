"""Gradients of calls of PyTorch's operators where operands are infinite or large, as it has them.

Numbers are recorded from PyTorch 2.13.  Its decompositions of these operators choose between
branches, and the branch that is not chosen has the gradient 0 times infinity.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontends.torch.calls import graph_of_call, read_call

from alpenglow.autodiff import gradients
from alpenglow.evaluate import evaluate
from alpenglow.ops.elementwise.complex import ViewAsReal

INFINITY = float("inf")
ENDS = [-INFINITY, -1e30, -3, -1, 0, 0.5, 1, 3, 1e30, INFINITY]

LOSSES = {
    "huber_loss": [-2, -2, -2, -2, -1, -0.5, 0, 2, 2, 2],
    "huber_loss delta=0.5": [-0.5, -0.5, -0.5, -0.5, -0.5, -0.5, 0, 0.5, 0.5, 0.5],
    "smooth_l1_loss": [-1, -1, -1, -1, -0.5, -0.25, 0, 1, 1, 1],
    "smooth_l1_loss beta=0": [-1, -1, -1, -1, -1, -1, 0, 1, 1, 1],
}
"""Gradients by the operand ENDS, the other being 1; `delta` and `beta` are 2 if nothing is said."""

SUMS = {
    (1e10, 1): (1 + 1j, 0),
    (1, 1e10): (0, 1 + 1j),
    (1e10, 1e10): (0.5 + 0.5j, 0.5 + 0.5j),
    (-1e10, -1e10): (0.5 + 0.5j, 0.5 + 0.5j),
    (INFINITY, 800): (1 + 1j, 0),
    (1 + 2j, -3 + 1j): (1.0050784186423078 + 0.9748624313194303j,
                        -0.0050784186423078 + 0.0251375686805698j),
}  # fmt: skip
"""Complex operands of `logaddexp`, and its gradients by both for a gradient of 1 + i."""


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_an_infinite_distance_has_a_gradient(name: str) -> None:
    operator, _, option = name.partition(" ")
    option = option or ("delta=2.0" if operator == "huber_loss" else "beta=2.0")
    call = f"aten.{operator}.default(self=f64[10], target=f64[10], reduction=0, {option})"
    g = graph_of_call(read_call(f"{call} -> f64[10]"))
    (x, target), (loss,) = g.inputs.values(), g.outputs.values()
    for key, dx in zip(("dx", "dt"), gradients(g, loss, [x, target]), strict=True):
        g.output(key, dx)
    with np.errstate(all="ignore"):
        made = evaluate(g, dict(zip(g.inputs, (np.array(ENDS), np.ones(10)), strict=True)))

    np.testing.assert_allclose(made["dx"], LOSSES[name])
    np.testing.assert_allclose(made["dt"], np.negative(LOSSES[name]))


@pytest.mark.parametrize("operands", SUMS)
def test_a_sum_of_complex_exponentials_has_a_gradient(operands: tuple[complex, complex]) -> None:
    g = graph_of_call(read_call("aten.logaddexp.default(self=c128[1], other=c128[1]) -> c128[1]"))
    parts = g(ViewAsReal(), next(iter(g.outputs.values())))
    xs = list(g.inputs.values())
    for key, dx in zip(("d0", "d1"), gradients(g, parts, xs), strict=True):
        g.output(key, dx)
    feeds = {name: np.array([x], complex) for name, x in zip(g.inputs, operands, strict=True)}
    with np.errstate(all="ignore"):
        made = evaluate(g, feeds)

    np.testing.assert_allclose([made["d0"][0], made["d1"][0]], SUMS[operands], 1e-12)
