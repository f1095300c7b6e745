"""What is computed again where memory is limited, of programs that are made for it."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import MemoryLimitError
from alpenglow.ops.control.loop import Scan
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceMax
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.tensor.movement import Broadcast
from alpenglow.ops.tensor.order import TopK
from alpenglow.program.interpret import interpret
from alpenglow.program.recompute import recompute
from alpenglow.program.schedule import schedule
from alpenglow.program.stream_rows import arena_of


def chains(before: int, width: int = 256) -> ag.Graph:
    """Return a chain whose last value waits while something wide is made of it."""
    g = ag.Graph("chains")
    x = g.input("x", f"f64[{width}]")
    for _ in range(before):
        x = g(CumSum(0), x)
    y = g(Broadcast((4, width)), x)
    for _ in range(3):
        y = g(CumSum(0), y)
    g.output("y", g(Add(), x, g(ReduceMax((0,), False), y)))
    return g


@pytest.mark.parametrize("before", [1, 2, 20, 33])
def test_a_short_chain_is_run_again(before: int) -> None:
    free, one = schedule(chains(before)), 256 * 8
    again = recompute(free, 8 * one)
    x = np.random.default_rng(0).uniform(0, 1, 256)

    assert arena_of(free) == 9 * one and arena_of(again) == 8 * one
    assert len(list(again.instrs())) == len(list(free.instrs())) + before + 1  # a view of it
    np.testing.assert_array_equal(interpret(again, {"x": x})["y"], interpret(free, {"x": x})["y"])


def test_the_search_says_how_much_less_is_taken() -> None:
    free, seen = schedule(chains(20)), list[tuple[str, int, int]]()
    for limit in (8 * 256 * 8, 64):
        seen.clear()
        recompute(free, limit, lambda what, done, total: seen.append((what, done, total)))

        assert seen[0][:2] == ("saving KB of memory", 0)
        assert [done == total for _, done, total in seen] == [*[False] * (len(seen) - 1), True]


def test_what_cannot_be_made_again_is_tried_once() -> None:
    """Two values that the next two read each, and so on: there are 2^30 ways back to the first, and
    what makes that makes an output, too, so it is not repeated."""
    g = ag.Graph("ladder")
    a, places = g.add(TopK(0, 64), [g.input("x", "f32[64]")]).results
    g.output("places", places)
    b = g(CumSum(0), a)
    for _ in range(30):
        a, b = g(Add(), a, b), g(Mul(), a, b)
    wide = g(CumSum(0), g(Broadcast((8, 64)), a))
    g.output("y", g(Add(), g(Add(), a, b), g(ReduceMax((0,), False), g(CumSum(0), wide))))

    recompute(schedule(g), 64)


@pytest.mark.rest
def around_a_loop() -> ag.Graph:
    """Return a graph with a value that is read before a loop and behind it."""
    body = ag.Graph("body")
    _, h, w = (body.input(n, t) for n, t in (("i", "i64[]"), ("h", "f64[8,8]"), ("w", "f64[8,8]")))
    body.output("h", body(Tanh(), body(MatMul(), body(CumSum(0), h), w)))
    g = ag.Graph("around")
    x, w, v = g.input("x", "f64[32,8]"), g.input("w", "f64[8,8]"), g.input("v", "f64[8,32]")
    long = g(CumSum(0), x)
    g.output("y", g(MatMul(), long, g.add(Scan(4, 1), [g(MatMul(), v, long), w], [body]).output))
    return g


def test_a_value_that_waits_for_the_end_of_a_loop_is_made_again() -> None:
    g, random = around_a_loop(), np.random.default_rng(0)
    feeds = {name: random.uniform(-1, 1, v.type.extents) for name, v in g.inputs.items()}
    free = ag.compile(g, threads=1)
    most = free.artifact.program.arena - 8 * 8 * 8
    less = ag.compile(g, options=ag.Options(memory=most), threads=1)
    programs = [exe.artifact.program for exe in (free, less)]
    sums = [[i.op.name for i in p.instrs()].count("cum_sum") for p in programs]

    assert sums == [2, 3]
    assert less.artifact.program.arena <= most
    np.testing.assert_array_equal(less.run(feeds)["y"], free.run(feeds)["y"])
    with pytest.raises(MemoryLimitError, match="needs at least"):
        ag.compile(g, options=ag.Options(memory=64), threads=1)


def test_a_chain_of_thousands_is_not() -> None:
    """What would have to be run again before it may be as deep as it likes."""
    free = schedule(chains(3000, 16))
    again = recompute(free, 8 * 128)

    assert len(list(again.instrs())) == len(list(free.instrs()))
