"""Converters for complex numbers and their parts."""

from __future__ import annotations

from alpenglow.frontends.numbers import as_complex, of_parts
from alpenglow.frontends.torch.convert.elementwise import sign
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ir.types import COMPLEX
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.complex import ComplexAbs, ComplexDiv, bare_parts
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Cos, Sin
from alpenglow.ops.reduction.reduction import filled


@on("aten.real.default", "prims.real.default")
def real(s: Site, x: Value) -> Made:
    return bare_parts(s.g, x)[0] if x.type.dtype in COMPLEX else x


@on("aten.imag.default", "prims.imag.default")
def imaginary(s: Site, x: Value) -> Made:
    return bare_parts(s.g, x)[1]


@on("aten.complex.default")
def complex_(s: Site, real: Value, imag: Value) -> Made:
    return of_parts(s.g, *s.broadcast(real, imag))


@on("aten.polar.default")
def polar(s: Site, abs: Value, angle: Value) -> Made:
    size, turn = s.broadcast(abs, angle)
    return of_parts(s.g, *(s.g(Mul(), size, s.g(f, turn)) for f in (Cos(), Sin())))


@on("aten.sgn.default")
def unit(s: Site, x: Value) -> Made:
    """Return x / |x|, and 0 of 0."""
    if x.type.dtype not in COMPLEX:
        return sign(s, x)
    size = s.g(ComplexAbs(), x)
    nothing = s.g(Equal(), size, filled(s.g, 0, size))
    # The gradient of a quotient that is not chosen is 0 if its divisor is not 0.
    divisor = as_complex(s.g, s.g(Where(), nothing, filled(s.g, 1, size), size))
    return s.g(Where(), nothing, filled(s.g, 0, x), s.g(ComplexDiv(), x, divisor))
