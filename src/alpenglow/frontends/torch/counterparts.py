"""Operators on numbers of any kind: of complex ones by what stands for them in `ops.complex`."""

from __future__ import annotations

from collections.abc import Mapping

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.complex_functions import FUNCTIONS
from alpenglow.frontends.torch.table import Operand, Site
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, HALVES
from alpenglow.ops import arithmetic, comparison, complex, logic, transcendental

COUNTERPARTS: Mapping[type[Op], Op] = {
    arithmetic.Add: complex.ComplexAdd(),
    arithmetic.Sub: complex.ComplexSub(),
    arithmetic.Mul: complex.ComplexMul(),
    arithmetic.Div: complex.ComplexDiv(),
    arithmetic.Pow: complex.ComplexPow(),
    arithmetic.Neg: complex.ComplexNeg(),
    arithmetic.Abs: complex.ComplexAbs(),
    transcendental.Exp: complex.ComplexExp(),
    transcendental.Log: complex.ComplexLog(),
}
"""Operators on reals, and those of the same meaning on complex numbers."""


def applied(s: Site, op: Op, *xs: Value) -> Value:
    """Apply an operator to values of one type; raise UnsupportedError if it has no complex ones."""
    if xs[0].type.dtype not in COMPLEX:
        return s.g(op, *xs)
    if isinstance(op, comparison.Equal):
        real, imaginary = (s.g(op, *parts) for parts in zip(
            *(complex.bare_parts(s.g, x) for x in xs), strict=True))  # fmt: skip
        return s.g(logic.BitAnd(), real, imaginary)
    if type(op) in FUNCTIONS:
        return of_parts(s, *FUNCTIONS[type(op)](s.g, _parts(s, xs[0])))
    if type(op) not in COUNTERPARTS:
        raise UnsupportedError(f"{op.name} of complex numbers")
    return s.g(COUNTERPARTS[type(op)], *xs)


def _parts(s: Site, x: Value) -> tuple[Value, Value]:
    real, imaginary = complex.bare_parts(s.g, x)
    return real, imaginary


def of_parts(s: Site, real: Value, imaginary: Value) -> Value:
    """Return the complex numbers of these parts."""
    shape = (*real.type.shape, 1)
    return complex.joined(s.g, s.reshaped(real, shape), s.reshaped(imaginary, shape))


def calculated(s: Site, op: Op, *xs: Operand, dtype: str = "") -> Value:
    """Apply an operator to operands in `dtype` or the one they share, stretched to the result."""
    return applied(s, op, *s.operands(*xs, dtype=dtype))


def wide(dtype: str) -> str:
    """Return the element type that a chain of operators is computed in: f32 for short floats."""
    return "f32" if dtype in HALVES else dtype
