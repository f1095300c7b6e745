"""Nodes that fit no worker: parts of them compute the same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_place import PAIR, STRICT

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast, Concat
from alpenglow.placement.compiled import placed
from alpenglow.placement.placing import place
from alpenglow.placement.schedule import Schedule
from alpenglow.placement.split import parts_needed, split
from alpenglow.placement.text import Placement


def numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return whole numbers, whose sums are the same in any order."""
    return rng.integers(-9, 10, shape).astype(np.float32)


def convolution() -> Graph:
    rng = np.random.default_rng(0)
    g = Graph("convolution")
    w = g.constant(numbers(rng, (50, 16, 3, 3)))
    bias = g.constant(numbers(rng, (50,)))
    op = Conv(strides=(2, 1), pads=(1, 0, 1, 2))
    g.output("y", g(op, g.input("x", "f32[1,16,8,9]"), w, bias, name="conv"))
    return g


def product() -> Graph:
    rng = np.random.default_rng(0)
    g = Graph("product")
    w = g(Broadcast((2, 40, 301)), g.constant(numbers(rng, (40, 301))))
    g.output("y", g(MatMul(), g.input("x", "f32[2,5,40]"), w, name="product"))
    return g


def table() -> Graph:
    g = Graph("table")
    rows = g.constant(np.random.default_rng(0).standard_normal((101, 6), np.float32))
    g.output("y", g(Gather(0), rows, g.input("i", "i64[3,5]"), name="rows"))
    return g


def feeds(g: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    if "i" in g.inputs:
        # Negative ones count from the end, and those too far are the nearest.
        return {"i": np.append(rng.integers(-101, 101, 13), [-200, 200]).reshape(3, 5)}
    return {"x": numbers(rng, g.inputs["x"].type.extents)}


@pytest.mark.parametrize("build", [convolution, product, table])
@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.sampled(4)
def test_parts_compute_the_same_bits(build: type[Graph], count: int) -> None:
    g = build()
    name = Schedule(g).name(0)
    parts = split(g, {name: count})
    expected = ag.compile(g, options=STRICT).run(feeds(g))["y"]
    actual = ag.compile(parts, options=STRICT).run(feeds(g))["y"]

    assert len(parts.nodes) > count
    np.testing.assert_array_equal(actual, expected)


def test_what_fits_no_worker_is_split_and_placed() -> None:
    g = product()
    small = [replace(w, memory=60_000) for w in PAIR]
    p = place(g, small, measure=False)

    assert p.splits and Placement.parse(str(p)) == p
    assert {s.worker for s in p.stages} == {"left", "right"}
    assert all(s.nbytes <= 60_000 for s in p.stages)
    np.testing.assert_array_equal(placed(g, p).run(feeds(g))["y"], ag.compile(g).run(feeds(g))["y"])


def test_only_what_is_too_large_is_split() -> None:
    s = Schedule(product())
    weights, others = 40 * 301 * 4, 2 * 5 * (40 + 301) * 4

    assert parts_needed(s, weights + others) == {}
    assert parts_needed(s, weights + others - 1) == {"y": 2}
    assert parts_needed(s, others) == {}


def test_tables_are_handed_out_before_all_else() -> None:
    g = Graph("tables")
    rng = np.random.default_rng(0)
    rows = [g(Gather(0), g.constant(numbers(rng, (n, 6))), g.input(f"i{n}", "i64[4]"), name=f"t{n}")
            for n in (100, 400, 300, 200)]  # fmt: skip
    g.output("y", g(Concat(0), *rows))
    workers = [replace(w, memory=13_000) for w in PAIR]
    p = place(g, workers, measure=False, tables_first=True)
    names = {k: Schedule(g).name(k) for k in range(4)}
    where = {names[k]: s.worker for s in p.stages for k in range(s.begin, s.end) if k in names}

    # Of 13,000 bytes the largest table takes 9,600; the next two, 7,200 and 4,800, are together.
    assert where == {"t400": "left", "t300": "right", "t200": "right", "t100": "left"}
    assert all(s.nbytes <= 13_000 for s in p.stages)
    fed = {f"i{n}": np.arange(4) * n // 5 for n in (100, 400, 300, 200)}
    np.testing.assert_array_equal(placed(g, p).run(fed)["y"], ag.compile(g).run(fed)["y"])


def test_what_cannot_be_split_is_told() -> None:
    with pytest.raises(UnsupportedError, match="no node 'nobody' that has 2 parts"):
        split(product(), {"nobody": 2})
    with pytest.raises(UnsupportedError, match="no node 'y' that has 302 parts"):
        split(product(), {"y": 302})
