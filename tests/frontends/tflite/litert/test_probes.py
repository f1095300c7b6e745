"""Operators one by one, over the space of their attributes, beside LiteRT.

LiteRT has its reference kernels and those that users run; where it differs from itself, one of them
is right.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from tests.frontends.tflite.litert.probe import Probe
from tests.frontends.tflite.litert.probes import FAMILIES, STATEFUL
from tests.frontends.tflite.litert.written import run, run_steps, written

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.frontends.tflite.loading import load
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array

CLOSE = 1e-5
"""By how much of the range of a result floats may differ."""

COMPILED = 0.1
"""What share of probes is compiled, too, if no other is asked for; others are evaluated."""

OTHERWISE = frozenset({"LOCAL_RESPONSE_NORMALIZATION"})
"""Reference kernels of these leave out the last channel of a window."""

STEPS = 3

Family = Callable[[], Iterator[Probe]]


def difference(made: Array, wanted: Array) -> str:
    """Return what is wrong with a result, or nothing."""
    if made.shape != wanted.shape or made.dtype != wanted.dtype:
        return f"{made.dtype}{made.shape}, expected {wanted.dtype}{wanted.shape}"
    if made.dtype.kind not in "fc":
        return "" if np.array_equal(made, wanted) else f"{(made != wanted).sum()} differ"
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(made)):
        return "other elements are finite"
    most = np.abs(wanted[finite]).max(initial=1e-30)
    worst = np.abs(made[finite] - wanted[finite]).max(initial=0) / most
    return "" if worst < CLOSE else f"{worst:.2g} of the range"


def wrong(made: Sequence[Array], wanted: Sequence[Array]) -> str:
    if len(made) != len(wanted):
        return f"{len(made)} results, expected {len(wanted)}"
    return "; ".join(filter(None, map(difference, made, wanted)))


def listed(result: Array | Sequence[Array]) -> list[Array]:
    return list(result) if isinstance(result, tuple | list) else [np.asarray(result)]


def oracle(probe: Probe) -> list[Array] | None:
    """Return what LiteRT makes of a probe; None where it has nothing for it."""
    for reference in (probe.kind not in OTHERWISE, False):
        try:
            return run(written(probe), probe.inputs(), reference)
        except (RuntimeError, ValueError):
            continue
    return None


def drawn_like(v: Array, numbers: np.random.Generator) -> Array:
    """Return other elements than those of an operand: small floats, or any integers."""
    if v.dtype.kind == "f":
        return numbers.uniform(-2, 2, v.shape).astype(v.dtype)
    info = np.iinfo(v.dtype)
    return numbers.integers(info.min, info.max, v.shape, v.dtype, endpoint=True)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_operators_equal_those_of_litert(
    family: Family, pytestconfig: pytest.Config, no_cache: None
) -> None:
    share = pytestconfig.getoption("--sample")
    draw = random.Random(family.__name__)
    failures = []
    tried = 0
    for probe in family():
        wanted = oracle(probe)
        if wanted is None:
            continue
        tried += 1
        model = written(probe, [w.shape for w in wanted])
        graph = load(model)
        if isinstance(graph, Graph) and draw.random() >= share:
            made = list(
                evaluate(graph, dict(zip(graph.inputs, probe.inputs(), strict=True))).values()
            )
        else:
            made = listed(ag.compile(model)(*probe.inputs()))
        if said := wrong(made, wanted):
            failures.append(f"{probe}: {said}")

    assert tried
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("family", STATEFUL, ids=lambda f: f.__name__)
def test_layers_go_on_from_the_state_that_the_last_call_left(
    family: Family, pytestconfig: pytest.Config, no_cache: None
) -> None:
    share = pytestconfig.getoption("--sample")
    draw = random.Random(family.__name__)
    numbers = np.random.default_rng(1)
    failures = []
    for probe in family():
        if draw.random() >= max(share, 0.2):
            continue
        steps = [[drawn_like(v, numbers) for v in probe.inputs()] for _ in range(STEPS)]
        wanted = run_steps(written(probe), steps)
        session = ag.compile(written(probe, [w.shape for w in wanted[0]])).session()
        for feeds, results in zip(steps, wanted, strict=True):
            if said := wrong(listed(session(*feeds)), results):
                failures.append(f"{probe}: {said}")

    assert not failures, "\n".join(failures)
