"""Gradients of attention, as an operator and as models write it, where queries see nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.autodiff import gradients
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import Array, type_of
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.comparison import IsNaN
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.attention import Attention
from alpenglow.ops.product.contraction import MatMul, turned
from alpenglow.ops.reduction.reduction import filled
from alpenglow.ops.reduction.softmax import Softmax

RANDOM = np.random.default_rng(0)
SEEN = RANDOM.random((2, 4, 5, 6)) > 0.5
SEEN[0, 1] = False
SEEN[:, :, 2] = False
"""Which keys a query sees; some see none."""


def drawn(*shapes: tuple[int, ...]) -> list[Array]:
    return [np.random.default_rng(1).standard_normal(s) for s in shapes]


def check(g: Graph, y: Value, xs: Sequence[Value], feeds: dict[str, Array]) -> None:
    """Assert that gradients are finite, what differences say, and compiled alike."""
    weights = np.random.default_rng(2).standard_normal(y.type.extents)
    g.output("y", y)
    for x, dx in zip(xs, gradients(g, y, xs, dy=g.constant(weights)), strict=True):
        g.output(f"d{x.name}", dx)
    g.prune()
    found = evaluate(g, feeds)
    compiled = ag.compile(g, threads=1).run(feeds)
    for x in xs:
        at, slope = feeds[str(x.name)], found[f"d{x.name}"]
        way = np.where(np.isfinite(at), np.random.default_rng(3).standard_normal(at.shape), 0)
        ends = [evaluate(g, feeds | {str(x.name): at + s * way})["y"] for s in (1e-6, -1e-6)]
        expected = ((ends[0] - ends[1]) * weights).sum() / 2e-6

        assert np.isfinite(slope).all()
        np.testing.assert_allclose((slope * way).sum(), expected, 1e-5, 1e-7, err_msg=str(x.name))
        np.testing.assert_allclose(compiled[f"d{x.name}"], slope, 1e-9, 1e-12)


MASKS = {
    "bool": SEEN,
    "added": np.where(SEEN, RANDOM.standard_normal(SEEN.shape), -np.inf),
    "none": None,
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("op", [
    Attention(0.5), Attention(0.5, causal=True, offset=-2), Attention(0.5, 2.0, left=1, right=0),
], ids=["plain", "causal", "capped"])  # fmt: skip
@pytest.mark.sampled(4)
def test_queries_that_see_nothing_change_nothing(op: Attention, mask: str) -> None:
    g = Graph("attention")
    arrays = drawn((2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 7))
    feeds = dict(zip("qkv", arrays, strict=True))
    xs = [g.input(name, type_of(x)) for name, x in feeds.items()]
    operands: list[Value | None] = list(xs)
    given = MASKS[mask]
    if given is not None:
        operands.append(g.input("m", type_of(given)))
        feeds["m"] = given
    if mask == "added":
        xs.append(operands[3])
    check(g, g.add(op, operands).results[0], xs, feeds)


@pytest.mark.parametrize("zeros", ["", "masked", "undefined"])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.sampled(3)
def test_zeros_in_the_place_of_what_is_undefined_are_flat(zeros: str, added: bool) -> None:
    """As PyTorch exports it: a row of NaN becomes zeros behind the softmax."""
    g = Graph("written_out")
    feeds = dict(zip("qkv", drawn((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 7)), strict=True))
    q, k, v = (g.input(name, type_of(x)) for name, x in feeds.items())
    seen = g.input("seen", type_of(SEEN))
    x = g(MatMul(), q, turned(g, k))
    low = filled(g, -np.inf, x)
    x = g(Add(), x, g(Where(), seen, filled(g, 0, x), low)) if added else g(Where(), seen, x, low)
    shares = g(Softmax(-1, zeros), x)
    known = g(Where(), g(IsNaN(), shares), filled(g, 0, shares), shares)
    check(g, g(MatMul(), known, v), [q, k, v], feeds | {"seen": SEEN})


def test_what_is_undefined_stays_so_where_it_is_read() -> None:
    g = Graph("undefined")
    x = g.input("x", "f64[2,3]")
    (dx,) = gradients(g, g(Softmax(-1), x), [x], dy=g.constant(np.arange(6.0).reshape(2, 3)))
    g.output("dx", dx)
    with np.errstate(all="ignore"):
        found = evaluate(g, {"x": np.array([[-np.inf] * 3, [0.0, 1, 2]])})["dx"]

    assert np.isnan(found[0]).all() and np.isfinite(found[1]).all()
