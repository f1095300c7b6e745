"""Calls of PyTorch's operators by their results: what samples of them do not ask."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontends.torch.calls import graph_of_call, read_call

from alpenglow.evaluate import evaluate
from alpenglow.ir.types import Array


def run(line: str, *inputs: Array) -> Array:
    """Return the first result of a call."""
    graph = graph_of_call(read_call(line))
    return next(iter(evaluate(graph, dict(zip(graph.inputs, inputs, strict=True))).values()))


@pytest.mark.parametrize(("right", "expected"), [(False, [0, 1, 3, 6]), (True, [0, 3, 4, 6])])
def test_nan_is_behind_all_numbers_of_a_sorted_line(right: bool, expected: list[int]) -> None:
    line = np.array([1, 2, 2, 3, np.nan, np.nan], np.float32)
    values = np.array([0, 2, 3, np.nan], np.float32)

    places = run(
        f"aten.searchsorted.Tensor(sorted_sequence=f32[6], self=f32[4], right={right}) -> i64[4]",
        line, values,
    )  # fmt: skip

    np.testing.assert_array_equal(places, expected)
