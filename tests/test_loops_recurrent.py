"""Compiled recurrent layers, where their operands are stretched or not a whole vector wide."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load
from fuzz import guard
from onnx_node import single


@pytest.mark.parametrize("units", [1, 2, 3, 5, 9])
@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_state_of_zeros_is_stretched_over_all_units(op: str, gates: int, units: int) -> None:
    rng = np.random.default_rng(units)
    x, w, r = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((3, 2, 4), (1, gates * units, 4), (1, gates * units, units))
    )
    model = single(op, [x, w, r], 14, 2, constants=(1, 2), hidden_size=units)
    g = load(model)
    expected = evaluate(g, {"x0": x})

    for name, y in guard.run(ag.compile(g, threads=1), {"x0": x}).items():
        np.testing.assert_allclose(y, expected[name], 1e-5, 1e-6)
