"""Converters for complex numbers and their parts."""

from __future__ import annotations

from alpenglow.frontends.numbers import of_parts
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ir.types import COMPLEX
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.elementwise.complex import bare_parts
from alpenglow.ops.elementwise.transcendental import Cos, Sin


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
