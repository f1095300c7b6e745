"""Converters of Fourier transforms."""

from __future__ import annotations

from alpenglow.frontends.stablehlo.table import Made, Site, on
from alpenglow.ir.types import COMPLEX, PARTS
from alpenglow.ops.elementwise.complex import ViewAsComplex, ViewAsReal
from alpenglow.ops.sequence.signal import Dft, transformed
from alpenglow.ops.tensor.movement import stretch


@on("stablehlo.fft")
def fft(s: Site) -> Made:
    """Transforms along the last axes; a real transform has half a spectrum along the last one."""
    (x,), kind = s.required(1), s.choice("fft_type", "FFT", "IFFT", "RFFT", "IRFFT")
    length = s.numbers("fft_length")
    if not 1 <= len(length) <= min(3, x.type.rank):
        raise s.wrong(f"fft_length is {length}, expected 1 to 3 entries, at most {x.type.rank}")
    if (x.type.dtype in COMPLEX) == (kind == "RFFT"):
        wanted = "floats" if kind == "RFFT" else "complex numbers"
        raise s.wrong(f"the operand of {kind} is {x.type}, expected {wanted}")
    axes = list(range(x.type.rank - len(length), x.type.rank))
    if 0 in x.type.shape or 0 in length:
        return stretch(s.g, s.full(0, s.dtype(), ()), s.extents())
    if kind == "RFFT":
        pairs = s.reshaped(x, (*x.type.shape, 1))
        pairs = s.g(Dft(axes[-1], length[-1], onesided=True), pairs)
        return s.g(ViewAsComplex(), transformed(s.g, pairs, axes[:-1], False))
    pairs = s.g(ViewAsReal(), x)
    if kind != "IRFFT":
        return s.g(ViewAsComplex(), transformed(s.g, pairs, axes, kind == "IFFT"))
    pairs = transformed(s.g, pairs, axes[:-1], True)
    made = s.g(Dft(axes[-1], length[-1], True, True), pairs)
    shape = (*x.type.shape[:-1], length[-1])
    if made.type.dtype != PARTS[x.type.dtype]:
        real = PARTS[x.type.dtype]
        raise s.wrong(f"the result of {kind} is {made.type}, expected dtype {real}")
    return s.reshaped(made, shape)
