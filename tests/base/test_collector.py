"""Python's collector of cycles rests while graphs are made, and nothing is left for it after."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

import alpenglow as ag
from alpenglow.base.memory import uncollected
from alpenglow.ir.graph import Node
from residual_model import small

SHAPES = {"x": (1, 3, 8, 8)}


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was_on else gc.disable)()


def nodes() -> int:
    return sum(isinstance(o, Node) for o in gc.get_objects())


def test_the_collector_rests_while_a_model_is_compiled() -> None:
    states = []
    ag.compile(
        small(),
        shapes=SHAPES,
        options=ag.Options(after=lambda p, ir: states.append(gc.isenabled())),
    )

    assert states and not any(states)
    assert gc.isenabled()


def test_after_an_error_it_goes_on() -> None:
    with pytest.raises(ag.errors.ModelError):
        ag.compile(small(), shapes={"y": (1,)})

    assert gc.isenabled()


def test_who_has_switched_it_off_finds_it_off() -> None:
    gc.disable()
    ag.compile(small(), shapes=SHAPES)

    assert not gc.isenabled()


def test_it_rests_until_the_last_thread_has_compiled() -> None:
    begun, end = threading.Event(), threading.Event()

    def other() -> None:
        with uncollected():
            begun.set()
            end.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait(60)
    with uncollected():
        pass
    assert not gc.isenabled()
    end.set()
    thread.join()

    assert gc.isenabled()


def test_compiling_leaves_no_nodes_behind() -> None:
    model = small()
    compiled = ag.compile(model, shapes=SHAPES)
    del compiled
    gc.collect()
    before = nodes()
    kept = [ag.compile(model, shapes=SHAPES) for _ in range(3)]
    each = (nodes() - before) / len(kept)
    kept.clear()

    # What an executable keeps of a graph are fused regions, in cycles of their own.
    assert each < 10


@pytest.mark.slow
def test_what_is_dropped_later_does_not_pile_up() -> None:
    graph = ag.load(small())  # open extents: an executable holds its graph
    gc.collect()
    each, before, most = len(graph.nodes), nodes(), 0  # other tests keep some, too
    for i in range(2000):
        ag.compile(graph.copy())
        most = most if i % 20 else max(most, nodes() - before)

    assert most < 1200 * each
