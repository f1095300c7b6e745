"""Complex numbers as pairs of reals: what NumPy computes in twice the precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value, infer
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, DTYPES, PARTS, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Neg
from alpenglow.ops.elementwise.complex import (
    Angle,
    ComplexAbs,
    ComplexAdd,
    ComplexDiv,
    ComplexExp,
    ComplexFft,
    ComplexLog,
    ComplexMatMul,
    ComplexMul,
    ComplexNeg,
    ComplexPow,
    ComplexSub,
    Conjugate,
    ViewAsComplex,
    ViewAsReal,
)
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Atan2
from alpenglow.ops.tensor.copy import Copy
from alpenglow.ops.tensor.movement import Broadcast, Slice, Transpose
from alpenglow.passes.lower import lower
from alpenglow.passes.simplify import simplify

Numbers = NDArray[np.complexfloating]

TARGETS = ("cpu", "interpreter")
WIDE = {"c64": np.complex128, "c128": np.clongdouble}
"""What the measure is computed in."""

SHAPES = {"": (), "1": (1,), "0,3": (0, 3), "3,67": (3, 67), "2,N": (2, 131)}
"""Types of operands, and what is fed: a number, nothing, an odd extent, and one that is open."""

every_target = pytest.mark.parametrize("target", TARGETS)
every_dtype = pytest.mark.parametrize("dtype", sorted(COMPLEX))


@dataclass(frozen=True)
class Function:
    """An operator, what it means, how large operands are drawn, and the units of error it may make.

    Sizes are powers of 10 up to `decades` either way, so that results are in the range of c64.  The
    exponent of a power, and what e is raised to, have parts of at most `most`.
    """

    op: Op
    meaning: Callable[..., Numbers]
    units: float
    decades: float = 15
    most: float = 0


FUNCTIONS = [
    Function(ComplexAdd(), np.add, 1, 30),
    Function(ComplexSub(), np.subtract, 1, 30),
    Function(ComplexNeg(), np.negative, 0, 30),
    Function(Conjugate(), np.conjugate, 0, 30),
    Function(ComplexMul(), np.multiply, 2),
    Function(ComplexDiv(), np.divide, 3),
    Function(ComplexAbs(), np.abs, 3, 30),
    Function(Angle(), np.angle, 3),
    Function(ComplexExp(), np.exp, 4, most=80),
    Function(ComplexLog(), np.log, 3, 30),
    Function(ComplexPow(), np.power, 4, 3, most=4),
]


def random_numbers(random: np.random.Generator, shape: tuple[int, ...], decades: float) -> Numbers:
    """Return complex numbers whose parts are of many magnitudes, apart from each other."""
    size = 10 ** random.uniform(-decades, decades, (2, *shape))
    real, imaginary = random.standard_normal((2, *shape)) * size
    return np.asarray(real + 1j * imaginary)


def operands(f: Function, dtype: str, shape: tuple[int, ...]) -> list[Numbers]:
    random = np.random.default_rng(len(f.op.name))
    drawn = [random_numbers(random, shape, f.decades) for _ in f.op.operands]
    if f.most:
        real, imaginary = random.uniform(-f.most, f.most, (2, *shape))
        drawn[-1] = np.asarray(real + 1j * imaginary)
    return [x.astype(DTYPES[dtype]) for x in drawn]


def executable(target: str, dtype: str, shape: str) -> ag.Executable:
    """Return all functions, each of operands of its own."""
    g = Graph("functions")
    for f in FUNCTIONS:
        xs = [g.input(f"{f.op.name}_{i}", f"{dtype}[{shape}]") for i in range(len(f.op.operands))]
        g.output(f.op.name, g(f.op, *xs))
    return ag.compile(g, target=target, threads=1)


def computed(target: str, dtype: str, shape: str) -> dict[str, Array]:
    feeds = {
        f"{f.op.name}_{i}": x
        for f in FUNCTIONS
        for i, x in enumerate(operands(f, dtype, SHAPES[shape]))
    }
    with np.errstate(all="ignore"):
        return executable(target, dtype, shape).run(feeds)


def unit(dtype: str) -> float:
    return float(np.finfo(DTYPES[dtype]).eps)


def relative_error(expected: Numbers, actual: Numbers) -> Array:
    """Return errors relative to the sizes of complex numbers, where those are no zeros."""
    size = np.abs(expected)
    return np.asarray(np.abs(actual - expected) / np.where(size == 0, 1, size))


@every_target
@every_dtype
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.sampled(2)
def test_functions_agree_with_numpy(shape: str, dtype: str, target: str) -> None:
    outputs = computed(target, dtype, shape)
    for f in FUNCTIONS:
        assert_agrees(f, operands(f, dtype, SHAPES[shape]), outputs[f.op.name], dtype)


def assert_agrees(f: Function, xs: list[Numbers], actual: Array, dtype: str) -> None:
    wide = [x.astype(WIDE[dtype]) for x in xs]
    expected = f.meaning(*wide)
    # What a power of e is of is rounded first: as an angle it is as far off as it is large.
    angle = np.abs(wide[1] * np.log(wide[0])) if isinstance(f.op, ComplexPow) else np.zeros(())
    allowed = unit(dtype) * f.units * (1 + angle)

    assert actual.dtype == infer(f.op, [TensorType(dtype, x.shape) for x in xs])[0].numpy
    assert actual.shape == expected.shape
    assert (relative_error(expected, actual) <= allowed).all(), f.op.name


def apply(op: Op, *xs: Array, target: str = "cpu") -> Array:
    """Return what an operator makes of arrays."""
    g = Graph("one")
    values = [g.input(f"x{i}", f"{dtype_name(x)}{list(x.shape)}") for i, x in enumerate(xs)]
    g.output("y", g(op, *values))
    with np.errstate(all="ignore"):
        return ag.compile(g, target=target, threads=1)(*xs)


def dtype_name(x: Array) -> str:
    return {np.dtype(np.complex64): "c64", np.dtype(np.complex128): "c128"}[x.dtype]


@every_target
@pytest.mark.parametrize("size", [1e30, 1e-30, 3e-39, 1.5e38])
def test_sizes_and_quotients_do_not_overflow_on_the_way(size: float, target: str) -> None:
    x = np.array([size + 1j * size, size, -1j * size], np.complex64)
    size = np.abs(x.astype(np.complex128))

    np.testing.assert_allclose(apply(ComplexAbs(), x, target=target), size, 3e-7)
    np.testing.assert_allclose(apply(ComplexDiv(), x, x, target=target), np.ones(3), 3e-7)
    np.testing.assert_allclose(
        apply(ComplexLog(), x, target=target), np.log(x.astype(np.complex128)), 1e-6
    )


@every_target
def test_an_exponential_overflows_only_where_its_parts_do(target: str) -> None:
    x = np.array([88.9 + 0.8j, 88.9 - 0.75j, -103 + 0.5j], np.complex64)

    actual = apply(ComplexExp(), x, target=target)

    np.testing.assert_allclose(actual, np.exp(x.astype(np.complex128)), 1e-5, 1e-45)


@every_target
@every_dtype
def test_zeros_infinities_and_edges_of_the_cut(dtype: str, target: str) -> None:
    signed = [complex(a, b) for a in (0.0, -0.0, 1, -1) for b in (0.0, -0.0, 2, -2)]
    x = np.array([*signed, complex(np.inf, 1), complex(-np.inf, np.inf)], DTYPES[dtype])
    with np.errstate(all="ignore"):
        angle, size, logarithm = np.angle(x), np.abs(x), np.log(x)

    np.testing.assert_allclose(apply(Angle(), x, target=target), angle, 3e-7)
    np.testing.assert_allclose(apply(ComplexAbs(), x, target=target), size, 3e-7)
    np.testing.assert_allclose(apply(ComplexLog(), x, target=target), logarithm, 3e-7)


@every_target
def test_division_by_zero_is_infinite_or_undefined(target: str) -> None:
    x, zero = np.array([1 + 2j, -3 + 0j, 0], np.complex64), np.zeros(3, np.complex64)
    with np.errstate(all="ignore"):
        expected = x / zero

    np.testing.assert_array_equal(apply(ComplexDiv(), x, zero, target=target), expected)


@every_target
def test_powers_of_zero_are_one_zero_or_undefined(target: str) -> None:
    x, y = np.zeros(5, np.complex128), np.array([0, 2.5, 1 + 1j, -1, 1j])

    undefined = complex(np.nan, np.nan)
    actual = apply(ComplexPow(), x, y, target=target)

    np.testing.assert_array_equal(actual, [1, 0, 0, undefined, undefined])


@every_target
@every_dtype
@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 4), (4, 5)), ((1, 1), (1, 1)), ((2, 3, 17, 9), (2, 3, 9, 33)), ((3, 0), (0, 5)),
     ((0, 4), (4, 5)), ((40, 300), (300, 50))],
)  # fmt: skip
@pytest.mark.sampled(10)
def test_products_agree_with_numpy(
    left: tuple[int, ...], right: tuple[int, ...], dtype: str, target: str
) -> None:
    random = np.random.default_rng(1)
    x, y = (random_numbers(random, shape, 2).astype(DTYPES[dtype]) for shape in (left, right))

    actual = apply(ComplexMatMul(), x, y, target=target)

    assert_product(x, y, actual)


def assert_product(x: Numbers, y: Numbers, actual: Numbers) -> None:
    """Assert that each element is off by no more than the sum of sizes allows."""
    wide = WIDE[dtype_name(x)]
    expected = np.matmul(x.astype(wide), y.astype(wide))
    sizes = np.matmul(np.abs(x).astype(wide), np.abs(y).astype(wide)).real

    assert (actual.dtype, actual.shape) == (x.dtype, expected.shape)
    assert (np.abs(actual - expected) <= 2 * x.shape[-1] * unit(dtype_name(x)) * sizes).all()


@every_target
@pytest.mark.parametrize("constant", [False, True])
def test_a_product_takes_a_matrix_for_all_and_open_extents(constant: bool, target: str) -> None:
    random = np.random.default_rng(2)
    y = random_numbers(random, (4, 6), 1).astype(np.complex64)
    g = Graph("product")
    x = g.input("x", "c64[3,M,4]")
    matrix = g.constant(y) if constant else g.input("y", "c64[4,6]")
    g.output("z", g(ComplexMatMul(), x, g(Broadcast((3, 4, 6)), matrix)))
    exe = ag.compile(g, target=target, threads=1)
    for rows in (1, 2, 7, 40):
        x_ = random_numbers(random, (3, rows, 4), 1).astype(np.complex64)
        actual = exe.run({"x": x_} if constant else {"x": x_, "y": y})["z"]

        assert_product(x_, np.broadcast_to(y, (3, 4, 6)), actual)


LENGTHS = (*range(1, 41), 521, 1024)


@every_target
@every_dtype
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.sampled(2)
def test_transforms_agree_with_numpy(inverse: bool, dtype: str, target: str) -> None:
    random = np.random.default_rng(3)
    g = Graph("transforms")
    feeds: dict[str, Array] = {}
    for n in LENGTHS:
        feeds[f"x{n}"] = random_numbers(random, (2, n), 1).astype(DTYPES[dtype])
        g.output(f"y{n}", g(ComplexFft(-1, n, inverse), g.input(f"x{n}", f"{dtype}[2,{n}]")))
    outputs = ag.compile(g, target=target, threads=1).run(feeds)
    transform = np.fft.ifft if inverse else np.fft.fft
    for n in LENGTHS:
        expected = transform(feeds[f"x{n}"].astype(np.complex128))
        actual = outputs[f"y{n}"]

        assert actual.dtype == DTYPES[dtype]
        error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
        assert error <= 8 * unit(dtype), f"length {n}: {error}"


@every_target
@pytest.mark.parametrize("length", [5, 8, 11])
@pytest.mark.sampled(3)
def test_a_transform_cuts_or_fills_an_axis_between_open_ones(length: int, target: str) -> None:
    g = Graph("transform")
    g.output("y", g(ComplexFft(1, length), g.input("x", "c64[N,8,3]")))
    exe = ag.compile(g, target=target, threads=1)
    for n in (1, 2, 9):
        x = random_numbers(np.random.default_rng(n), (n, 8, 3), 1).astype(np.complex64)
        expected = np.fft.fft(x, length, axis=1)

        np.testing.assert_allclose(exe(x), expected, 1e-5, np.abs(expected).max() * 1e-6)


def chain(shape: str) -> tuple[Graph, Value]:
    """Return |fft(x) fft(y)| along the last axis of 16."""
    g = Graph("chain")
    x, y = (g.input(name, f"c64[{shape},16]") for name in ("x", "y"))
    spectra = (g(ComplexFft(-1, 16), v) for v in (x, y))
    size = g(ComplexAbs(), g(ComplexMul(), *spectra))
    g.output("z", size)
    return g, size


def test_a_chain_is_complex_at_its_ends_alone() -> None:
    g = simplify(lower(chain("N")[0]))
    views = [n for n in g.nodes if isinstance(n.op, ViewAsReal | ViewAsComplex)]

    assert [n.inputs[0] for n in views] == list(g.inputs.values())
    assert all(isinstance(n.op, ViewAsReal) for n in views)


def test_views_of_complex_numbers_cost_no_copy() -> None:
    g, _ = chain("5")
    x, y = g.inputs.values()
    g.output("product", g(ComplexMul(), x, y))
    exe = ag.compile(g, target="cpu", threads=1)
    instrs = list(exe.artifact.program.instrs())

    assert not any(isinstance(i.op, Copy | ViewAsReal | ViewAsComplex) for i in instrs)
    assert {r.type.dtype for i in instrs for r in (*i.outs, *i.reads())} == {"f32"}


def test_the_parts_of_a_number_are_numbers_in_a_formula() -> None:
    g = Graph("scaled")
    x = g.input("x", "c64[1000,300]")
    number = g.constant(np.asarray(2 - 3j, np.complex64))
    g.output("y", g(ComplexMul(), x, g(Broadcast(x.type.shape), number)))
    exe = ag.compile(g, target="cpu", threads=1)
    x_ = random_numbers(np.random.default_rng(0), (1000, 300), 2).astype(np.complex64)
    constants = [b for b in exe.artifact.program.buffers.values() if b.space == "const"]

    assert constants == []
    np.testing.assert_allclose(exe(x_), x_ * np.complex64(2 - 3j), 1e-5)


@every_target
def test_a_chain_agrees_with_numpy(target: str) -> None:
    exe = ag.compile(chain("N")[0], target=target, threads=1)
    for n in (1, 4, 33):
        x, y = (random_numbers(np.random.default_rng(n + i), (n, 16), 1).astype(np.complex64)
                for i in range(2))  # fmt: skip
        expected = np.abs(np.fft.fft(x) * np.fft.fft(y))

        np.testing.assert_allclose(exe(x, y), expected, 1e-5, expected.max() * 1e-6)


@every_target
@every_dtype
def test_views_hold_the_bits_of_what_was_moved_before(dtype: str, target: str) -> None:
    """Windows on complex numbers are windows on pairs, whichever way they run."""
    g = Graph("views")
    x = g.input("x", f"{dtype}[4,N]")
    turned = g(Transpose((1, 0)), g(Slice((3, 0), (2, x.type.shape[1]), (-2, 1)), x))
    pairs = g(ViewAsReal(), turned)
    g.output("pairs", g(Neg(), pairs))
    g.output("again", g(ViewAsComplex(), g(Slice((0, 0, 1), pairs.type.shape, (1, 1, -1)), pairs)))
    g.output("same", g(ViewAsComplex(), g(Neg(), pairs)))
    exe = ag.compile(g, target=target, threads=1)
    for n in (1, 2, 5):
        x_ = random_numbers(np.random.default_rng(n), (4, n), 3).astype(DTYPES[dtype])
        expected = x_[3::-2].T
        outputs = exe.run({"x": x_})

        parts = np.stack([expected.real, expected.imag], -1)
        np.testing.assert_array_equal(outputs["pairs"], -parts)
        np.testing.assert_array_equal(outputs["again"], expected.imag + 1j * expected.real)
        np.testing.assert_array_equal(outputs["same"], -expected)


def test_pairs_that_begin_anywhere_are_complex_numbers() -> None:
    """A window whose offset is odd for some extents and even for others is right for all."""
    g = Graph("anywhere")
    x = g.input("x", "f32[3,N]")
    window = g(Slice((1, 0), (2, 2), (1, 1)), x)
    g.output("y", g(ViewAsComplex(), window))
    exe = ag.compile(g, target="cpu", threads=1)
    for extent in (2, 3, 4, 5, 8):
        x_ = np.arange(3 * extent, dtype=np.float32).reshape(3, extent)

        np.testing.assert_array_equal(exe(x_), x_[1:, 0] + 1j * x_[1:, 1])


@pytest.mark.parametrize(
    ("op", "types", "says"),
    [
        (ComplexAdd(), ("f32[3]", "f32[3]"), "expected an element type among c128 c64"),
        (ComplexMul(), ("c64[3]", "c128[3]"), "expected equal types"),
        (ComplexDiv(), ("c64[3]", "c64[1]"), "expected equal types"),
        (ComplexMatMul(), ("c64[3,4]", "c128[4,5]"), "expected one dtype"),
        (ComplexMatMul(), ("c64[3,4]", "c64[3,5]"), "of one dtype"),
        (ComplexFft(1, 4), ("c64[4]",), "axis is 1, expected -1 to 0"),
        (ComplexFft(0, 0), ("c64[4]",), "the length is 0"),
        (ComplexFft(0, 4), ("c64[]",), "expected rank at least 1"),
        (ViewAsReal(), ("f32[2]",), "expected an element type among c128 c64"),
        (ViewAsComplex(), ("f32[2,3]",), "expected a last axis of 2"),
        (ViewAsComplex(), ("f32[N]",), "expected a last axis of 2"),
        (ViewAsComplex(), ("f16[2]",), "expected an element type among f32 f64"),
        (ViewAsReal(), ("c64[1,20/16,16]",), "expected row-major order"),
    ],
)
def test_operands_of_other_types_are_refused(op: Op, types: tuple[str, ...], says: str) -> None:
    with pytest.raises(TypeRuleError, match=says):
        infer(op, [TensorType.parse(t) for t in types])


def test_the_angle_of_a_point_is_that_of_numpy() -> None:
    ends = (0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan)
    y, x = (a.ravel() for a in np.meshgrid(*[np.array(ends, np.float32)] * 2))
    g = Graph("angle")
    g.output("t", g(Atan2(), *(g.input(name, f"f32[{x.size}]") for name in ("y", "x"))))

    actual = ag.compile(g, target="cpu", threads=1)(y, x)

    np.testing.assert_allclose(actual, np.arctan2(y, x), 3e-7, 1e-44)


def test_the_parts_of_complex_numbers_are_half_as_wide() -> None:
    assert PARTS.keys() == COMPLEX
    assert all(DTYPES[w].itemsize == 2 * DTYPES[p].itemsize for w, p in PARTS.items())


def test_a_complex_constant_stands_beside_others_in_one_kernel() -> None:
    g = Graph("constant")
    x, p, q = g.input("x", "c64[3]"), g.input("p", "bool[3]"), g.input("q", "bool[3]")
    constant = g(Broadcast((3,)), g.constant(np.array(1 + 2j, np.complex64)))
    g.output("y", g(Where(), q, g(Where(), p, x, constant), constant))
    truths = np.array([1, 0, 1], bool), np.array([1, 1, 0], bool)

    (y,) = (
        ag.compile(g).run({"x": np.zeros(3, np.complex64), "p": truths[0], "q": truths[1]}).values()
    )

    assert y.tolist() == [0, 1 + 2j, 1 + 2j]
