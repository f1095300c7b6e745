"""Gradients of functions that have them by some operands only, or not by differences.

The share of the gamma function and zeta are differentiated by what their terms are powers of;
trees are flat; coupled probabilities are differentiated where they would be exact.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from test_gradients import Array, check, slope_at, weighted_sum

import alpenglow as ag
from alpenglow.autodiff import gradients
from alpenglow.base.errors import UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.extras.ml.probability import Couple
from alpenglow.extras.ml.tree import TreeEnsemble, small
from alpenglow.extras.special.incomplete import GammaDensity, IncompleteGamma, Zeta
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Op
from alpenglow.ir.types import type_of

A = np.array([0.5, 1, 3, 30, 200, 2e4, 0.01, 5])
X = np.array([0.1, 2.5, 2, 33, 190, 2.01e4, 3, 40])
"""Operands on both sides of where sums become fractions, and where exponents are large."""

CASES: dict[str, tuple[Op, Array, Array]] = {
    "lower": (IncompleteGamma(), A, X),
    "upper": (IncompleteGamma(True), A, X),
    "zeta": (Zeta(), np.array([1.5, 2, 3, 7.5, 4, 3]), np.array([0.3, 1, 7, 2.5, -3.5, 40])),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_by_the_second_operand_agree_with_differences(name: str) -> None:
    op, first, second = CASES[name]
    g = Graph("second")
    x = g.input("x", type_of(second))
    y = weighted_sum(g, [g(op, g.constant(first), x)])

    check(g, y, {"x": second})


@pytest.mark.parametrize("name", CASES)
def test_they_are_compiled(name: str) -> None:
    op, *operands = CASES[name]
    g = Graph("compiled")
    first, second = (v.astype(np.float32) for v in operands)
    x = g.input("x", type_of(second))
    g.output("dx", gradients(g, g(op, g.constant(first), x), [x])[0])
    exe = ag.compile(g, threads=1)

    assert all(entry.kernel for entry in exe.artifact.table)
    np.testing.assert_allclose(exe(second), evaluate(g, {"x": second})["dx"], 1e-5, 1e-30)


def test_the_density_at_zero() -> None:
    a, x = np.array([0.5, 1, 2, 200, 0, np.inf, 2, -1]), np.array([0.0, 0, 0, 0, 3, 3, np.inf, 1])
    density = GammaDensity().reference(a, x)

    assert density.tolist()[:7] == [math.inf, 1, 0, 0, 0, 0, 0]
    assert np.isnan(density[7])


@pytest.mark.parametrize("op", [IncompleteGamma(), Zeta()])
def test_there_are_none_by_the_first_operand(op: Op) -> None:
    with pytest.raises(UnsupportedError, match=f"gradient of {op.name}: .* is not supported"):
        slope_at(op, np.full(2, 2.0), np.full(2, 3.0))


def test_trees_are_flat_and_their_leaves_are_given() -> None:
    op, _, *operands = next(small(TreeEnsemble(1, 2, 2), "f64[7,3]", np.float64))
    g = Graph("trees")
    x, weight = g.input("x", "f64[4,3]"), g.input("weight", type_of(operands[2]))
    y = g(op, x, g.constant(operands[0]), g.constant(operands[1]), weight)
    g.output("dx", gradients(g, y, [x])[0])

    feeds = {"x": np.ones((4, 3)), "weight": operands[2]}

    assert not evaluate(g, feeds)["dx"].any()
    with pytest.raises(UnsupportedError, match="tree_ensemble by weight"):
        gradients(g, y, [weight])


def minimum(r: Array) -> Array:
    """Return the probabilities at which the sum that Couple makes small is least."""
    return np.stack([np.linalg.solve(*system(one))[:-1] for one in r])


def system(r: Array) -> tuple[Array, Array]:
    classes = len(r)
    off = np.where(np.eye(classes, dtype=bool), 0, r)
    matrix = np.ones((classes + 1, classes + 1))
    matrix[:-1, :-1] = np.diag(np.square(off).sum(axis=0)) - off * off.T
    matrix[-1, -1] = 0
    return matrix, np.eye(classes + 1)[-1]


@pytest.mark.parametrize("classes", [1, 2, 3, 6])
def test_coupled_probabilities_are_differentiated_as_if_they_were_exact(classes: int) -> None:
    random = np.random.default_rng(classes)
    r, way = random.uniform(0.05, 0.95, (2, 4, classes, classes))
    weights = random.standard_normal((4, classes))
    g = Graph("couple")
    x = g.input("r", type_of(r))
    g.output("dr", gradients(g, g(Couple(), x), [x], dy=g.constant(weights))[0])
    g.prune()
    exe: Any = ag.compile(g, threads=1)
    dr = exe(r)
    ahead, behind = (minimum(r + step * way) for step in (1e-6, -1e-6))

    assert all(entry.kernel for entry in exe.artifact.table)
    np.testing.assert_allclose(np.sum(dr * way), np.sum((ahead - behind) * weights) / 2e-6, 1e-5)
    np.testing.assert_allclose(dr, evaluate(g, {"r": r})["dr"], 1e-9, 1e-9)
