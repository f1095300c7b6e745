"""Converters for factors of matrices: orthogonal ones, eigenvalues and singular values."""

from __future__ import annotations

import numpy as np

from alpenglow.autodiff import custom_gradient
from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.extras.linalg.factorization import Eig, Eigh, Svd
from alpenglow.extras.linalg.reflections import Qr, Reflect, Reflected
from alpenglow.extras.linalg.torch.convert_solving import adjoined
from alpenglow.frontends.movement import sliced
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.dims import known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import COMPLEX, DTYPES
from alpenglow.ops.elementwise.algebra import adjoint, minus, plus, product
from alpenglow.ops.elementwise.arithmetic import Abs, Maximum, Mul, Reciprocal
from alpenglow.ops.elementwise.comparison import Greater
from alpenglow.ops.elementwise.complex import ComplexMatMul, ComplexMul
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceMax
from alpenglow.ops.tensor.movement import stretch


@on("aten.linalg_qr.default")
def qr(s: Site, A: Value, mode: str = "reduced") -> Made:
    if mode not in ("reduced", "complete", "r"):
        raise ModelError(f"qr: mode is '{mode}', expected reduced, complete or r")
    q, r = s.g.add(Qr(mode == "complete"), [A]).results
    return [nothing(s, 0) if mode == "r" else q, r]


def nothing(s: Site, i: int) -> Value | None:
    """Return a tensor without elements for a result i that was not asked for."""
    return s.filled(0, s.stated(i)) if s.is_read(i) else None


@on("aten.geqrf.default")
def geqrf(s: Site, x: Value) -> Made:
    return s.g.add(Reflect(), [x]).results


@on("aten.linalg_householder_product.default")
def householder_product(s: Site, input: Value, tau: Value) -> Made:
    return s.g(Reflected(), input, tau)


@on("aten.ormqr.default")
def ormqr(
    s: Site, x: Value, input2: Value, input3: Value, left: bool = True, transpose: bool = False
) -> Made:
    scales = input2.type.shape[-1]  # of columns behind as many, LAPACK reads nothing
    q = s.g(Reflected(True), sliced(s.g, x, x.type.rank - 1, 0, scales), input2)
    q = adjoined(s, q) if transpose else q
    return times(s, q, input3) if left else times(s, input3, q)


@on("aten._linalg_svd.default")
def svd(
    s: Site, A: Value, full_matrices: bool = False, compute_uv: bool = True,
    driver: str | None = None,
) -> Made:  # fmt: skip
    u, values, vh = s.g.add(Svd(full_matrices and compute_uv), [A]).results
    return [u, values, vh] if compute_uv else [nothing(s, 0), values, nothing(s, 2)]


@on("aten._linalg_eigh.default")
def eigh(s: Site, A: Value, UPLO: str = "L", compute_v: bool = True) -> Made:
    values, vectors = s.g.add(Eigh(UPLO.upper() == "U"), [A]).results
    return [values, vectors if compute_v else nothing(s, 1)]


@on("aten.linalg_eig.default")
def eig(s: Site, x: Value) -> Made:
    return s.g.add(Eig(), [x]).results


@on("aten._linalg_eigvals.default", "aten.linalg_eigvals.default")
def eigenvalues(s: Site, x: Value) -> Made:
    return s.g.add(Eig(), [x]).results[0]


@on("aten.linalg_pinv.atol_rtol_tensor")
def pseudo_inverse(
    s: Site, x: Value, atol: Value | None = None, rtol: Value | None = None,
    hermitian: bool = False,
) -> Made:  # fmt: skip
    """v / s uᵀ by the singular values of x = u s vᵀ that are not small."""
    if 0 in x.type.shape:
        return s.filled(0, s.result)
    if hermitian:
        signed, u = s.g.add(Eigh(), [x]).results
        right, values = u, s.g(Abs(), signed)
    else:
        u, values, vh = s.g.add(Svd(), [x]).results
        signed, right = values, adjoined(s, vh)
    large = s.g(Greater(), values, least_counted(s, x, values, atol, rtol))
    one = s.filled(1, values.type)
    shares = s.g(Where(), large, s.g(Reciprocal(), s.g(Where(), large, signed, one)),
                 s.filled(0, values.type))  # fmt: skip
    y = times(s, by_column(s, right, shares), adjoined(s, u))
    return custom_gradient(s.g, y, [x, y], _back_from_inverse)


def _back_from_inverse(b: Graph, dy: Value, x: Value, y: Value) -> tuple[Value, None]:
    """Return the gradient of matrices x whose pseudo-inverses are y, where their rank stays.

    That of the singular values and vectors is not determined where values are equal, as are all
    that are 0 (Golub and Pereyra, The Differentiation of Pseudo-Inverses, 1973).
    """
    back, dback = adjoint(b, y), adjoint(b, dy)
    direct = product(b, back, product(b, dy, back))
    beside = product(b, dback, product(b, y, back))
    beside = minus(b, beside, product(b, x, product(b, y, beside)))
    above = product(b, product(b, back, y), dback)
    above = minus(b, above, product(b, product(b, above, y), x))
    return minus(b, plus(b, beside, above), direct), None


def least_counted(
    s: Site, x: Value, values: Value, atol: Value | None, rtol: Value | None
) -> Value:  # fmt: skip
    """Return the size that a value must be above in order to count, for each of them."""
    part = values.type.dtype
    last = values.type.rank - 1
    greatest = s.g(ReduceMax((last,)), values)
    batch = greatest.type.shape

    def limit(v: Value) -> Value:
        return stretch(s.g, s.reshaped(s.cast(v, part), (*v.type.shape, 1)), batch)

    if not all(map(known, x.type.shape[-2:])):
        raise UnsupportedError(
            f"dynamic rows or columns of {x.type} are not supported; supported: fixed dimensions"
        )
    epsilon = float(np.finfo(DTYPES[part]).eps) * max(int(d) for d in x.type.shape[-2:])
    relative = limit(rtol) if rtol is not None else s.filled(epsilon, greatest.type)
    if atol is None:
        bound = s.g(Mul(), relative, greatest)
    else:
        absolute, zero = limit(atol), s.filled(0, greatest.type)
        if rtol is None:
            relative = s.g(Where(), s.g(Greater(), absolute, zero), zero, relative)
        bound = s.g(Maximum(), absolute, s.g(Mul(), relative, greatest))
    return stretch(s.g, bound, values.type.shape)


def by_column(s: Site, x: Value, factors: Value) -> Value:
    """Return matrices with each column times a real factor."""
    *outer, columns = factors.type.shape
    wide = stretch(s.g, s.reshaped(factors, (*outer, 1, columns)), x.type.shape)
    if x.type.dtype not in COMPLEX:
        return s.g(Mul(), x, wide)
    return s.g(ComplexMul(), x, s.cast(wide, x.type.dtype))


def times(s: Site, a: Value, b: Value) -> Value:
    """Return the products of matrices."""
    return s.g(ComplexMatMul() if a.type.dtype in COMPLEX else MatMul(), a, b)
