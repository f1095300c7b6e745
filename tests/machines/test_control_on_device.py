"""Loops and branches on a device with memory of its own, with a part of each on the host."""

from __future__ import annotations

from itertools import chain as joined

import numpy as np
import pytest

from alpenglow.evaluate import evaluate
from alpenglow.ir.types import Array
from alpenglow.ops.control.jump import Jump
from alpenglow.runtime.call.calls import StopWord
from alpenglow.runtime.device.itinerary import Here, Hop, Move, itinerary
from alpenglow.runtime.device.remote import Constants, Remote
from control_cases import Case, Feeds, cases
from devices import Chip, for_chip
from region_cases import rnn

CASES = cases()
DRAWS = 6


def remote_on(chip: Chip, case: Case, ops: tuple[type, ...]) -> Remote:
    made = for_chip(case.graph.copy(), *ops)
    return Remote(made.program, made.table, chip, chip.install(made), Constants(made, chip), {})


def results(remote: Remote, feeds: Feeds) -> dict[str, Array]:
    program = remote.program
    types = {n: program.buffers[n].type for n in program.outputs}
    made = {n: np.empty(t.extents, t.numpy) for n, t in types.items() if t is not None}
    remote.run(feeds, made, StopWord())
    return {program.names.get(n, n): y for n, y in made.items()}


def operators(case: Case) -> list[type]:
    program = for_chip(case.graph.copy()).program
    every = joined.from_iterable(i.operators() for i in program.instrs())
    return sorted({type(op) for op in every if not isinstance(op, Jump)}, key=lambda t: t.__name__)


@pytest.mark.parametrize("name", CASES)
def test_whatever_a_chip_runs_the_bits_are_the_same(name: str) -> None:
    case, rng = CASES[name], np.random.default_rng(0)
    kinds = operators(case)
    draws = [rng.random(len(kinds)) < 0.5 for _ in range(DRAWS)]

    for drawn in (np.zeros(len(kinds), bool), np.ones(len(kinds), bool), *draws):
        ops = tuple(kind for kind, runs in zip(kinds, drawn, strict=True) if runs)
        remote = remote_on(Chip(), case, ops)
        for feeds in (*case.feeds, *case.feeds):
            expected = evaluate(case.graph, feeds)
            for output, y in results(remote, feeds).items():
                np.testing.assert_array_equal(y, expected[output], f"{output} with {ops}")


def test_of_a_loop_on_a_chip_the_flag_alone_is_copied_in_each_turn() -> None:
    case = CASES["scan"]
    made = for_chip(rnn(), *operators(case))
    legs = itinerary(made.program, made.table).legs
    # Two turns stand in a row, and behind them a jump past what only an odd number of them copies.
    hops = {k: leg for k, leg in enumerate(legs) if isinstance(leg, Hop)}
    before, odd, back, _ = hops
    for first, last in ((before, odd), (odd, back)):
        (flag,) = (leg for leg in legs[first + 1 : last] if isinstance(leg, Move))
        assert flag.to == "host"
    assert not any(isinstance(leg, Here) for leg in legs)
    assert hops[back].to == before + 1
