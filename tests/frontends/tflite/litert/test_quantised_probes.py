"""Operators on integers that stand for reals, beside LiteRT's reference kernels and XNNPACK."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.frontends.tflite.litert import (
    quantised_probes,
    quantised_probes_elementwise,
    quantised_probes_structure,
)
from tests.frontends.tflite.litert.probe import Probe
from tests.frontends.tflite.litert.quantised_probes import RANDOM
from tests.frontends.tflite.litert.test_probes import Family, drawn_like, listed, wrong
from tests.frontends.tflite.litert.written import run, run_steps, written

import alpenglow as ag
from alpenglow.base.errors import FeedError
from alpenglow.evaluate import evaluate
from alpenglow.frontends.tflite.file.model import Grid
from alpenglow.frontends.tflite.loading import load
from alpenglow.frontends.tflite.roundings import ROUNDINGS
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array

FAMILIES = (
    *quantised_probes.FAMILIES,
    *quantised_probes_elementwise.FAMILIES,
    *quantised_probes_structure.FAMILIES,
)

COMPILED = 0.2
"""What share of probes is compiled, too."""


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_integers_equal_those_of_litert(
    family: Family, rounding: str, pytestconfig: pytest.Config, no_cache: None
) -> None:
    share = pytestconfig.getoption("--sample")
    draw = random.Random(family.__name__)
    failures, tried = [], 0
    RANDOM.bit_generator.state = np.random.default_rng(7).bit_generator.state
    for probe in family():
        kept, compiled = draw.random() < share, draw.random() < COMPILED
        if not kept:
            continue
        found = oracle(probe, rounding)
        if found is None:
            continue
        model, wanted = found
        tried += 1
        graph = load(model, rounding=rounding)
        if compiled or not isinstance(graph, Graph):
            made = listed(ag.compile(graph)(*probe.inputs()))
        else:
            feeds = dict(zip(graph.inputs, probe.inputs(), strict=True))
            made = list(evaluate(graph, feeds).values())
        if said := wrong(made, near(made, wanted, probe.off)):
            failures.append(f"{probe}: {said}")

    assert tried or share < 1
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("family", quantised_probes_structure.STATEFUL, ids=lambda f: f.__name__)
def test_layers_go_on_from_what_they_remember(
    family: Family, rounding: str, pytestconfig: pytest.Config, no_cache: None
) -> None:
    share = max(pytestconfig.getoption("--sample"), 0.1)
    draw, numbers = random.Random(rounding), np.random.default_rng(1)
    RANDOM.bit_generator.state = np.random.default_rng(7).bit_generator.state
    for probe in family():
        if draw.random() >= share:
            continue
        steps = [[drawn_like(v, numbers) for v in probe.inputs()] for _ in range(4)]
        wanted = run_steps(written(probe), steps, rounding == "reference")
        model = written(probe, [w.shape for w in wanted[0]])
        session = ag.compile(model, rounding=rounding).session()

        for feeds, results in zip(steps, wanted, strict=True):
            assert not wrong(listed(session(*feeds)), results), probe


@pytest.mark.parametrize("kind", ["SQRT", "RSQRT", "DIV"])
def test_what_is_not_defined_ends_the_call(kind: str) -> None:
    x, g = np.array([3, 4], np.int8), Grid((0.1,), (4,), 0)
    y = Grid((0.1 / 128,), (0,), 0)
    operands = [x] * (2 if kind == "DIV" else 1)
    graph = load(written(Probe(kind, operands, grids=[*[g] * len(operands), y]), [(2,)]))

    with pytest.raises(FeedError, match="1, expected 0"):
        ag.compile(graph)(*operands)
    with pytest.raises(FeedError, match="1, expected 0"):
        evaluate(graph, dict(zip(graph.inputs, operands, strict=True)))


def near(made: list[Array], wanted: list[Array], off: int) -> list[Array]:
    """Return what is wanted, or what was made where that is no more steps off."""
    if not off:
        return wanted
    return [np.where(abs(w.astype(np.int64) - m) <= off, m, w).astype(w.dtype)
            for w, m in zip(wanted, made, strict=True)]  # fmt: skip


def oracle(probe: Probe, rounding: str) -> tuple[bytes, list[Array]] | None:
    """Return the model of a probe and what LiteRT makes of it; None where it has nothing for it.

    XNNPACK takes operators whose results have their shapes said.
    """
    reference = rounding == "reference"
    if probe.only not in ("", rounding):
        return None
    try:
        wanted = run(written(probe), probe.inputs(), reference)
        model = written(probe, [w.shape for w in wanted])
        return model, wanted if reference else run(model, probe.inputs(), False)
    except (RuntimeError, ValueError):
        return None
