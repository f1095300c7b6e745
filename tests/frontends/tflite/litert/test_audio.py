"""TensorFlow's custom operators on sound, beside LiteRT."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests.frontends.tflite.litert.test_landmarks import custom
from tests.frontends.tflite.litert.test_probes import difference
from tests.frontends.tflite.litert.written import run

import alpenglow as ag
from alpenglow.base.errors import ModelError
from alpenglow.ir.types import Array

RANDOM = np.random.default_rng(11)


def spectra(x: Array, size: int, stride: int, squared: bool) -> bytes:
    frames, bins = 1 + (len(x) - size) // stride, (1 << (size - 1).bit_length()) // 2 + 1
    options = {"window_size": size, "stride": stride, "magnitude_squared": squared}
    return custom("AudioSpectrogram", [x], (x.shape[1], frames, bins), options, version=1)


@pytest.mark.parametrize("squared", [False, True])
def test_spectra_equal_those_of_litert(squared: bool, no_cache: None) -> None:
    for size, stride, channels in itertools.product((16, 100, 512), (7, 16, 160), (1, 2)):
        x = RANDOM.uniform(-1, 1, (1000, channels)).astype(np.float32)
        model = spectra(x, size, stride, squared)
        assert not difference(ag.compile(model)(x), run(model, [x])[0])


def cepstra(x: Array, rate: Array, options: Mapping[str, Any]) -> bytes:
    shape = (*x.shape[:2], options["dct_coefficient_count"])
    return custom("Mfcc", [x, rate], shape, options, version=1)


def test_coefficients_equal_those_of_litert(no_cache: None) -> None:
    for bins, rate, (low, high), (bands, count) in itertools.product(
        (129, 257), (8000, 16000), ((20.0, 4000.0), (0.0, 3000.0), (300.5, 3700.0)),
        ((40, 13), (20, 20), (4, 1)),
    ):  # fmt: skip
        x = RANDOM.uniform(0, 9, (2, 5, bins)).astype(np.float32)
        x[0, 0] = 0
        options = {
            "upper_frequency_limit": high, "lower_frequency_limit": low,
            "filterbank_channel_count": bands, "dct_coefficient_count": count,
        }  # fmt: skip
        hertz = np.array([rate], np.int32)
        model = cepstra(x, hertz, options)
        wanted = run(model, [x, hertz])[0]
        made = ag.compile(model, constants={"x1": hertz})(x)
        assert not difference(made, wanted), (bins, rate, low, high, bands, count)


def test_what_does_not_fit_is_told() -> None:
    x = np.zeros((10, 1), np.float32)
    with pytest.raises(ModelError, match=r"window_size is 16 .*f32\[10,1\], expected 2 to 10"):
        options = {"window_size": 16, "stride": 4, "magnitude_squared": True}
        ag.load(custom("AudioSpectrogram", [x], (1, 1, 9), options, version=1))
    model = custom("AudioSpectrogram", [x], (1, 1, 9), {"stride": 2}, version=1)
    with pytest.raises(ModelError, match="custom_options lacks window_size, magnitude_squared"):
        ag.load(model)
