"""Nets that hear words, in integers: what LiteRT hears, and TFLite Micro, step by step."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontends.tflite.litert.written import run_steps
from tflite_micro.python.tflite_micro import runtime

import alpenglow as ag
import models
from alpenglow.frontends.tflite.roundings import ROUNDINGS
from alpenglow.ir.types import Array

STEPS = 48
WAKEWORDS = ("alexa", "hey_jarvis", "hey_mycroft", "okay_nabu")


def sounds() -> list[Array]:
    """Return spectra of steps: first what sweeps up and down, then noise."""
    random = np.random.default_rng(0)
    steps = []
    for k in range(STEPS):
        sweep = -128 + 40 * np.abs(np.sin(0.3 * np.arange(40) + 0.2 * k))
        low = sweep + random.integers(0, 30, (1, 3, 40)) if k < STEPS // 2 else (
            random.integers(-128, 128, (1, 3, 40))
        )  # fmt: skip
        steps.append(np.clip(low, -128, 127).astype(np.int8))
    return steps


@pytest.mark.models
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", WAKEWORDS)
def test_words_are_heard_as_litert_hears_them(name: str, rounding: str, no_cache: None) -> None:
    path = models.tflite_path(name)
    steps = sounds()
    wanted = run_steps(path.read_bytes(), [[x] for x in steps], rounding == "reference")
    session = ag.compile(path, rounding=rounding).session()

    heard = [session(x) for x in steps]

    assert [y.tolist() for y in heard] == [y.tolist() for (y,) in wanted]


@pytest.mark.models
@pytest.mark.parametrize("name", WAKEWORDS)
def test_words_are_heard_as_firmware_hears_them(name: str, no_cache: None) -> None:
    path = models.tflite_path(name)
    firmware = runtime.Interpreter.from_file(str(path))
    session = ag.compile(path, rounding="reference").session()

    for x in sounds():
        firmware.set_input(x, 0)
        firmware.invoke()
        assert np.array_equal(session(x), firmware.get_output(0))
