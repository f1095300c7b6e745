"""Converters of linear algebra: factors of Cholesky, and systems that are triangular."""

from __future__ import annotations

from alpenglow.extras.linalg.factorization import Cholesky
from alpenglow.extras.linalg.solving import SolveTriangular
from alpenglow.frontends.stablehlo.convert.compare import converted
from alpenglow.frontends.stablehlo.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ir.types import COMPLEX, HALVES
from alpenglow.ops.elementwise.complex import Conjugate
from alpenglow.ops.tensor.movement import Transpose, Trilu


@on("stablehlo.cholesky")
def cholesky(s: Site) -> Made:
    """The other triangle is 0."""
    (x,), lower = s.required(1), bool(s.attribute("lower", False))
    wide = converted(s, x, "f32") if x.type.dtype in HALVES else x
    factor, _ = s.g.add(Cholesky(not lower), [wide]).results
    return converted(s, s.g(Trilu(0, not lower), factor), x.type.dtype)


@on("stablehlo.triangular_solve")
def triangular_solve(s: Site) -> Made:
    """y of a y = b, or of y a = b, for a triangular a, or for it turned over."""
    a, b = s.required(2)
    if a.type.rank < 2 or a.type.rank != b.type.rank:
        raise s.wrong(f"operands are {a.type} and {b.type}, expected one rank of at least 2")
    dtype = b.type.dtype
    lower, unit = bool(s.attribute("lower")), bool(s.attribute("unit_diagonal"))
    how = s.choice("transpose_a", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
    if dtype in HALVES:
        a, b = converted(s, a, "f32"), converted(s, b, "f32")
    left = bool(s.attribute("left_side"))
    if how != "NO_TRANSPOSE":
        a, lower = turned(s, a), not lower
        a = s.g(Conjugate(), a) if how == "ADJOINT" and dtype in COMPLEX else a
    if not left:
        a, b, lower = turned(s, a), turned(s, b), not lower
    y = s.g(SolveTriangular(not lower, unit), a, b)
    return converted(s, y if left else turned(s, y), dtype)


def turned(s: Site, x: Value) -> Value:
    """Return matrices with rows for columns."""
    rank = x.type.rank
    return s.g(Transpose((*range(rank - 2), rank - 1, rank - 2)), x)
