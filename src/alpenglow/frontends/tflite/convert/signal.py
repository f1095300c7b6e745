"""Converters for Fourier transforms and complex numbers."""

from __future__ import annotations

from alpenglow.frontends.presume import Needed
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.dims import known
from alpenglow.ops.elementwise.complex import ComplexAbs, ViewAsComplex, bare_parts
from alpenglow.ops.sequence.signal import Dft


@on("RFFT2D")
def rfft2d(s: Site) -> Made:
    """The transform along the last two axes, of which half of the last is kept.

    Axes are cut to the lengths that are asked for, or filled up with zeros.
    """
    x, lengths = s.input(0), s.ints(1)
    rank = x.type.rank
    if rank < 2 or len(lengths) != 2 or min(lengths) < 1:
        raise s.wrong(f"input is {x.type} and fft_length is {lengths}, "
                      "expected rank 2 or more and 2 entries of at least 1")  # fmt: skip
    if not all(map(known, x.type.shape[-2:])):
        raise Needed("")
    numbers = s.reshaped(x, (*x.type.shape, 1))
    rows = s.g(Dft(rank - 1, lengths[1], onesided=True), numbers)
    return s.g(ViewAsComplex(), s.g(Dft(rank - 2, lengths[0]), rows))


@on("REAL")
def real(s: Site) -> Made:
    return bare_parts(s.g, s.input(0))[0]


@on("IMAG")
def imaginary(s: Site) -> Made:
    return bare_parts(s.g, s.input(0))[1]


@on("COMPLEX_ABS")
def complex_abs(s: Site) -> Made:
    return s.g(ComplexAbs(), s.input(0))
