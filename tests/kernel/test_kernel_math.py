"""The vocabulary on kernels, compiled for this machine, against NumPy."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from alpenglow.ir.target import Target
from alpenglow.ir.types import DTYPES, NAMES, Array
from alpenglow.ir.vocabulary import NUMPY
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate as interpret
from alpenglow.kernel.expr import Const, Load
from alpenglow.kernel.math import KernelMath
from alpenglow.kernel.transcendental_f32 import share
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.machines.cpu.jit import Code
from alpenglow.machines.cpu.legal import legal
from alpenglow.render.llvm.render import render

HOST = Target.parse("cpu")
Formula = Callable[..., Any]
EDGES = np.array(
    [0, -0.0, 1, -1, 0.5, -0.5, 2, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38, 0.55, 4,
     3.4028235e38, -3.4028235e38, 88.7, 88.73, 89.41, 89.42, -87.4, -103.9, -103.98, 1e10, 3e33],
    np.float32,
)  # fmt: skip
LIMITS = {
    "exp": 2, "log": 2, "sin": 2, "cos": 2, "tan": 4, "asin": 3, "acos": 2, "atan": 2, "sinh": 2,
    "cosh": 2, "tanh": 2, "asinh": 1, "acosh": 1, "atanh": 1, "erf": 2, "sqrt": 0.5,
}  # fmt: skip


def evaluate(formula: Formula, *arrays: Array, lanes: int = 1, fast: bool = True) -> Array:
    """Compile an elementwise kernel of `formula` and run it on `arrays`."""
    dry = [Const(1, NAMES[x.dtype]) for x in arrays]
    dtype = formula(KernelMath(Builder("dry")), *dry).dtype
    b = Builder("formula")
    operands = [b.buffer(f"x{i}", NAMES[x.dtype]) for i, x in enumerate(arrays)]
    result = b.buffer("y", dtype, mutable=True)
    assert arrays[0].size % lanes == 0
    with b.loop(arrays[0].size // lanes, "vector" if lanes == 1 else "serial") as i:
        values = [b.let(Load(x, i * lanes, lanes)) for x in operands]
        m = KernelMath(b, lookup=HOST.has("avx512f"))
        b.store(result, i * lanes, formula(m, *values))
    code = Code.install([assemble(render(legal(b.done(), HOST), fast=fast), HOST, opt=3)])
    y = np.empty(arrays[0].size, DTYPES[dtype])
    slots = np.array([x.ctypes.data for x in (*arrays, y)], np.int64)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    call(code.address("formula"))(slots.ctypes.data, 0, 0)
    return y


def ulps(actual: Array, exact: Array) -> float:
    """Return the largest error in units of the last place of the exact value."""
    with np.errstate(all="ignore"):
        expected = exact.astype(actual.dtype)
        size = np.minimum(np.abs(exact), np.finfo(actual.dtype).max).astype(actual.dtype)
        error = np.abs(actual.astype(np.float64) - exact) / np.spacing(size)
    alike = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    error = np.where(alike, np.minimum(np.nan_to_num(error), 0.5), error)
    return float(np.where(np.isfinite(error), error, np.inf).max())


def floats() -> Array:
    """Return f32 of all magnitudes, and many of the usual ones."""
    rng = np.random.default_rng(0)
    wild = rng.integers(0, 2**32, 1 << 16, dtype=np.uint32).view(np.float32)
    usual = [rng.uniform(-r, r, 1 << 14).astype(np.float32) for r in (1, 10, 110)]
    x = np.concatenate([EDGES, wild, *usual])
    return x[: x.size // 16 * 16]


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.sampled(13)
def test_f32_function_is_exact_to_its_limit(name: str, fast: bool) -> None:
    x = floats()
    with np.errstate(all="ignore"):
        exact = getattr(NUMPY, name)(x.astype(np.float64))

    for lanes in (1, 16):
        actual = evaluate(lambda m, x: getattr(m, name)(x), x, lanes=lanes, fast=fast)

        assert ulps(actual, exact) <= LIMITS[name]
        zero = exact == 0
        assert np.array_equal(np.signbit(actual[zero]), np.signbit(exact[zero]))


@pytest.mark.parametrize("lanes", [1, 16])
def test_exponential_below_0_has_no_subnormal_results(lanes: int) -> None:
    x = -np.abs(floats())
    normal = x >= -87
    with np.errstate(invalid="ignore"):
        exact = np.exp(x.astype(np.float64))

    actual = evaluate(lambda m, x: m.exp_below(x), x, lanes=lanes)

    assert ulps(actual[normal], exact[normal]) <= 2
    assert np.array_equal(np.isnan(actual), np.isnan(x))
    assert not actual[x < -87].any()


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("halves", "beside_one", "own"), [(False, 1e-7, 1e-5), (True, 2e-4, 2e-4)])
def test_shares_are_exact_beside_the_largest(
    halves: bool, beside_one: float, own: float, lanes: int
) -> None:
    x = np.concatenate([-np.abs(floats()), np.linspace(-88, 0, 9000, dtype=np.float32)])
    x = x[: x.size // 16 * 16]
    with np.errstate(invalid="ignore"):
        exact = np.exp(x.astype(np.float64))

    actual = evaluate(lambda m, x: share(m, x, halves), x, lanes=lanes)

    normal = x >= -87
    np.testing.assert_allclose(actual[normal], exact[normal], rtol=own, atol=0)
    assert np.abs(actual[normal] - exact[normal]).max() <= beside_one
    assert np.array_equal(np.isnan(actual), np.isnan(x))
    assert not actual[x < -88].any()


def test_error_function_by_a_table_is_exact_to_2_ulp() -> None:
    """The evaluator runs what machines do that look up a table in one instruction."""
    x = np.concatenate([EDGES, np.linspace(-4, 4, 1024 - EDGES.size)]).astype(np.float32)
    b = Builder("formula")
    operand, result = b.buffer("x", "f32"), b.buffer("y", "f32", mutable=True)
    with b.loop(x.size // 16) as i:
        value = b.let(Load(operand, i * 16, 16))
        b.store(result, i * 16, KernelMath(b, lookup=True).erf(value))
    y = np.empty_like(x)

    interpret(b.done(), {"x": x, "y": y})

    assert ulps(y, NUMPY.erf(x.astype(np.float64))) <= 2


@pytest.mark.parametrize("name", [*LIMITS])
@pytest.mark.sampled(8)
def test_f64_function_is_exact_to_4_ulp(name: str) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([EDGES, *(rng.uniform(-r, r, 1 << 12) for r in (1e-3, 1, 7, 700))])
    x = x.astype(np.float64)
    with np.errstate(all="ignore"):
        exact = getattr(NUMPY, name)(x)

    actual = evaluate(lambda m, x: getattr(m, name)(x), x)

    assert ulps(actual, exact) <= 4


def test_power_of_f64_is_exact_to_2_ulp_with_all_edges() -> None:
    rng = np.random.default_rng(2)
    subtle = [5e-324, -5e-324, 1e308, 2.0**53 + 2, 0.9999999999999999, 1.0000000000000002]
    edges = np.concatenate([EDGES, np.arange(-5, 6), subtle])
    x, y = (a.ravel() for a in np.meshgrid(edges, edges))
    x = np.concatenate([x, rng.uniform(0, 10, 1 << 13), rng.uniform(0.9, 1.1, 1 << 13)])
    y = np.concatenate([y, rng.uniform(-30, 30, 1 << 13), rng.uniform(-7000, 7000, 1 << 13)])
    with np.errstate(all="ignore"):
        exact = np.power(x, y)

    actual = evaluate(lambda m, x, y: m.pow(x, y), x, y)

    assert ulps(actual, exact) <= 2
    zero = exact == 0
    assert np.array_equal(np.signbit(actual[zero]), np.signbit(exact[zero]))


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_of_f64_are_reduced_exactly(name: str) -> None:
    rng = np.random.default_rng(4)
    near = np.arange(1, 1000) * (math.pi / 2)
    wild = np.ldexp(rng.uniform(1, 2, 1 << 12), rng.integers(-30, 1024, 1 << 12))
    x = np.concatenate([near, wild, -wild, [1e22, np.inf, -np.inf]])
    with np.errstate(all="ignore"):
        exact = getattr(NUMPY, name)(x)

    assert ulps(evaluate(lambda m, x: getattr(m, name)(x), x), exact) <= 3


def test_the_f64_nearest_to_a_multiple_of_a_right_angle_is_reduced_exactly() -> None:
    x = np.array([6381956970095103 * 2.0**797])
    # Computed with 2000 binary digits; C libraries differ in the last three of theirs.
    exact = np.array([-4.687165924254628e-19])

    assert ulps(evaluate(lambda m, x: m.cos(x), x), exact) <= 1


def test_power_of_f32_is_exact_with_all_edges() -> None:
    rng = np.random.default_rng(2)
    whole = np.arange(-5, 6).astype(np.float32)
    edges = np.concatenate([EDGES, whole])
    x, y = (a.ravel() for a in np.meshgrid(edges, edges))
    x = np.concatenate([x, rng.uniform(0, 10, 1 << 16).astype(np.float32)])
    y = np.concatenate([y, rng.uniform(-30, 30, 1 << 16).astype(np.float32)])
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))

    actual = evaluate(lambda m, x, y: m.pow(x, y), x, y)

    assert ulps(actual, exact) <= 1


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -1])
def test_power_by_a_number(exponent: float) -> None:
    x = floats()
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), np.full(x.size, float(exponent)))

    assert ulps(evaluate(lambda m, x: m.pow(x, exponent), x), exact) <= 1.5


INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


def pairs(dtype: str) -> tuple[Array, Array]:
    """Return operands with every pair of the values at which integers go wrong."""
    limits = np.iinfo(DTYPES[dtype])
    signs = [-1, -2, -3, -7, -100] if limits.min else []
    some = [limits.min, limits.max, limits.max - 1, 0, 1, 2, 3, 7, 31, 63, 64, 100, *signs]
    values = np.array(some, DTYPES[dtype])
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    return x[: x.size // 4 * 4].copy(), y[: y.size // 4 * 4].copy()


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "name",
    ["add", "sub", "mul", "div", "mod", "fmod", "pow", "minimum", "maximum", "bit_and", "bit_or",
     "bit_xor", "shift_left", "shift_right", "eq", "ne", "lt", "le", "gt", "ge"],
)  # fmt: skip
@pytest.mark.sampled(24)
def test_integer_operation_is_numpys(name: str, dtype: str) -> None:
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        expected = getattr(NUMPY, name)(x, y)

    for lanes in (1, 4):
        actual = evaluate(lambda m, x, y: getattr(m, name)(x, y), x, y, lanes=lanes)

        assert np.array_equal(expected, actual)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["neg", "abs", "sign", "bit_not", "floor", "ceil"])
def test_integer_function_is_numpys(name: str, dtype: str) -> None:
    x, _ = pairs(dtype)

    expected = getattr(NUMPY, name)(x).astype(x.dtype)

    assert np.array_equal(expected, evaluate(lambda m, x: getattr(m, name)(x), x))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "div", "mod", "fmod", "minimum", "maximum", "eq", "ne", "lt"]
)
def test_float_operation_is_numpys(name: str, dtype: str) -> None:
    x, y = (a.ravel().astype(DTYPES[dtype]) for a in np.meshgrid(EDGES, EDGES))
    with np.errstate(all="ignore"):
        expected = getattr(NUMPY, name)(x, y)

    actual = evaluate(lambda m, x, y: getattr(m, name)(x, y), x, y)

    assert np.array_equal(expected, actual, equal_nan=expected.dtype != bool)


@pytest.mark.parametrize("name", ["neg", "abs", "sign", "floor", "ceil", "round", "isnan", "isinf"])
def test_float_function_is_numpys(name: str) -> None:
    x = floats()
    with np.errstate(all="ignore"):
        expected = getattr(NUMPY, name)(x)

    actual = evaluate(lambda m, x: getattr(m, name)(x), x)

    assert np.array_equal(expected, actual, equal_nan=expected.dtype != bool)


def test_powers_mix_element_types_as_numpy_does() -> None:
    x, y = np.array([2, 3, -1, -2], np.int32), np.array([5, -1, 7, 2], np.int64)
    f, n = np.array([2, 4, 9, 0.5], np.float32), np.array([3, 2, -1, 2], np.int32)

    assert evaluate(lambda m, x, y: m.pow(x, y), x, y).tolist() == [32, 0, -1, 4]
    assert np.allclose(evaluate(lambda m, x, y: m.pow(x, y), f, n), [8, 16, 1 / 9, 0.25])


def test_numbers_take_the_type_and_the_lanes_of_the_other_operand() -> None:
    x = np.arange(16, dtype=np.float32)

    def formula(m: Any, x: Any) -> Any:
        return m.where(m.gt(x, 3), m.div(1.0, x), m.sub(x, 2))

    expected = np.where(x > 3, 1 / np.maximum(x, 1), x - 2)
    assert np.allclose(evaluate(formula, x, lanes=16), expected)


def test_error_function_meets_its_limit_near_where_its_parts_meet() -> None:
    x = np.nextafter(np.float32([1, 4, -1, -4] * 4), np.float32([0, 0, 9, 9] * 4))
    exact = np.array([math.erf(v) for v in x.tolist()])

    assert ulps(evaluate(lambda m, x: m.erf(x), x), exact) <= 2
