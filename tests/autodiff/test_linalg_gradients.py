"""Gradients of factorizations, systems of equations and functions of matrices, real and complex."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.autodiff import gradients
from alpenglow.base.errors import UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.extras.linalg.factorization import Cholesky, Eig, Eigh, Svd
from alpenglow.extras.linalg.indefinite import Ldl, SolveLdl
from alpenglow.extras.linalg.linalg import Det, Eliminate
from alpenglow.extras.linalg.reflections import Qr, Reflect, Reflected
from alpenglow.extras.linalg.solving import Lu, MatrixExp, SolveTriangular
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import type_of
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.complex import (
    ComplexAbs,
    ComplexDiv,
    ComplexExp,
    ComplexMatMul,
    ComplexMul,
    ComplexPow,
    ViewAsComplex,
    ViewAsReal,
)
from alpenglow.ops.elementwise.iterated import Orthogonal
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.contraction import MatMul, turned
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast, Concat, Slice, Transpose
from differences import check, weighted_sum

Array = NDArray[Any]

SHAPES = [(4, 4), (2, 3, 3), (5, 2), (2, 5), (1, 1), (1, 3), (3, 1), (2, 0, 0), (0, 3), (3, 0)]
SQUARES = [(3, 3), (2, 1, 1), (2, 4, 4), (0, 0)]


def drawn(*shape: int, whole: bool = False) -> Array:
    random = np.random.default_rng(sum(shape) + len(shape))
    x = random.standard_normal(shape)
    return x + 1j * random.standard_normal(shape) if whole else x


def compare(op: Op, xs: Sequence[Array], reads: Sequence[int] | None = None) -> None:
    """Check gradients of the results that are read, complex numbers by their parts."""
    g, operands, feeds = Graph("case"), [], {}
    for i, x in enumerate(xs):
        parts = np.stack([x.real, x.imag], -1) if x.dtype.kind == "c" else x
        v = g.input(f"x{i}", type_of(parts))
        operands.append(v if parts is x else g(ViewAsComplex(), v))
        feeds[v.name] = parts
    results = list(g.add(op, operands).results)
    kept = results if reads is None else [results[i] for i in reads]
    shown = [g(ViewAsReal(), v) if v.type.dtype == "c128" else v for v in kept]
    check(g, weighted_sum(g, [v for v in shown if v.type.dtype == "f64"]), feeds)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op", [Lu(), Qr(), Qr(True), Reflect(), Svd()], ids=repr)
def test_matrices_of_any_shape_have_gradients(op: Op, shape: tuple[int, ...]) -> None:
    compare(op, [drawn(*shape)])


@pytest.mark.parametrize("shape", SQUARES)
@pytest.mark.parametrize("op", [Det(), Eliminate(), MatrixExp()], ids=repr)
def test_square_matrices_have_gradients(op: Op, shape: tuple[int, ...]) -> None:
    compare(op, [drawn(*shape)])


@pytest.mark.parametrize("shape", SQUARES)
@pytest.mark.parametrize("op", [Cholesky(), Cholesky(True), Eigh(), Eigh(True)], ids=repr)
def test_gradients_by_symmetric_matrices_are_symmetric(op: Op, shape: tuple[int, ...]) -> None:
    a = drawn(*shape)
    x = a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1])
    g = Graph("case")
    y = weighted_sum(g, g.add(op, [g.input("x", type_of(x))]).results[: 1 + (op.name == "eigh")])
    (dx,) = gradients(g, y, list(g.inputs.values()))
    g.output("slope", dx)
    slope = evaluate(g, {"x": x})["slope"]

    np.testing.assert_allclose(slope, np.swapaxes(slope, -1, -2), 1e-12)
    check(g, y, {"x": x}, symmetric=True)


def test_systems_of_equations_have_gradients() -> None:
    a = drawn(2, 4, 4) + 3 * np.eye(4)
    for upper in (False, True):
        for unit in (False, True):
            compare(SolveTriangular(upper, unit), [a, drawn(2, 4, 3)])
            compare(SolveTriangular(upper, unit), [a[:, :1, :1], drawn(2, 1, 1)])
            compare(SolveTriangular(upper, unit), [a, drawn(2, 4, 0)])


@pytest.mark.parametrize(("m", "n", "t"), [(5, 3, 3), (5, 3, 2), (4, 4, 4), (1, 1, 1), (3, 0, 0)])
def test_reflections_have_gradients(m: int, n: int, t: int) -> None:
    for complete in (False, True):
        compare(Reflected(complete), [drawn(2, m, n), drawn(2, t)])
        compare(Reflected(complete), [drawn(m, n, whole=True), drawn(t, whole=True)])


SINGULAR = {
    "rank 1": np.array([[1.0, 2], [2, 4]]),
    "1x1": np.zeros((1, 1)),
    "zeros": np.zeros((3, 3)),
    "a zero row": np.array([[1.0, 2, 3], [0, 0, 0], [4, 5, 7]]),
    "twice a row": np.array([[0.1, 0.7, 0.3], [0.2, 1.4, 0.6], [4, 5, 7]]),
    "rank 1 of 3": np.diag([0.0, 0, 1]),
}


@pytest.mark.parametrize("x", SINGULAR.values(), ids=SINGULAR)
def test_a_determinant_has_a_gradient_where_it_is_0(x: Array) -> None:
    g = Graph("case")
    v = g.input("x", type_of(x))
    g.output("dx", gradients(g, g(Det(), v), [v])[0])
    n = len(x)
    minors = [
        [(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(x, i, 0), j, 1)) for j in range(n)]
        for i in range(n)
    ]

    np.testing.assert_allclose(evaluate(g, {"x": x})["dx"], minors, 1e-6, 1e-6)


WHOLE = [
    (ComplexMul(), (3,), (3,)), (ComplexDiv(), (3,), (3,)), (ComplexMatMul(), (2, 3), (3, 2)),
    (ComplexPow(), (3,), (3,)), (ComplexExp(), (4,)), (ComplexAbs(), (4,)),
    (Broadcast((2, 3)), (1, 3)), (Transpose((1, 0)), (2, 3)), (Slice((2,), (2,), (-2,)), (3,)),
    (Concat(0), (2, 3), (1, 3)), (Lu(), (3, 3)), (Lu(), (4, 2)), (Qr(), (3, 3)), (Qr(True), (4, 2)),
    (Reflect(), (2, 4)), (MatrixExp(), (3, 3)), (SolveTriangular(), (3, 3), (3, 2)),
]  # fmt: skip


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: repr(case[0]))
def test_complex_numbers_have_gradients_by_their_parts(case: tuple[Any, ...]) -> None:
    op, *shapes = case
    compare(op, [drawn(*shape, whole=True) for shape in shapes])


def test_values_of_complex_factors_have_gradients() -> None:
    compare(Svd(), [drawn(4, 3, whole=True)], [1])
    compare(Eig(), [drawn(4, 4)], [0])
    compare(Eig(), [drawn(3, 3, whole=True)], [0])
    choice = np.array([True, False, True])
    compare(Where(), [choice, drawn(3, whole=True), drawn(3, whole=True) * 2])


def refused(op: Op, x: Array, read: int) -> str:
    g = Graph("case")
    v = g.input("x", type_of(x))
    y = g.add(op, [v]).results[read]
    y = g(ViewAsReal(), y) if y.type.dtype == "c128" else y
    with pytest.raises(UnsupportedError) as error:
        gradients(g, y, [v])
    return str(error.value)


def test_vectors_that_are_not_determined_are_refused() -> None:
    assert "which are arbitrary" in refused(Svd(True), drawn(4, 3), 0)
    assert "which are arbitrary" in refused(Svd(True), drawn(3, 4), 2)
    assert "phase" in refused(Svd(), drawn(3, 3, whole=True), 0)
    assert "phase" in refused(Eigh(), drawn(3, 3, whole=True), 1)
    assert "phase" in refused(Eig(), drawn(3, 3), 1)


def test_operators_that_have_no_gradient_by_complex_numbers_say_so() -> None:
    g = Graph("case")
    x = g.input("x", "c128[3]")
    y = g(ComplexAbs(), g(Gather(0), x, g.constant(np.array([0, 0]))))
    with pytest.raises(UnsupportedError, match="gather of complex numbers is not supported"):
        gradients(g, y, [x])


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("diagonal", [1, 0.05], ids=["some pairs", "pairs"])
def test_symmetric_factors_and_their_systems_have_gradients(n: int, diagonal: float) -> None:
    a = drawn(2, n, n)
    x = a + np.swapaxes(a, -1, -2)
    x[:, range(n), range(n)] *= diagonal
    g = Graph("case")
    y = weighted_sum(g, g.add(Ldl(), [g.input("x", type_of(x))]).results[:1])
    check(g, y, {"x": x}, symmetric=True)
    factors, pivots, _ = Ldl().reference(x)

    compare(SolveLdl(), [factors, pivots, drawn(2, n, 3)])


def test_complex_symmetric_systems_have_gradients_by_their_right_sides_alone() -> None:
    a = drawn(3, 3, whole=True)
    factors, pivots, _ = Ldl().reference(a + a.T)
    g = Graph("case")
    x, f = g.input("x", "f64[3,2,2]"), g.input("f", "c128[3,3]")
    y = g(SolveLdl(), f, g.constant(pivots), g(ViewAsComplex(), x))
    with pytest.raises(UnsupportedError, match="of solve_ldl by factors: complex is not"):
        gradients(g, g(ViewAsReal(), y), [x, f])
    fixed = Graph("case")
    x = fixed.input("x", "f64[3,2,2]")
    y = fixed(SolveLdl(), fixed.constant(factors), fixed.constant(pivots),
              fixed(ViewAsComplex(), x))  # fmt: skip

    check(fixed, weighted_sum(fixed, [fixed(ViewAsReal(), y)]), {"x": drawn(3, 2, 2)})


@pytest.mark.parametrize("family", Orthogonal.families)
@pytest.mark.sampled(4)
def test_derivatives_of_polynomials_have_derivatives(family: str) -> None:
    x, n = np.linspace(-0.9, 0.9, 8), np.array([5, 6, 7, -1, 9, 1, 0, 2])
    for shifted in {False, family in "tuvw"}:
        for order in (0, 1, 3):
            g = Graph("case")
            y = g(Orthogonal(family, shifted, order), g.input("x", "f64[8]"), g.constant(n))
            check(g, weighted_sum(g, [y]), {"x": x})


def test_compiled_gradients_of_factors_agree_with_evaluated_ones() -> None:
    def build(g: Graph, x: Value) -> Value:
        square = g(MatMul(), x, turned(g, x))
        root, _ = g.add(Cholesky(), [square]).results
        q, r = g.add(Qr(), [root]).results
        return g(Add(), g(MatrixExp(), q), g(SolveTriangular(True), r, q))

    g = Graph("factors")
    x = g.input("x", "f32[2,3,5]")
    g.output("dx", gradients(g, build(g, x), [x])[0])
    g.prune()
    feed = drawn(2, 3, 5).astype(np.float32)
    actual = ag.compile(g, threads=1)(feed)

    np.testing.assert_allclose(actual, evaluate(g, {"x": feed})["dx"], 1e-3, 1e-3)
