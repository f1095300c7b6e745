"""What gradients must be: differences of a function's values, of the fourth order in the step.

The step is chosen for each direction by the differences alone: it is the first of several, each
smaller, at which those of one step and of half of it agree.  So neither what is left out by a step
that is too large, nor rounding by one that is too small, nor an edge between hides an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.autodiff import gradients
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.reduction.reduction import ReduceSum

Array = NDArray[Any]

STEPS = (4e-3, 1e-3, 2e-4, 3e-5, 4e-6)


class Unsettled(AssertionError):
    """Differences do not agree at any step: there is an edge, or the function is not smooth."""


def weighted_sum(g: Graph, values: Sequence[Value]) -> Value:
    """Return the sum of all elements of f64 values, times random numbers; 0 of none."""
    return total_of(g, values) if values else g.constant(np.zeros(()))


def total_of(g: Graph, values: Sequence[Value]) -> Value:
    """Return the sum of all elements of values of one type, times random numbers."""
    random = np.random.default_rng(2)
    total: Value | None = None
    for v in values:
        weights = g.constant(random.standard_normal(v.type.extents).astype(v.type.numpy))
        part = g(ReduceSum(tuple(range(v.type.rank)), False), g(Mul(), v, weights))
        total = part if total is None else g(Add(), total, part)
    assert total is not None, "there is something to add up"
    return total


def check(
    g: Graph, y: Value, feeds: dict[str, Array], rtol: float = 1e-6, symmetric: bool = False
) -> None:
    """Assert that the gradients of scalar y by each f64 input are what differences say.

    If `symmetric`, y is a function of symmetric matrices.
    """
    g.output("y", y)
    forward = g.copy()
    forward.prune()
    xs = {name: v for name, v in g.inputs.items() if v.type.dtype == "f64"}
    for (name, x), dx in zip(xs.items(), gradients(g, y, list(xs.values())), strict=True):
        g.output(f"d{name}", dx)
        assert dx.type == x.type
    with np.errstate(all="ignore"):
        slopes = evaluate(g, feeds)
        for name in xs:
            slope = slopes[f"d{name}"]
            for way in directions(slope, symmetric):
                terms = slope * way
                least = 0.03 * float(np.abs(terms).sum())
                # A settled difference may have jumped over edges that a smaller step shows.
                for smaller in (False, True):
                    expected, noise = along(forward, feeds, name, way, smaller)
                    off = rtol * max(abs(expected), least) + noise
                    if abs(terms.sum() - expected) <= off:
                        break

                np.testing.assert_allclose(terms.sum(), expected, 0, off, err_msg=name)


def directions(slope: Array, symmetric: bool) -> Iterator[Array]:
    """Yield some directions: one element each, all of few, and all at once."""
    random = np.random.default_rng(3)
    places = np.arange(slope.size)
    if slope.size > 6:
        largest = int(np.argmax(np.abs(slope)))
        places = np.unique([0, largest, slope.size - 1, *random.integers(0, slope.size, 2)])
        for _ in range(2):
            yield turned_alike(random.standard_normal(slope.shape), symmetric)
    for place in places:
        way = np.zeros(slope.shape)
        way.flat[place] = 1
        yield turned_alike(way, symmetric)


def turned_alike(way: Array, symmetric: bool) -> Array:
    """Return matrices that are `symmetric`, if they are to be."""
    return way + np.swapaxes(way, -1, -2) if symmetric else way


def along(
    forward: Graph, feeds: dict[str, Array], name: str, way: Array, smallest: bool = False
) -> tuple[float, float]:
    """Return what y changes by along a direction of an input, and how far rounding puts it off.

    It is told by the largest step at which differences settle, or by the smallest.  Raises
    Unsettled where they do not.
    """

    def central(step: float) -> float:
        ahead, behind = (
            evaluate(forward, feeds | {name: feeds[name] + s * way})["y"] for s in (step, -step)
        )
        size.append(abs(float(ahead)))
        return float(ahead - behind) / (2 * step)

    size = [1.0]
    for step in reversed(STEPS) if smallest else STEPS:
        whole, half, quarter = (central(step / n) for n in (1, 2, 4))
        rough, fine = (4 * half - whole) / 3, (4 * quarter - half) / 3
        noise = 1e-13 * max(size) / step
        if abs(fine - rough) <= 3e-7 * abs(fine) + noise:
            return fine, noise
    raise Unsettled(f"differences along {name} do not agree at any step")
