"""What is computed again where memory is limited, of programs that are made for it."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ops.arithmetic import Add
from alpenglow.ops.movement import Broadcast
from alpenglow.ops.reduction import ReduceMax
from alpenglow.ops.scan import CumSum
from alpenglow.program.interpret import interpret
from alpenglow.program.recompute import recompute
from alpenglow.program.roll import arena_of
from alpenglow.program.schedule import schedule


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


@pytest.mark.rest
def test_a_chain_of_thousands_is_not() -> None:
    """What would have to be run again before it may be as deep as it likes."""
    free = schedule(chains(3000, 16))
    again = recompute(free, 8 * 128)

    assert len(list(again.instrs())) == len(list(free.instrs()))
