"""Converters for systems of linear equations, and what is made of factors of matrices."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.extras.linalg.factorization import Cholesky
from alpenglow.extras.linalg.indefinite import Ldl, SolveLdl
from alpenglow.extras.linalg.solving import Lu, MatrixExp, SolveTriangular, Swaps
from alpenglow.frontends.movement import permuted, sliced
from alpenglow.frontends.numbers import wide
from alpenglow.frontends.shapes import widest
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.dims import Dim, smaller
from alpenglow.ir.graph import Value
from alpenglow.ir.types import COMPLEX, DTYPES
from alpenglow.ops.elementwise.arithmetic import Abs, Mul, Neg, Sign
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.complex import Conjugate
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Log
from alpenglow.ops.reduction.reduction import ReduceProd, ReduceSum
from alpenglow.ops.tensor.gather import GatherElements
from alpenglow.ops.tensor.generate import Eye, Range
from alpenglow.ops.tensor.movement import Trilu, stretch


@on("aten._linalg_det.default")
def det(s: Site, A: Value) -> Made:
    factors_unread(s, 1, 2)
    diagonal, sign = decomposed(s, A)
    return [s.g(Mul(), s.g(ReduceProd((A.type.rank - 2,), False), diagonal), sign), None, None]


@on("aten._linalg_slogdet.default")
def slogdet(s: Site, A: Value) -> Made:
    factors_unread(s, 2, 3)
    diagonal, sign = decomposed(s, A)
    axes = (A.type.rank - 2,)
    signs = s.g(ReduceProd(axes, False), s.g(Sign(), diagonal))
    logs = s.g(ReduceSum(axes, False), s.g(Log(), s.g(Abs(), diagonal)))
    return [s.g(Mul(), signs, sign), logs, None, None]


def factors_unread(s: Site, *results: int) -> None:
    """Raise UnsupportedError if factors are read: PyTorch may factor the transpose."""
    if any(s.is_read(i) for i in results):
        raise UnsupportedError("results LU and pivots are not supported; supported: other results")


def decomposed(s: Site, x: Value) -> tuple[Value, Value]:
    """Return the diagonal of the triangular factor of x, and the sign of its permutation."""
    if x.type.dtype in COMPLEX:
        raise UnsupportedError(f"dtype {x.type.dtype} is not supported; supported: f32 and f64")
    factors, pivots, _ = s.g.add(Lu(), [x]).results
    diagonal = diagonal_of(s, factors)
    count = pivots.type.shape[-1]
    rows = stretch(s.g, s.g(Range(count, 1, 1, "i32")), pivots.type.shape)
    stays = s.g(Equal(), pivots, rows)
    one = s.filled(1, diagonal.type)
    signs = s.g(Where(), stays, one, s.g(Neg(), one))
    return diagonal, s.g(ReduceProd((x.type.rank - 2,), False), signs)


def diagonal_of(s: Site, x: Value) -> Value:
    """Return the diagonals of square matrices."""
    *outer, n, _ = x.type.shape
    at = stretch(s.g, s.reshaped(s.g(Range(n)), (n, 1)), (*outer, n, 1))
    return s.reshaped(s.g(GatherElements(x.type.rank - 1), x, at), (*outer, n))


@on("aten.linalg_inv_ex.default")
def inverse(s: Site, A: Value, check_errors: bool = False) -> Made:
    return inverse_of(s, A, check_errors)


def inverse_of(s: Site, A: Value, check_errors: bool) -> tuple[Value, Value]:
    """Return inverses, and what says of each if there is one."""
    factors, pivots, singular = s.g.add(Lu(), [A]).results
    unit = stretch(s.g, s.cast(s.g(Eye(A.type.shape[-1], A.type.shape[-1])), A.type.dtype),
                   A.type.shape)  # fmt: skip
    y = by_factors(s, factors, pivots, unit)
    return checked(s, y, singular, check_errors)


@on("aten.linalg_inv.default")
def whole_inverse(s: Site, A: Value) -> Made:
    return inverse_of(s, A, True)[0]


@on("aten.inverse.default")
def old_inverse(s: Site, x: Value) -> Made:
    return inverse_of(s, x, True)[0]


@on("aten._linalg_solve_ex.default")
def solve(s: Site, A: Value, B: Value, left: bool = True, check_errors: bool = False) -> Made:
    factors_unread(s, 1, 2)
    y, info = solved(s, A, B, left, check_errors)
    return [y, None, None, info]


@on("aten.linalg_solve.default")
def whole_solve(s: Site, A: Value, B: Value, left: bool = True) -> Made:
    return solved(s, A, B, left, True)[0]


def solved(
    s: Site, A: Value, B: Value, left: bool, check_errors: bool
) -> tuple[Value, Value]:  # fmt: skip
    """Return solutions, and what says of each system if there is one."""
    is_vector = B.type.rank == 1 or B.type.shape == A.type.shape[:-1]
    b = s.reshaped(B, (*B.type.shape, 1)) if is_vector else B
    shape = widest([A.type.shape[:-2], b.type.shape[:-2]])
    a = stretch(s.g, A if left else transposed(s, A), (*shape, *A.type.shape[-2:]))
    columns = b if left or is_vector else transposed(s, b)
    columns = stretch(s.g, columns, (*shape, *columns.type.shape[-2:]))
    factors, pivots, singular = s.g.add(Lu(), [a]).results
    y = by_factors(s, factors, pivots, columns)
    y = y if left or is_vector else transposed(s, y)
    return checked(s, s.reshaped(y, s.result.shape), singular, check_errors)


def checked(s: Site, y: Value, info: Value, check_errors: bool) -> tuple[Value, Value]:
    """Return results and what says of each matrix if there is one: if all must be, held to it."""
    if not check_errors:
        return y, info
    info = s.within(info, 0, 0, "info (the step that failed, 0 for none)")
    batch = info.type.shape
    behind = (1,) * (y.type.rank - len(batch))
    held = s.g(Equal(), info, s.filled(0, info.type))
    held = stretch(s.g, s.reshaped(held, (*batch, *behind)), y.type.shape)
    return s.g(Where(), held, y, s.filled(0, y.type)), info


def by_factors(s: Site, factors: Value, pivots: Value, b: Value) -> Value:
    """Return y of a y = b, where a is known by its factors and pivots."""
    moved = rows(s, b, s.g(Swaps(b.type.shape[-2]), pivots))
    y = s.g(SolveTriangular(False, True), factors, moved)
    return s.g(SolveTriangular(True), factors, y)


def by_turned_factors(s: Site, factors: Value, pivots: Value, b: Value) -> Value:
    """Return y of aᵀ y = b, where a is known by its factors and pivots."""
    turned = transposed(s, factors)
    y = s.g(SolveTriangular(False), turned, b)
    y = s.g(SolveTriangular(True, True), turned, y)
    return rows(s, y, s.g(Swaps(b.type.shape[-2], True), pivots))


def rows(s: Site, x: Value, order: Value) -> Value:
    """Return matrices with their rows in an order."""
    *outer, n = order.type.shape
    at = stretch(s.g, s.reshaped(order, (*outer, n, 1)), x.type.shape)
    return x if 0 in x.type.shape else s.g(GatherElements(x.type.rank - 2), x, at)


@on("aten.linalg_lu_solve.default")
def lu_solve(
    s: Site, LU: Value, pivots: Value, B: Value, left: bool = True, adjoint: bool = False
) -> Made:
    outer = widest([LU.type.shape[:-2], B.type.shape[:-2]])
    factors = stretch(s.g, LU, (*outer, *LU.type.shape[-2:]))
    steps = stretch(s.g, pivots, (*outer, pivots.type.shape[-1]))
    b = stretch(s.g, B, (*outer, *B.type.shape[-2:]))
    if left and not adjoint:
        return by_factors(s, factors, steps, b)
    if left:
        return conjugate(s, by_turned_factors(s, factors, steps, conjugate(s, b)))
    if not adjoint:
        return transposed(s, by_turned_factors(s, factors, steps, transposed(s, b)))
    return adjoined(s, by_factors(s, factors, steps, adjoined(s, b)))


@on("aten.linalg_lu_factor_ex.default")
def lu_factor(s: Site, A: Value, pivot: bool = True, check_errors: bool = False) -> Made:
    needs_pivots(pivot)
    factors, pivots, singular = s.g.add(Lu(), [A]).results
    factors, singular = checked(s, factors, singular, check_errors)
    return [factors, pivots, singular]


@on("aten.linalg_lu_factor.default")
def whole_lu_factor(s: Site, A: Value, pivot: bool = True) -> Made:
    needs_pivots(pivot)
    factors, pivots, singular = s.g.add(Lu(), [A]).results
    return [checked(s, factors, singular, True)[0], pivots]


@on("aten.linalg_lu.default")
def lu(s: Site, A: Value, pivot: bool = True) -> Made:
    needs_pivots(pivot)
    factors, pivots, _ = s.g.add(Lu(), [A]).results
    return [permutation(s, pivots, A.type.shape[-2], A.type.dtype), *triangles(s, factors)]


@on("aten.lu_unpack.default")
def lu_unpack(
    s: Site, LU_data: Value, LU_pivots: Value, unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> Made:  # fmt: skip
    dtype = LU_data.type.dtype
    nothing = s.g.constant(np.zeros(0, DTYPES[dtype]))
    p = permutation(s, LU_pivots, LU_data.type.shape[-2], dtype) if unpack_pivots else nothing
    return [p, *(triangles(s, LU_data) if unpack_data else (nothing, nothing))]


def needs_pivots(pivot: bool) -> None:
    if not pivot:
        raise UnsupportedError("pivot=False is not supported; supported: pivot=True")


def permutation(s: Site, pivots: Value, count: Dim, dtype: str) -> Value:
    """Return the matrices that put rows back where pivots took them from."""
    order = s.g(Swaps(count), pivots)
    *outer, _ = order.type.shape
    shape = (*outer, count, count)
    here = stretch(s.g, s.reshaped(s.g(Range(count)), (count, 1)), shape)
    there = stretch(s.g, s.reshaped(order, (*outer, 1, count)), shape)
    return s.cast(s.g(Equal(), here, there), dtype)


def triangles(s: Site, factors: Value) -> tuple[Value, Value]:
    """Return the lower triangle of factors, with ones on its diagonal, and the upper one."""
    *outer, m, n = factors.type.shape
    k = smaller(m, n)
    rank = len(outer)
    below = s.g(Trilu(-1, False), sliced(s.g, factors, rank + 1, 0, k))
    diagonal = stretch(s.g, s.cast(s.g(Eye(m, k)), "bool"), below.type.shape)
    lower = s.g(Where(), diagonal, s.filled(1, below.type), below)
    return lower, s.g(Trilu(0, True), sliced(s.g, factors, rank, 0, k))


@on("aten.linalg_solve_triangular.default")
def solve_triangular(
    s: Site, x: Value, B: Value, upper: bool, left: bool = True, unitriangular: bool = False
) -> Made:
    shape = widest([x.type.shape[:-2], B.type.shape[:-2]])
    a = stretch(s.g, x, (*shape, *x.type.shape[-2:]))
    b = stretch(s.g, B, (*shape, *B.type.shape[-2:]))
    if left:
        return s.g(SolveTriangular(upper, unitriangular), a, b)
    y = s.g(SolveTriangular(not upper, unitriangular), transposed(s, a), transposed(s, b))
    return transposed(s, y)


@on("aten.triangular_solve.default")
def triangular_solve(
    s: Site, x: Value, A: Value, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> Made:  # fmt: skip
    shape = widest([A.type.shape[:-2], x.type.shape[:-2]])
    a = stretch(s.g, A, (*shape, *A.type.shape[-2:]))
    b = stretch(s.g, x, (*shape, *x.type.shape[-2:]))
    if transpose:
        return [s.g(SolveTriangular(not upper, unitriangular), transposed(s, a), b), a]
    return [s.g(SolveTriangular(upper, unitriangular), a, b), a]


@on("aten.linalg_cholesky_ex.default")
def cholesky_ex(s: Site, x: Value, upper: bool = False, check_errors: bool = False) -> Made:
    y, minors = s.g.add(Cholesky(upper), [x]).results
    return checked(s, y, minors, check_errors)


@on("aten.cholesky.default", "aten.linalg_cholesky.default")
def cholesky(s: Site, x: Value, upper: bool = False) -> Made:
    y, minors = s.g.add(Cholesky(upper), [x]).results
    return checked(s, y, minors, True)[0]


@on("aten.cholesky_solve.default")
def cholesky_solve(s: Site, x: Value, input2: Value, upper: bool = False) -> Made:
    shape = widest([input2.type.shape[:-2], x.type.shape[:-2]])
    a = stretch(s.g, input2, (*shape, *input2.type.shape[-2:]))
    return by_root(s, a, stretch(s.g, x, (*shape, *x.type.shape[-2:])), upper)


@on("aten.cholesky_inverse.default")
def cholesky_inverse(s: Site, x: Value, upper: bool = False) -> Made:
    n = x.type.shape[-1]
    unit = stretch(s.g, s.cast(s.g(Eye(n, n)), x.type.dtype), x.type.shape)
    return by_root(s, x, unit, upper)


def by_root(s: Site, root: Value, b: Value, upper: bool) -> Value:
    """Return y of a y = b, where a is the square of a triangle."""
    lower = adjoined(s, root) if upper else root
    y = s.g(SolveTriangular(False), lower, b)
    return s.g(SolveTriangular(True), adjoined(s, lower), y)


@on("aten.linalg_ldl_factor_ex.default")
def ldl_factor(s: Site, x: Value, hermitian: bool = False, check_errors: bool = False) -> Made:
    needs_symmetry(x, hermitian)
    factors, pivots, singular = s.g.add(Ldl(), [x]).results
    factors, singular = checked(s, factors, singular, check_errors)
    return [factors, pivots, singular]


@on("aten.linalg_ldl_factor.default")
def whole_ldl_factor(s: Site, x: Value, hermitian: bool = False) -> Made:
    needs_symmetry(x, hermitian)
    factors, pivots, singular = s.g.add(Ldl(), [x]).results
    return [checked(s, factors, singular, True)[0], pivots]


@on("aten.linalg_ldl_solve.default")
def ldl_solve(s: Site, LD: Value, pivots: Value, B: Value, hermitian: bool = False) -> Made:
    needs_symmetry(LD, hermitian)
    outer = widest([LD.type.shape[:-2], B.type.shape[:-2]])
    factors = stretch(s.g, LD, (*outer, *LD.type.shape[-2:]))
    steps = stretch(s.g, pivots, (*outer, pivots.type.shape[-1]))
    return s.g(SolveLdl(), factors, steps, stretch(s.g, B, (*outer, *B.type.shape[-2:])))


def needs_symmetry(x: Value, hermitian: bool) -> None:
    """Raise UnsupportedError for matrices that are Hermitian, and not symmetric."""
    if hermitian and x.type.dtype in COMPLEX:
        raise UnsupportedError(
            f"hermitian=True of {x.type.dtype} is not supported; supported: hermitian=False"
        )


@on("aten.linalg_matrix_exp.default")
def matrix_exp(s: Site, x: Value) -> Made:
    return s.cast(s.g(MatrixExp(), s.cast(x, wide(x.type.dtype))), x.type.dtype)


def transposed(s: Site, x: Value) -> Value:
    """Return matrices with rows for columns."""
    rank = x.type.rank
    return permuted(s.g, x, (*range(rank - 2), rank - 1, rank - 2))


def conjugate(s: Site, x: Value) -> Value:
    return s.g(Conjugate(), x) if x.type.dtype in COMPLEX else x


def adjoined(s: Site, x: Value) -> Value:
    """Return matrices with rows for columns, conjugate if they are complex."""
    return conjugate(s, transposed(s, x))
