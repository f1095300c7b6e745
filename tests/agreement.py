"""Graphs compiled for vectors of 16, 8 and 4 lanes, beside what the evaluator makes of them.

Mistakes of kernels depend on the number of lanes, and on what else a graph has: many small cases
are outputs of one graph, which takes a tenth of the time of as many graphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import TensorType

Array = NDArray[Any]
Numerics = Literal["fast", "strict"]

TARGETS = [
    target
    for target in map(ag.Target.parse, ("x86-64-v4", "x86-64-v3", "x86-64-v2"))
    if target.is_host_compatible()
] or [ag.Target.parse("cpu")]
"""Machines of 16, 8 and 4 lanes, as far as this one runs their code."""


def drawn(g: Graph, seed: int = 0) -> dict[str, Array]:
    """Return normal numbers for the inputs of a graph, small integers where they are integers."""
    random = np.random.default_rng(seed)
    return {name: _drawn(random, v.type) for name, v in g.inputs.items()}


def _drawn(random: np.random.Generator, t: TensorType) -> Array:
    if t.numpy.kind in "iub":
        low = 0 if t.numpy.kind != "i" else -9
        return random.integers(low, 2 if t.dtype == "bool" else 9, t.extents).astype(t.numpy)
    return random.standard_normal(t.extents).astype(t.numpy)


def disagreements(
    g: Graph,
    feeds: Mapping[str, Array] | None = None,
    numerics: Sequence[Numerics] = ("fast",),
    tolerance: float = 1e-5,
    targets: Sequence[ag.Target] = TARGETS,
) -> list[str]:
    """Return the outputs in which compiled code differs from the evaluator, and on which machine.

    The tolerance is relative to the largest element of an output.
    """
    given = drawn(g) if feeds is None else feeds
    expected = evaluate(g, given)
    found = []
    for target in targets:
        for kind in numerics:
            exe = ag.compile(g, target=target, options=ag.Options(numerics=kind))
            for name, actual in exe.run(given).items():
                if not close(expected[name], actual, tolerance):
                    found.append(f"{name} ({target}, {kind})")
    return found


def close(expected: Array, actual: Array, tolerance: float) -> bool:
    """Whether outputs are of one type, not finite at the same places, and close."""
    if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
        return False
    if expected.dtype.kind in "iub":
        return bool(np.array_equal(expected, actual))
    wide, got = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(wide)
    if not np.array_equal(wide[~finite], got[~finite], equal_nan=True):
        return False
    scale = np.abs(wide[finite]).max(initial=0.0)
    return bool(np.all(np.abs(wide[finite] - got[finite]) <= tolerance * scale))
