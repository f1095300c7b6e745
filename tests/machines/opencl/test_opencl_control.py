"""Loops and branches on devices of OpenCL: what the interpreter computes, and when they end."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import FeedError
from alpenglow.evaluate import evaluate
from control_cases import cases, chain

pytestmark = pytest.mark.opencl

CASES = cases()
TARGETS = ("opencl:intel", "opencl-gpu:intel")
TOLERANCE = 1e-5
"""Relative and absolute: devices have functions of their own."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_devices_compute_what_the_graph_says(name: str, target: str) -> None:
    exe = ag.compile(CASES[name].graph.copy(), target)
    for feeds in (*CASES[name].feeds, *CASES[name].feeds):
        expected = evaluate(CASES[name].graph, feeds)
        for output, y in exe.run(feeds).items():
            np.testing.assert_allclose(y, expected[output], TOLERANCE, TOLERANCE)


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_ends_in_which_an_index_is_out_of_range(target: str) -> None:
    exe = ag.compile(chain(), target)
    with pytest.raises(FeedError, match="index is 7"):
        exe.run({"start": np.array(6)})

    assert int(exe.run({"start": np.array(1)})["steps"]) == 5
