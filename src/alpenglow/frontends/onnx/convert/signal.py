"""Converters for spectra, windows and mel bands."""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.onnx.file.attributes import element_type
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ir.types import NUMBERS, TensorType
from alpenglow.ops.sequence.signal import CosineWindow, Dft, Stft, mel_weights
from alpenglow.ops.tensor.movement import Reshape

WINDOWS = {
    "HannWindow": (0.5, 0.5),
    "HammingWindow": (25 / 46, 21 / 46),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


@on("DFT", since=17)
def dft_along_attribute(s: Site) -> Made:
    return spectrum(s, s.attribute("axis", 1))


@on("DFT", since=20)
def dft(s: Site) -> Made:
    axis = -2 if s.optional(2) is None else s.single(2, s.ints(2))
    return spectrum(s, axis)


def spectrum(s: Site, axis: int) -> Value:
    """Return the Fourier transform of input 0, of the length that input 1 or the axis gives."""
    x = s.input(0)
    inverse, onesided = bool(s.attribute("inverse", 0)), bool(s.attribute("onesided", 0))
    rank = x.type.rank
    if not -rank <= axis < rank or axis % rank == rank - 1:
        raise s.wrong(f"axis is {axis}, expected an axis of {x.type} before the last")
    extent = x.type.shape[axis]
    length: Dim = 2 * (extent - 1) if inverse and onesided else extent
    if s.optional(1) is not None:
        length = s.single(1, s.dims(1))
    return s.g(Dft(axis % rank, length, inverse, onesided), x)


@on("STFT", since=17)
def stft(s: Site) -> Made:
    x, window = s.input(0), s.optional(2)
    if x.type.rank == 2:  # real numbers without an axis of their own, as ONNX Runtime takes them
        x = s.g(Reshape((*x.type.shape, 1)), x)
    if x.type.rank != 3:
        raise s.wrong(f"the signal is {x.type}, expected rank 3, or 2 of real numbers")
    if s.optional(3) is not None:
        length = s.single(3, s.dims(3))
    else:
        length = x.type.shape[1] if window is None else window.type.shape[0]
    onesided = bool(s.attribute("onesided", 1))
    return s.g(Stft(length, s.single(1, s.ints(1)), onesided), x, window)


@on("HannWindow", since=17)
@on("HammingWindow", since=17)
@on("BlackmanWindow", since=17)
def window(s: Site) -> Made:
    periodic = bool(s.attribute("periodic", 1))
    size = s.single(0, s.dims(0))
    return s.g(CosineWindow(size, WINDOWS[s.op_type], periodic, output_type(s)))


@on("MelWeightMatrix", since=17)
def mel_weight_matrix(s: Site) -> Made:
    bins, length, rate = (s.single(i, s.ints(i)) for i in range(3))
    low, high = (float(s.single(i, s.constant(i).reshape(-1).tolist())) for i in (3, 4))
    if bins < 0 or length < 1 or rate < 1 or not 0 <= low <= high < np.inf:
        raise s.wrong(
            f"num_mel_bins is {bins}, dft_length {length}, sample_rate {rate} and the edges {low} "
            f"and {high} Hz, expected bins ≥ 0, length and rate ≥ 1, 0 ≤ lower edge ≤ upper edge"
        )
    weights = mel_weights(bins, length, rate, low, high)
    return s.g.constant(weights.astype(TensorType(output_type(s), ()).numpy))


def output_type(s: Site) -> str:
    """Return the element type that the attribute output_datatype names."""
    dtype = element_type(s.attribute("output_datatype", 1), f"{s.op_type}: output_datatype")
    if dtype not in NUMBERS:
        raise s.wrong(f"output_datatype is {dtype}, expected numbers")
    return dtype
