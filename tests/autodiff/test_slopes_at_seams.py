"""Gradients of elementwise operators where their formulas pass from one branch to the next.

Random numbers hit no seam: |x| at 0, a limit of a series, two operands that are equal.  Where the
values on both sides say that there is a slope, the gradient is it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import product

import numpy as np
import pytest

from alpenglow.autodiff import gradients
from alpenglow.autodiff.formula import pull_back
from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.base.extensions import bring_extras, bring_operators
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise.floating import NextAfter
from alpenglow.ops.elementwise.select import Cast

COMMON = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 30.0)
MOST = {1: 400, 2: 40, 3: 8}
"""How many values an operand has, by the number of operands."""

STEP, NEAR = 1e-6, 1e-4


def operators() -> Iterator[tuple[Elementwise, int]]:
    """Yield elementwise operators on floats, each with the number of its operands."""
    bring_operators()
    bring_extras()
    waiting: list[type[Op]] = [Elementwise]
    seen = set()
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if cls is Elementwise or cls.__module__.partition(".")[0] != "alpenglow":
            continue
        for op, *given in cls.examples():
            if op in seen or len(given) not in MOST or isinstance(op, NextAfter):
                continue
            seen.add(op)
            try:
                result = op.infer(*[TensorType("f64", (3,))] * len(given))
            except TypeRuleError:
                continue  # it takes no f64
            if result.dtype == "f64" and not isinstance(op, Cast):
                yield op, len(given)


CASES = sorted(operators(), key=lambda case: str(case[0]))


def seams(op: Elementwise, count: int) -> Array:
    """Return all numbers in the formula of an operator and of its gradient, and some more."""
    found: set[float] = set()
    for by_formula in (False, True):
        g = Graph("numbers")
        xs = [g.input(f"x{i}", "f64[3]") for i in range(count)]
        if by_formula:
            with suppress(UnsupportedError):  # it has a gradient of its own
                pull_back(g, op, g.input("dy", "f64[3]"), xs, [True] * count)
        else:
            gradients(g, g(op, *xs), xs)
        for v in g.constants():
            if v.array is not None and v.array.size == 1 and v.array.dtype.kind == "f":
                number = abs(float(v.array.reshape(())))
                if 1e-3 < number < 200:
                    found |= {number, float(np.nextafter(number, np.inf))}
    numbers = [*COMMON, *sorted(found.difference(COMMON))][: MOST[count] // 2]
    both = {s * x for x in numbers for s in (1, -1)}
    return np.array(sorted(both))


@pytest.mark.parametrize(("op", "count"), CASES, ids=[str(op) for op, _ in CASES])
@pytest.mark.sampled(6, "Atan2()", "Lgamma()", "Erfcx()", "BesselI(order=1, scaled=False)")
def test_a_gradient_is_the_slope_on_both_sides(op: Elementwise, count: int) -> None:
    g = Graph("slopes")
    points = np.array(list(product(seams(op, count), repeat=count))).T
    xs = [g.input(f"x{i}", f"f64[{points.shape[1]}]") for i in range(count)]
    y = g(op, *xs)
    for i, dx in enumerate(gradients(g, y, xs)):
        g.output(f"d{i}", dx)
    g.output("y", y)

    def at(moved: Array) -> dict[str, Array]:
        return evaluate(g, {f"x{i}": np.ascontiguousarray(x) for i, x in enumerate(moved)})

    here = at(points)
    for i in range(count):
        step = STEP * np.maximum(1, np.abs(points[i]))
        ends = []
        for way in (step, -step):
            moved = points.copy()
            moved[i] += way
            ends.append(at(moved)["y"])
        with np.errstate(all="ignore"):
            right, left = (ends[0] - here["y"]) / step, (here["y"] - ends[1]) / step
            slope = (right + left) / 2
            jump = np.abs(ends[0] - ends[1]) > 1e-2 * (1 + np.abs(here["y"]))
            has_one = np.abs(right - left) <= 1e-3 * np.maximum(1, np.abs(slope))
            known = np.isfinite(slope) & has_one & ~jump
            lost = 1e-9 * np.abs(here["y"]) / step
            wrong = known & ~(np.abs(here[f"d{i}"] - slope) <= NEAR * (1 + np.abs(slope)) + lost)
        bad = [(points[:, k].tolist(), here[f"d{i}"][k], slope[k]) for k in np.flatnonzero(wrong)]
        assert not bad, f"operand {i}: {bad[:3]}"
