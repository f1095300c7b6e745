"""Converters for TensorFlow's custom operators before nets that hear: spectra, and cepstra."""

from __future__ import annotations

import math

import numpy as np

from alpenglow.frontends.presume import fixed
from alpenglow.frontends.tflite.file.flexbuffer import numbers
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.arithmetic import Clip, Mul
from alpenglow.ops.elementwise.transcendental import Log, Sqrt
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.sequence.signal import Dft, Frames
from alpenglow.ops.tensor.movement import Transpose, stretch

LEAST = 1e-12
"""No sum of a band is less, before its logarithm."""


def chosen(s: Site, *names: str) -> list[int]:
    """Return options by name, cut to integers as in LiteRT; raise ModelError if one is missing."""
    options = numbers(s.step.payload.operator.custom_options())
    s.check_options(options, names)
    return [int(options[n]) for n in names]


@on("AudioSpectrogram", custom=True)
def audio_spectrogram(s: Site) -> Made:
    """Spectra of x[samples, channels] as [channels, frames, bins]: magnitudes, or their squares.

    A window is filled up with zeros to a power of two.
    """
    x = s.rank(0, 2)
    size, stride, squared = chosen(s, "window_size", "stride", "magnitude_squared")
    samples, channels = fixed(x.type.shape[0]), x.type.shape[1]
    if size < 2 or stride < 1 or samples < size:
        raise s.wrong(f"window_size is {size} and stride is {stride} for {x.type}, "
                      f"expected 2 to {samples} and at least 1")  # fmt: skip
    lines = s.reshaped(s.g(Transpose((1, 0)), x), (channels, samples, 1))
    frames = s.g(Frames(1, size, stride), lines)
    window = 0.5 - 0.5 * np.cos(np.arange(size) * (2 * math.pi / size))
    column = s.g.constant(window.astype(np.float32).reshape(size, 1))
    frames = s.g(Mul(), frames, stretch(s.g, column, frames.type.shape))
    spectrum = s.g(Dft(2, 1 << (size - 1).bit_length(), onesided=True), frames)
    power = s.g(ReduceSum((3,), False), s.g(Mul(), spectrum, spectrum))
    return power if squared else s.g(Sqrt(), power)


@on("Mfcc", custom=True)
def mfcc(s: Site) -> Made:
    """Cepstral coefficients of squared spectra x[…, bins]: the cosine transform of logarithms of
    what is in bands, which are wider the higher they are."""
    x, bins, rate = s.rank(0, 3), fixed(s.input(0).type.shape[-1]), s.number(1)
    high, low, bands, count = chosen(
        s, "upper_frequency_limit", "lower_frequency_limit", "filterbank_channel_count",
        "dct_coefficient_count",
    )  # fmt: skip
    if bins < 2 or rate < 1:
        raise s.wrong(f"spectra are {x.type} at {rate} Hz, expected at least 2 bins and 1 Hz")
    if not 0 <= low < high:
        raise s.wrong(f"lower_frequency_limit is {low} and upper_frequency_limit is {high}, "
                      "expected at least 0, and the upper limit above the lower one")  # fmt: skip
    if not 0 < count <= bands:
        raise s.wrong(f"dct_coefficient_count is {count}, expected 1 to {bands}, "
                      "the filterbank_channel_count")  # fmt: skip
    flat = s.reshaped(x, (x.type.shape[0] * x.type.shape[1], bins))
    sums = s.g(MatMul(), s.g(Sqrt(), flat), s.g.constant(filters(bins, rate, bands, low, high)))
    logs = s.g(Log(), s.g(Clip(low=LEAST), sums))
    angles = np.outer(np.arange(bands) + 0.5, np.arange(count)) * (math.pi / bands)
    cosines = math.sqrt(2 / bands) * np.cos(angles)
    made = s.g(MatMul(), logs, s.g.constant(cosines.astype(np.float32)))
    return s.reshaped(made, (*x.type.shape[:-1], count))


def filters(bins: int, rate: int, bands: int, low: float, high: float) -> Array:
    """Return how much of each bin is in each band [bins, bands]: triangles, equally wide in mel."""

    def mel(hertz: Array | float) -> Array:
        return np.asarray(1127 * np.log1p(np.asarray(hertz) / 700))

    width = 0.5 * rate / (bins - 1)
    steps = np.arange(bands + 2)
    edges = mel(low) + steps * ((mel(high) - mel(low)) / (bands + 1))
    at = mel(np.arange(bins) * width)
    first, last = int(1.5 + low / width), int(high / width)
    within = (np.arange(bins) >= first) & (np.arange(bins) <= last)
    below = np.clip(np.searchsorted(edges[1 : bands + 1], at, "left"), 0, bands)
    share = (edges[below + 1] - at) / (edges[below + 1] - edges[below])
    table = np.zeros((bins, bands + 1))
    rows = np.nonzero(within)[0]
    table[rows, below[rows]] = 1 - share[rows]
    falling = rows[below[rows] > 0]
    table[falling, below[falling] - 1] = share[falling]
    return table[:, :bands].astype(np.float32)
