"""Arithmetic of values that may be real or complex, each operation written once for both.

The gradient by a complex number has for parts the gradients by its parts, as in PyTorch; so the
adjoint, the conjugate transpose, stands where reals have the transpose.
"""

from __future__ import annotations

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul, Neg, Sub
from alpenglow.ops.elementwise.complex import (
    ComplexAdd,
    ComplexDiv,
    ComplexMatMul,
    ComplexMul,
    ComplexNeg,
    ComplexSub,
    Conjugate,
    bare_parts,
    joined,
)
from alpenglow.ops.product.contraction import MatMul, turned
from alpenglow.ops.reduction.reduction import filled
from alpenglow.ops.tensor.movement import append_axes

BINARY: dict[type[Op], tuple[Op, Op]] = {
    Add: (Add(), ComplexAdd()),
    Sub: (Sub(), ComplexSub()),
    Mul: (Mul(), ComplexMul()),
    Div: (Div(), ComplexDiv()),
}
"""Elementwise operators: on reals, and on complex numbers."""


def plus(b: Graph, x: Value, y: Value) -> Value:
    return elementwise(b, Add, x, y)


def minus(b: Graph, x: Value, y: Value) -> Value:
    return elementwise(b, Sub, x, y)


def times(b: Graph, x: Value, y: Value) -> Value:
    return elementwise(b, Mul, x, y)


def over(b: Graph, x: Value, y: Value) -> Value:
    return elementwise(b, Div, x, y)


def negative(b: Graph, x: Value) -> Value:
    return b(ComplexNeg() if x.type.dtype in COMPLEX else Neg(), x)


def elementwise(b: Graph, op: type[Op], x: Value, y: Value) -> Value:
    """Return x op y; if x is complex and y is not, y is made complex."""
    if x.type.dtype in COMPLEX:
        return b(BINARY[op][1], x, as_elements(b, y, x.type.dtype))
    return b(BINARY[op][0], x, y)


def as_elements(b: Graph, x: Value, dtype: str) -> Value:
    """Return reals as what may be complex."""
    if x.type.dtype == dtype:
        return x
    pairs = append_axes(b, x, 1)
    return joined(b, pairs, filled(b, 0, pairs))


def product(b: Graph, x: Value, y: Value) -> Value:
    """Return the products of matrices."""
    return b(ComplexMatMul() if x.type.dtype in COMPLEX else MatMul(), x, y)


def conjugate(b: Graph, x: Value) -> Value:
    return b(Conjugate(), x) if x.type.dtype in COMPLEX else x


def adjoint(b: Graph, x: Value) -> Value:
    """Return the transposes of matrices, conjugate if they are complex."""
    return conjugate(b, turned(b, x))


def real_part(b: Graph, x: Value) -> Value:
    return bare_parts(b, x)[0] if x.type.dtype in COMPLEX else x
