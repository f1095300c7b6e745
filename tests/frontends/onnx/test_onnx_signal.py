"""Fourier transforms, windows and mel bands of ONNX, against its node tests and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import ModelError, TypeRuleError
from alpenglow.frontends.onnx import load
from node_cases import cases, check_cases
from onnx_node import Array, assert_close, ours, runtimes, single

CONSTANTS = {
    "DFT": (1, 2),
    "STFT": (1, 2, 3),
    "HannWindow": (0,),
    "HammingWindow": (0,),
    "BlackmanWindow": (0,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
}
"""Operators, and which of their operands must be known."""

NOISY = {"test_dft_inverse", "test_dft_inverse_opset19"}
"""Cases whose outputs are further from the exact numbers than their tolerance."""


def drawn(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def both(model: Any, inputs: list[Array | None], *feeds: Array) -> list[Array]:
    """Return what the interpreter and compiled code make of a model of one output."""
    exe = ag.compile(model, threads=1)
    assert all(entry.kernel for entry in exe.artifact.table)
    return [*ours(model, inputs), exe(*feeds)]


def paired(y: Array) -> Array:
    return np.stack([y.real, y.imag], axis=-1).astype(np.float32)


def close(expected: Array, actual: list[Array]) -> None:
    """Assert equality up to a few roundings of the largest element."""
    for y in actual:
        assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
        assert np.abs(y - expected).max() <= 2e-6 * np.abs(expected).max()


@pytest.mark.parametrize("op", CONSTANTS)
def test_the_node_tests_pass(op: str) -> None:
    check_cases([c for c in cases(op, CONSTANTS[op]) if c.name not in NOISY])


@pytest.mark.parametrize("n", [1, 7, 60, 512, 513, 521, 1000, 2048, 2 * 1031])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.sampled(3)
def test_spectra_of_any_length_are_exact(n: int, inverse: int) -> None:
    x = drawn(2, n, 2)
    z = x[..., 0].astype(np.float64) + 1j * x[..., 1]
    expected = np.fft.ifft(z) if inverse else np.fft.fft(z)
    model = single("DFT", [x], 17, axis=1, inverse=inverse)

    close(paired(expected), both(model, [x], x))


@pytest.mark.parametrize("n", [2, 9, 600, 601])
def test_real_signals_have_half_a_spectrum(n: int) -> None:
    x = drawn(3, n, 1)
    model = single("DFT", [x], 17, onesided=1)
    back = single("DFT", [drawn(3, n // 2 + 1, 2), np.array(n), np.array(1)], 20,
                  constants=[1, 2], onesided=1, inverse=1)  # fmt: skip
    half = paired(np.fft.rfft(x[..., 0].astype(np.float64)))

    close(half, both(model, [x], x))
    close(x, both(back, [half], half))


@pytest.mark.parametrize("length", [4, 9, 12])
@pytest.mark.parametrize("axis", [0, 2, -2])
def test_a_length_cuts_or_pads(length: int, axis: int) -> None:
    x = drawn(9, 2, 9, 1)
    model = single("DFT", [x, np.array(length), np.array(axis)], 20, constants=[1, 2])
    expected = np.fft.fft(x[..., 0].astype(np.float64), length, axis if axis >= 0 else -1)

    close(paired(expected), both(model, [x], x))


@pytest.mark.parametrize(("onesided", "parts"), [(0, 1), (1, 1), (0, 2)])
@pytest.mark.parametrize("windowed", [False, True])
def test_spectrograms_agree(onesided: int, parts: int, windowed: bool) -> None:
    x, window = drawn(2, 100, parts), np.hanning(16).astype(np.float32)
    inputs = [x, np.array(5), window if windowed else None, np.array(16)]
    model = single("STFT", inputs, 17, constants=[1, 3], onesided=onesided)
    feeds = [x, window] if windowed else [x]

    for y in both(model, inputs, *feeds):
        assert_close(runtimes(model, inputs), [y], 1e-4)


def test_spectrograms_of_numbers_without_an_axis_of_their_own_agree() -> None:
    inputs = [drawn(2, 100), np.array(5), np.hanning(16).astype(np.float32), np.array(16)]
    model = single("STFT", inputs, 17, constants=[1, 3])
    expected = runtimes(model, inputs)[:1]  # ONNX Runtime takes them, the reference does not

    for y in both(model, inputs, inputs[0], inputs[2]):
        assert_close(expected, [y], 1e-4)


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("to", [1, 10, 11])
def test_windows_agree(op: str, periodic: int, to: int) -> None:
    for size in (2, 10):
        inputs = [np.array(size)]
        model = single(op, inputs, 17, constants=[0], periodic=periodic, output_datatype=to)

        assert_close(runtimes(model, inputs), ours(model, []), 1e-4)


@pytest.mark.parametrize(("bins", "length", "low"), [(8, 64, 0), (40, 400, 20), (80, 512, 60)])
def test_mel_bands_agree(bins: int, length: int, low: float) -> None:
    inputs = [np.array(bins), np.array(length), np.array(16000), np.float32(low), np.float32(7600)]
    inputs = [np.asarray(x) for x in inputs]
    model = single("MelWeightMatrix", inputs, 17, constants=range(5))

    assert_close(runtimes(model, inputs), ours(model, []), 1e-4)


@pytest.mark.parametrize(
    ("op", "inputs", "constants", "attributes", "message"),
    [
        ("DFT", [drawn(2, 8, 3)], (), {}, "1 or 2"),
        ("DFT", [drawn(2, 8, 1)], (), {"axis": 2}, "axis"),
        ("DFT", [drawn(2, 8, 1), np.array(0)], (1,), {}, "length"),
        ("STFT", [drawn(2, 8, 1), np.array(0), None, np.array(4)], (1, 3), {}, "step 0, expected"),
        ("STFT", [drawn(2, 8, 1), np.array(1), None, np.array(9)], (1, 3), {}, "at most 8"),
        ("STFT", [drawn(2, 8, 1), np.array(1), drawn(5), np.array(4)], (1, 3), {}, "window"),
        ("HannWindow", [np.array([3, 4])], (0,), {}, "expected one"),
    ],
)
def test_what_does_not_fit_is_reported(
    op: str, inputs: list[Array | None], constants: Any, attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises((ModelError, TypeRuleError), match=message):
        load(single(op, inputs, 17, constants=constants, **attributes))
