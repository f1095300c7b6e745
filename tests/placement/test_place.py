"""Placements: where nodes go and why, their texts, and that results are those of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from test_schedule import drawn

import alpenglow as ag
from alpenglow.base.errors import ModelError, OptionError, ParseError, UnsupportedError
from alpenglow.host.worker import Link, Worker
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.placement.compiled import placed
from alpenglow.placement.placing import place
from alpenglow.placement.schedule import Schedule
from alpenglow.placement.text import Placement, Stage

CPU, NUMPY = Target.parse("cpu"), Target.parse("interpreter")
PAIR = (Worker("left", CPU), Worker("right", CPU))
STRICT = ag.Options(numerics="strict")
SIDE = 256


def layers(count: int = 6) -> Graph:
    """Return products in a row, which all take the same time; results are r0, r1, …"""
    g = Graph("layers")
    x = g.input("x", f"f32[64,{SIDE}]")
    w = g.constant(np.eye(SIDE, dtype=np.float32))
    for k in range(count):
        x = g(
            MatMul(), x, g(Add(), w, g.constant(np.full((SIDE, SIDE), k, np.float32))), name=f"r{k}"
        )
    g.output("y", x)
    return g


def numbers(g: Graph) -> dict[str, Array]:
    """Return small whole numbers, whose sums are exact."""
    rng = np.random.default_rng(0)
    return {
        name: rng.integers(-2, 3, v.type.extents).astype(np.float32)
        for name, v in g.inputs.items()
    }  # fmt: skip


def cut_at(g: Graph, at: Mapping[int, Worker], workers: tuple[Worker, ...]) -> Placement:
    """Return a placement whose stages begin where `at` says."""
    s = Schedule(g)
    ends = [*list(at)[1:], len(s.nodes)]
    stages = [
        Stage(w.name, begin, end, s.name(begin), 0.0, 0.0, 0, why="asked for" if begin else "")
        for (begin, w), end in zip(at.items(), ends, strict=True)
    ]
    return Placement(g.name, "latency", workers, tuple(stages))


@pytest.mark.parametrize("seed", range(12))
def test_any_cut_gives_what_the_whole_gives(seed: int) -> None:
    g = drawn(seed)
    rng = np.random.default_rng(seed)
    n = len(Schedule(g).nodes)
    workers = (Worker("cpu", CPU), Worker("numpy", NUMPY))
    cuts = [0, *(p for p in range(1, n) if rng.random() < 0.5)]
    placement = cut_at(g, {p: workers[rng.integers(2)] for p in cuts}, workers)
    feeds = numbers(g)
    expected = ag.compile(g, options=STRICT).run(feeds)
    actual = placed(g, placement, options=STRICT).run(feeds)

    assert list(actual) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array)


def test_throughput_shares_the_work_evenly() -> None:
    p = place(layers(), PAIR, "throughput", measure=False)

    assert [s.worker for s in p.stages] == ["left", "right"]
    assert [s.end - s.begin for s in p.stages] == [3, 3]
    assert p.interval < 0.6 * p.latency
    assert "to balance left" in p.stages[1].why


def test_latency_stays_where_the_link_is_slow() -> None:
    far = Worker("far", CPU, link=Link(0.05, 1e8))
    slow = Worker("slow", NUMPY)

    (alone,) = place(layers(), [slow, far], measure=False).stages
    near = place(layers(), [slow, PAIR[1]], measure=False).stages

    assert alone.worker == "slow"
    assert [s.worker for s in near] == ["right"]


def test_nodes_go_where_they_are_pinned() -> None:
    p = place(layers(), PAIR, pins={"r2": "right", "r4": "left"}, measure=False)
    where = {k: s.worker for s in p.stages for k in range(s.begin, s.end)}

    assert (where[2], where[4]) == ("right", "left")
    assert p.stages[1].why == "r2 → right: pinned" or p.stages[1].why == "r4 → left: pinned"
    assert Placement.parse(str(p)) == p


def test_what_does_not_fit_one_worker_is_shared() -> None:
    g = layers()
    whole = place(g, PAIR[:1], measure=False).stages[0].nbytes
    small = [replace(w, memory=whole * 2 // 3) for w in PAIR]
    p = place(g, small, measure=False)

    assert [s.worker for s in p.stages] == ["left", "right"]
    assert all(s.nbytes <= whole * 2 // 3 for s in p.stages)
    assert f"left has {whole * 2 // 3:,} bytes" in p.stages[1].why
    with pytest.raises(UnsupportedError, match="no worker has more than 1,000"):
        place(g, [replace(w, memory=1000) for w in PAIR], measure=False)


def test_workers_without_a_stage_take_turns() -> None:
    workers = [*PAIR, Worker("third", CPU)]
    p = place(layers(1), workers, "throughput", replicate=True, measure=False)

    assert p.stages[0].replicas == ("right", "third")
    assert set(placed(layers(1), p).stages[0]) == {"left", "right", "third"}
    assert Placement.parse(str(p)) == p


@pytest.mark.parametrize("pins, message", [
    ({"nobody": "left"}, "expected results of nodes"),
    ({"r0": "nobody"}, "pinned to 'nobody'"),
])  # fmt: skip
def test_pins_that_make_no_sense_are_told(pins: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        place(layers(), PAIR, pins=pins, measure=False)


def test_workers_that_make_no_sense_are_told() -> None:
    with pytest.raises(OptionError, match="workers is empty"):
        place(layers(), [])
    with pytest.raises(OptionError, match="two workers are called 'left'"):
        place(layers(), [PAIR[0], PAIR[0]])
    with pytest.raises(OptionError, match="has 0 bytes"):
        Worker("none", CPU, memory=0)
    with pytest.raises(OptionError, match="goal is 'speed'"):
        place(layers(), PAIR, "speed")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="keeps to the pins"):
        place(layers(), PAIR, "throughput", pins={"r0": "left", "r1": "right", "r2": "left"},
              measure=False)  # fmt: skip


@pytest.mark.parametrize("measure", [True, False])
def test_workers_that_are_elsewhere_are_told(measure: bool) -> None:
    away = Worker("away", Target.parse("aarch64"))

    with pytest.raises(
        UnsupportedError, match="worker 'away' are unknown: 'aarch64' does not run"
    ):
        place(layers(1), [PAIR[0], away], measure=measure)


def test_texts_that_are_none_are_told() -> None:
    p = cut_at(layers(), {0: PAIR[0], 3: PAIR[1]}, PAIR)
    text = str(p)

    assert Placement.parse(text) == p
    for old, new, message in [
        ("nodes 3 to 6", "nodes 2 to 6", "expected them from 3 on"),
        ("stage right", "stage nobody", "nobody, expected workers"),
        ("worker left: cpu, 1 thread", "worker left: cpu, no thread", "line 2"),
        ("for latency", "for fun", "placement for 'fun'"),
    ]:
        assert old in text
        with pytest.raises(ParseError, match=message):
            Placement.parse(text.replace(old, new))


def test_a_placement_of_another_model_is_refused() -> None:
    p = cut_at(layers(), {0: PAIR[0], 3: PAIR[1]}, PAIR)

    with pytest.raises(ModelError, match="5 nodes to be placed, the placement is of 6"):
        placed(layers(5), p)
