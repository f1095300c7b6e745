"""Fast numerics contract one product and a sum, but not two products: equal ones cancel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import DTYPES
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Neg, Sub

SUMS = {
    "difference": lambda g, p, q: g(Sub(), p, q),
    "sum with a negative": lambda g, p, q: g(Add(), g(Neg(), p), q),
    "negative of a factor": lambda g, p, q: g(Add(), p, q),
}


@pytest.mark.parametrize("kind", SUMS)
@pytest.mark.parametrize("numerics", ["fast", "strict"])
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_products_of_equal_numbers_cancel(dtype: str, numerics: Any, kind: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 101)).astype(DTYPES[dtype])
    g = Graph("products")
    a, b, c, d = (g.input(name, f"{dtype}[101]") for name in "abcd")
    left = g(Mul(), g(Neg(), a) if "factor" in kind else a, b)
    g.output("y", SUMS[kind](g, left, g(Mul(), c, d)))
    exe = ag.compile(g, options=ag.Options(numerics=numerics))
    result = exe.run({"a": x, "b": y, "c": y, "d": x})["y"]

    np.testing.assert_array_equal(result, np.zeros(101))
