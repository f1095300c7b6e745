"""Division in vectors: bit by bit what NumPy, or C's fmod, gives for each pair."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from agreement import TARGETS
from alpenglow.ir.op import Elementwise
from alpenglow.ir.types import DTYPES, Array
from alpenglow.ops.elementwise.arithmetic import Div, Fmod, Mod
from alpenglow.ops.tensor.movement import Broadcast

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
@pytest.mark.sampled(6)
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


def pairs(dtype: str) -> tuple[Array, Array]:
    """Return all pairs of bytes, or many pairs of integers of any size, limits included."""
    kind, limits = DTYPES[dtype], np.iinfo(DTYPES[dtype])
    if kind.itemsize == 1:
        each = np.arange(limits.min, limits.max + 1).astype(kind)
        return np.repeat(each, each.size), np.tile(each, each.size)
    rng = np.random.default_rng(0)
    edges = [0, 1, 2, 3, 7, limits.max, limits.max - 1, limits.max // 2, limits.min, limits.min + 1,
             limits.max // 3, limits.min // 2]  # fmt: skip
    x, y = (rng.integers(0, 1 << 63, COUNT, np.uint64) >> rng.integers(0, 63, COUNT, np.uint64)
            for _ in range(2))  # fmt: skip
    some = np.array(edges).astype(kind)
    multiples = x.astype(kind) * y.astype(kind)
    return (
        np.concatenate([np.repeat(some, some.size), x.astype(kind), multiples, multiples - 1]),
        np.concatenate([np.tile(some, some.size), y.astype(kind), x.astype(kind), x.astype(kind)]),
    )


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16", "i32", "u32", "i64"])
@pytest.mark.sampled(5)
def test_integers_are_divided_exactly(dtype: str, target: ag.Target) -> None:
    x, y = pairs(dtype)
    g = ag.Graph("divided")
    a, b = (g.input(n, f"{dtype}[{x.size}]") for n in "xy")
    one = g.input("one", f"{dtype}[1]")
    wide = g(Broadcast((x.size,)), one)
    for op in (Div(), Mod(), Fmod()):
        g.output(op.name, g(op, a, b))
        g.output(f"{op.name} by one", g(op, a, wide))
    feeds = {"x": x, "y": y, "one": y[200:201]}
    expected = ag.compile(g, target="interpreter").run(feeds)

    results = ag.compile(g, target=target, threads=1).run(feeds)

    wrong = [name for name, want in expected.items() if not np.array_equal(results[name], want)]
    assert wrong == []
    inside = (y != 0) & ~((x.astype(object) == np.iinfo(x.dtype).min) & (y.astype(object) == -1))
    exact = np.trunc(x.astype(np.longdouble) / np.where(inside, y, 1).astype(np.longdouble))
    assert np.array_equal(results["div"][inside], exact.astype(x.dtype)[inside])
