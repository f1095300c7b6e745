"""DynamicQuantizeLSTM of com.microsoft, against ONNX Runtime: attributes and operands drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.frontends.onnx import load
from onnx_domains import assert_close, both, check_open, one_node, runtime
from peer_bytes import spared

Array = NDArray[Any]

MS = "com.microsoft"
WEIGHTS = (1, 2, 8, 9, 10, 11)
CURVES = ["HardSigmoid", "Softsign", "Relu"]


def layer(
    seed: int, direction: str, constants: tuple[int, ...] = WEIGHTS, empty: bool = False
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of one layer and its inputs, drawn; `empty` allows sequences of no steps."""
    rng = np.random.default_rng(seed)

    def real(*shape: int) -> Array:
        return rng.normal(0, 1, shape).astype(np.float32)

    def grid(size: int, signed: bool) -> list[Array]:
        """Return scales and zero points: ONNX Runtime wants those of columns to be all alike."""
        columns = rng.random() < 0.5
        shape = (ways, 4 * units) if columns else (ways,)
        middle = 0 if signed else 128
        zeros = (
            middle if rng.random() < 0.5 or (signed and columns) else middle + rng.integers(-9, 9)
        )
        scales = rng.uniform(0.2, 1, shape) * 0.01 / np.sqrt(size)
        return [scales.astype(np.float32), np.full(shape, zeros, np.int8 if signed else np.uint8)]

    ways, signed = 2 if direction == "bidirectional" else 1, rng.random() < 0.5
    steps, batch, size = (int(rng.integers(1, most)) for most in (7, 6, 20))
    units = int(rng.choice([1, 3, 8, 17, 40]))
    low, high = (-128, 128) if signed else (0, 256)
    x = (real(steps, batch, size) * rng.choice([0.1, 5]) + rng.choice([-3, 0, 3])).astype(
        np.float32
    )
    w, r = (
        spared(
            rng.integers(low, high, (ways, n, 4 * units)).astype(np.int8 if signed else np.uint8)
        )
        for n in (size, units)
    )
    some = {
        3: real(ways, 8 * units), 4: rng.integers(0 if empty else 1, steps + 1, batch, np.int32),
        5: real(ways, batch, units), 6: real(ways, batch, units), 7: real(ways, 3 * units),
    }  # fmt: skip
    given = [some[i] if rng.random() < 0.5 else None for i in range(3, 8)]
    more: dict[str, Any] = {}
    if rng.random() < 0.3:
        more["input_forget"] = 1
    if rng.random() < 0.3:
        more["clip"] = 0.7
    if rng.random() < 0.3:
        more |= {"activations": CURVES * ways, "activation_alpha": [0.2] * ways,
                 "activation_beta": [0.5] * ways}  # fmt: skip
    operands = [x, w, r, *given, *grid(size, signed), *grid(units, signed)]
    model = one_node(MS, "DynamicQuantizeLSTM", operands, 3, constants, direction=direction,
                     hidden_size=units, **more)  # fmt: skip
    feeds = {f"x{i}": a for i, a in enumerate(operands) if a is not None and i not in constants}
    return model, feeds


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.sampled(3)
def test_layers_agree_with_onnx_runtime_step_by_step(direction: str, seed: int) -> None:
    model, feeds = layer(seed, direction)
    expected = runtime(model, feeds)

    for actual in both(model, feeds):
        assert_close(expected, actual, 1e-5, 1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_weights_may_be_computed(seed: int) -> None:
    model, feeds = layer(seed, "bidirectional", ())
    expected = runtime(model, feeds)

    actual = ag.compile(load(model), threads=1).run(feeds)
    assert_close(expected, list(actual.values()), 1e-5, 1e-5)


@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_extents_may_be_open(direction: str) -> None:
    model, feeds = layer(3, direction)
    batch = {"x4": {0: "B"}, "x5": {1: "B"}, "x6": {1: "B"}}

    check_open(model, feeds, {"x0": {0: "T", 1: "B"}, **batch})


def test_a_sequence_of_no_steps_keeps_its_initial_state() -> None:
    # ONNX Runtime gives zeros: as with LSTM, its states of such sequences are another matter.
    seeds = (s for s in range(99) if 0 in layer(s, "forward", empty=True)[1].get("x4", ()))
    model, feeds = layer(next(seeds), "forward", empty=True)
    expected, h, c = runtime(model, feeds)

    for y, last, cell in both(model, feeds):
        lasting = feeds["x4"] > 0
        assert_close([expected, h[:, lasting], c[:, lasting]],
                     [y, last[:, lasting], cell[:, lasting]], 1e-5, 1e-5)  # fmt: skip
