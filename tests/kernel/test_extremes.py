"""Formulas at the ends of their types: where a product overflows that is divided again.

Every elementwise operator meets zeros of both signs, subnormal numbers, every decade, the largest
numbers, infinities and NaN, and pairs and triples of these.  Neither `fast` nor `strict` may
overflow, or lose digits, where the interpreter does not.
"""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import alpenglow as ag
from agreement import TARGETS, Array, Numerics
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ir.types import ALL, DTYPES
from alpenglow.ops.elementwise.activation import Celu, Elu, Gelu, HardSwish, Selu
from operator_cases import OPERATORS, applications

TOLERANCE = {"f32": 2e-5, "f64": 1e-12, "f16": 2e-3, "bf16": 1e-2}
"""Relative to each element by itself."""

CANCEL: dict[type[Op], float] = {Elu: 2, Celu: 4, Selu: 4, Gelu: 4, HardSwish: 4}
"""Formulas that subtract numbers near 1: how many roundings of 1 an element may be off besides."""

PAIRS = 120
"""How many numbers meet each other where there are two operands."""


def extremes(dtype: str) -> Array:
    """Return numbers at and around all places where formulas of floats go wrong."""
    info = ml_dtypes.finfo(DTYPES[dtype])
    least, most = float(info.smallest_subnormal), float(info.max)
    first, last = int(np.floor(np.log10(least))), int(np.log10(most))
    decades = np.arange(first, last + 1, 6 if dtype == "f64" else 1)
    # Here exponentials of floats of 16, 32 and 64 bits, and what is made of them, run full.
    near = [0.5, 0.99, 1, 1.01, 2, 3, 7, 10, 17, 19, 20, 21, 30, 31, 44, 45, 80, 87, 88, 89, 100,
            104, 354, 709, 710, 745]  # fmt: skip
    ends = [least, float(info.tiny), most / 2, most, np.inf]
    sizes = np.concatenate([10.0**decades, np.minimum(3.3 * 10.0**decades, most), near, ends])
    both = np.concatenate([sizes, -sizes]).astype(DTYPES[dtype]).astype(np.float64)
    return np.concatenate([np.unique(both), [0.0, -0.0, np.nan]]).astype(DTYPES[dtype])


def operands(count: int, dtype: str) -> list[Array]:
    """Return operands for `count` places: all numbers, all pairs of some, or some triples."""
    random = np.random.default_rng(0)
    numbers = extremes(dtype)
    if count == 1:
        return [numbers]
    if count == 2:
        some = random.permutation(numbers)[:PAIRS]
        return [np.repeat(some, len(some)), np.tile(some, len(some))]
    return [random.choice(numbers, 4096) for _ in range(count)]


def formulas(dtype: str) -> Iterator[tuple[Elementwise, int]]:
    """Yield each elementwise operator that takes floats of a type, and how many operands it has."""
    for cls in OPERATORS:
        examples = {
            a.op: a.types
            for a in applications(cls)
            if issubclass(cls, Elementwise) and {t and t.dtype for t in a.types} == {dtype}
        }
        for op, types in examples.items():
            assert isinstance(op, Elementwise), op
            yield op, len(types)


def differ(op: Op, expected: Array, actual: Array, dtype: str) -> Array:
    """Return where two results of an operator on floats of a type differ."""
    if expected.dtype.kind in "iub":
        return np.asarray(expected != actual)
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    rounding = 2.0**-52 if dtype == "f64" else 2.0**-23
    # Subnormal numbers may become 0.
    least = float(ml_dtypes.finfo(expected.dtype).tiny)
    room = TOLERANCE[dtype] * np.abs(a) + least + CANCEL.get(type(op), 0) * rounding
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        return np.asarray(~same & ~(np.isfinite(a) & (np.abs(a - b) <= room)))


def forest(dtype: str) -> tuple[Graph, dict[str, Array], list[Elementwise]]:
    """Return a graph of all operators on floats of a type, its feeds, and what its outputs are."""
    g, feeds, ops = Graph("f"), dict[str, Array](), list[Elementwise]()
    for op, count in formulas(dtype):
        xs = operands(count, dtype)
        for i, x in enumerate(xs):
            feeds[f"x{i} of {len(ops)}"] = x
        given = [g.input(f"x{i} of {len(ops)}", f"{dtype}[{x.size}]") for i, x in enumerate(xs)]
        y = g(op, *given)
        if y.type.dtype in ALL:
            g.output(f"y{len(ops)}", y)
        ops.append(op)
    return g, feeds, ops


@pytest.mark.parametrize("numerics", ["fast", "strict"])
@pytest.mark.parametrize(
    ("dtype", "target"),
    [
        pytest.param(d, t, id=f"{d} {t}", marks=pytest.mark.slow if d == "f64" else ())
        for d in sorted(TOLERANCE)
        for t in (TARGETS if d == "f32" else TARGETS[:1])
    ],
)
@pytest.mark.rest
def test_formulas_hold_to_the_ends_of_their_types(
    dtype: str, target: ag.Target, numerics: Numerics
) -> None:
    g, feeds, ops = forest(dtype)
    with np.errstate(all="ignore"):
        expected = evaluate(g, feeds)
    wrong = []
    actual = ag.compile(g, target=target, options=ag.Options(numerics=numerics)).run(feeds)
    for name, want in expected.items():
        number = int(name[1:])
        for at in np.flatnonzero(differ(ops[number], want, actual[name], dtype))[:1]:
            xs = [float(x[at]) for k, x in feeds.items() if k.endswith(f" of {number}")]
            wrong.append(f"{ops[number]}{tuple(xs)}: {want[at]}, not {actual[name][at]}")

    assert wrong == []
