"""Graphs with variables, as a streaming model has them: profiled in sessions, and quantized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.movement import Concat, Slice

RNG = np.random.default_rng(5)
WEIGHT = RNG.standard_normal((8, 4, 5)).astype(np.float32) / 4
FRAMES = [{"x": 3 * RNG.standard_normal((1, 4, 8)).astype(np.float32)} for _ in range(6)]


def streaming() -> ag.Graph:
    """Return a convolution over frames whose last four columns are kept for the next call."""
    g = ag.Graph("streaming")
    x = g.input("x", "f32[1,4,8]")
    past = g.variable("past", np.zeros((1, 4, 4), np.float32))
    joined = g(Concat(2), past, x, name="joined")
    g.assign("past", g(Slice((0, 0, 8), (1, 4, 4), (1, 1, 1)), joined))
    g.output("y", g(Conv(), joined, g.constant(WEIGHT, "w"), name="conv"))
    return g


def recurrent() -> ag.Graph:
    """Return a product by what the call before made."""
    g = ag.Graph("recurrent")
    x = g.input("x", "f32[16,16]")
    past = g.variable("past", np.zeros((16, 16), np.float32))
    weight = RNG.standard_normal((16, 16)).astype(np.float32) / 8
    from_past = g(MatMul(), past, g.constant(weight, "r"), name="from_past")
    y = g(MatMul(), x, g.constant(weight.T.copy(), "w"), name="from_x")
    y = g(Add(), from_past, y)
    g.assign("past", y)
    g.output("y", y)
    return g


def in_a_row(g: ag.Graph, frames: list[dict[str, Any]], target: str = "cpu") -> list[Any]:
    session = ag.compile(g, target).session()
    return [session.run(feeds)["y"] for feeds in frames]


def test_a_range_is_that_of_all_calls_of_a_session() -> None:
    g = streaming()
    profile = ag.profile_ranges(g, FRAMES)

    for name, columns in (("past", FRAMES[:-1]), ("joined", FRAMES)):
        seen = profile.ranges[name]
        wanted = np.concatenate([f["x"] for f in columns], 2)
        if name == "past":
            wanted = np.concatenate([f["x"][:, :, 4:] for f in columns], 2)
        assert (seen.low, seen.high) == pytest.approx((wanted.min(), wanted.max()))


@pytest.mark.parametrize("target", ["interpreter", "cpu"])
@pytest.mark.parametrize("weights_only", ["none", "int8"])
def test_a_quantized_graph_keeps_its_variables(weights_only: Any, target: str) -> None:
    g = streaming()
    profile = ag.profile_ranges(g, FRAMES) if weights_only == "none" else None
    quantized = ag.quantize(g, profile, ag.QuantOptions(weights_only=weights_only))
    expected = in_a_row(g, FRAMES, "interpreter")
    actual = in_a_row(quantized, FRAMES, target)

    assert list(quantized.initial) == ["past"]
    assert any(v.type.dtype == "i8" for v in quantized.constants())
    for y, wanted in zip(actual, expected, strict=True):
        assert np.abs(y - wanted).max() <= 0.03 * np.abs(wanted).max()


def test_what_a_variable_holds_is_stored_by_the_range_that_was_seen() -> None:
    rng = np.random.default_rng(6)
    frames = [{"x": rng.standard_normal((16, 16)).astype(np.float32)} for _ in range(6)]
    g = recurrent()
    options = ag.QuantOptions(convert_placeholders=True)
    for chosen in (ag.QuantOptions(), options):
        quantized = ag.quantize(g, ag.profile_ranges(g, frames), chosen)
        assert {n: str(v.type.dtype) for n, v in quantized.inputs.items()}["past"] == "f32"

    quantized = ag.quantize(g, ag.profile_ranges(g, frames))
    expected = in_a_row(g, frames, "interpreter")
    for y, wanted in zip(in_a_row(quantized, frames), expected, strict=True):
        assert np.abs(y - wanted).max() <= 0.05 * np.abs(wanted).max()


def test_the_weights_of_a_model_with_a_cache_that_grows_are_stored() -> None:
    g = ag.Graph("decoder")
    x = g.input("x", "f32[1,4,8]")
    past = g.growing_variable("past", "f32[1,4,P]", 2)
    joined = g(Concat(2), past, x)
    g.assign("past", joined)
    g.output("y", g(Conv(), joined, g.constant(WEIGHT, "w"), name="conv"))
    quantized = ag.quantize(g, options=ag.QuantOptions(weights_only="int8"))
    expected, actual = (
        [s.run(f)["y"] for f in FRAMES]
        for s in (ag.compile(m).session(64) for m in (g, quantized))
    )

    assert quantized.growing == g.growing
    for y, wanted in zip(actual, expected, strict=True):
        assert y.shape == wanted.shape
        assert np.abs(y - wanted).max() <= 0.03 * np.abs(wanted).max()
    with pytest.raises(UnsupportedError, match="its variables past grow") as caught:
        ag.profile_ranges(g, FRAMES)
    assert "quantize the model first" in caught.value.hint


def test_a_quantized_graph_with_variables_is_saved(tmp_path: Path) -> None:
    g = streaming()
    quantized = ag.quantize(g, ag.profile_ranges(g, FRAMES))
    ag.compile(quantized).save(tmp_path / "q.ago")
    session = ag.open(tmp_path / "q.ago").session()

    for y, wanted in zip(in_a_row(quantized, FRAMES), FRAMES, strict=True):
        assert (session.run(wanted)["y"] == y).all()
