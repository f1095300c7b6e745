"""Remainders of f32 in vectors: bit by bit what NumPy, or C's fmod, gives for each pair."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from agreement import TARGETS
from alpenglow.ir.op import Elementwise
from alpenglow.ir.types import Array
from alpenglow.ops.arithmetic import Fmod, Mod

EDGES = np.array(
    [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, 3, 7, 1.5,
     -3.4028235e38, 2.0**29, 2.0**30 - 64, 2.0**53, 1e10, 1e-30, 6, 0.1, -0.3],
    np.float32,
)  # fmt: skip
COUNT = 1 << 17


def any_bits(rng: np.random.Generator) -> tuple[Array, Array]:
    x, y = rng.integers(0, 1 << 32, (2, COUNT), dtype=np.uint32).view(np.float32)
    return x, y


def edges(rng: np.random.Generator) -> tuple[Array, Array]:
    return np.repeat(EDGES, EDGES.size), np.tile(EDGES, EDGES.size)


def near(rng: np.random.Generator) -> tuple[Array, Array]:
    x, y = rng.standard_normal((2, COUNT), np.float32)
    return 1000 * x, y


def beside_the_limit(rng: np.random.Generator) -> tuple[Array, Array]:
    """Return pairs whose quotients are between 2^26 and 2^32."""
    y = rng.standard_normal(COUNT).astype(np.float32)
    return (y * 2.0 ** rng.uniform(26, 32, COUNT)).astype(np.float32), y


def multiples(rng: np.random.Generator) -> tuple[Array, Array]:
    """Return pairs in which one is a multiple of the other, or a neighbour of a multiple."""
    y = (rng.integers(1, 1 << 12, COUNT) * 2.0 ** rng.integers(-140, 100, COUNT)).astype(np.float32)
    x = (rng.integers(0, 1 << 13, COUNT) * y.astype(np.float64)).astype(np.float32)
    toward = rng.choice(np.array([-np.inf, 0, np.inf], np.float32), COUNT)
    return np.where(toward == 0, x, np.nextafter(x, toward)), y


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("drawn", [any_bits, edges, near, beside_the_limit, multiples])
@pytest.mark.parametrize(("op", "reference"), [(Fmod(), np.fmod), (Mod(), np.mod)], ids=str)
def test_remainders_have_the_bits_of_numpy(
    op: Elementwise, reference: np.ufunc, drawn: object, target: ag.Target
) -> None:
    assert callable(drawn)
    x, y = drawn(np.random.default_rng(0))
    g = ag.Graph("remainder")
    g.output("z", g(op, *(g.input(n, f"f32[{x.size}]") for n in "xy")))
    with np.errstate(all="ignore"):
        expected = reference(x, y)

    actual = ag.compile(g, target=target, threads=1).run({"x": x, "y": y})["z"]

    same = expected.view(np.uint32) == actual.view(np.uint32)
    wrong = np.flatnonzero(~same & ~(np.isnan(expected) & np.isnan(actual)))
    assert wrong.size == 0, f"{x[wrong[:3]]} % {y[wrong[:3]]} is {actual[wrong[:3]]}"
