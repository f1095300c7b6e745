"""Matrix products of many terms: how far they are from the exact sums, in f32."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array
from alpenglow.ops.product.contraction import MatMul

TERMS = (96, 520, 4100)
"""A short sum, one a little longer than two chunks, and a long one, none of them a multiple."""

MOST = 8 * 2.0**-24
"""The root of the mean square of errors, relative to that of the results: chunks make about 5 of
these units, and in one register 4100 terms would make 19."""


def relative(actual: Array, exact: Array) -> float:
    return float(np.sqrt(((actual - exact) ** 2).mean() / (exact**2).mean()))


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.sampled(3)
def test_the_error_does_not_grow_with_the_number_of_terms(constant: bool, terms: int) -> None:
    random = np.random.default_rng(terms)
    x, w = random.standard_normal((21, terms)), random.standard_normal((terms, 40))
    feeds = {"x": x.astype(np.float32), "w": w.astype(np.float32)}
    g = Graph("long")
    right = g.constant(feeds.pop("w")) if constant else g.input("w", f"f32[{terms},40]")
    g.output("y", g(MatMul(), g.input("x", f"f32[21,{terms}]"), right))
    exact = x.astype(np.float32).astype(np.float64) @ w.astype(np.float32).astype(np.float64)
    actual = ag.compile(g, threads=1).run(feeds)["y"]

    assert relative(actual, exact) < MOST
