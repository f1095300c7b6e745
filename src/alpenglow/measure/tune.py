"""Tuning: contractions of a model in each of the ways that there are, timed by turns.

Each problem is compiled alone, behind an elementwise operator that leaves its operand in the cache
and with an activation behind it.  Between two runs the caches are swept, since in a network weights
are read once a run.  Only what is clearly faster than the choice by rule is written down.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from alpenglow.base.progress import Progress, silent
from alpenglow.compiler import Options
from alpenglow.compiler.pipeline import run_stages
from alpenglow.driver.compile import compile
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.measure.flops import flops
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.movement import Broadcast
from alpenglow.passes.choices import Met, Problem, Record, Ways, meeting
from alpenglow.runtime.executables.executor import Executable

ROUNDS = 9
"""Each way is run so many times; the fastest run counts."""

CLEARLY = 0.97
"""What is to be written down takes at most this share of the time of the choice by rule."""

SWEEP_NBYTES = 48 << 20
"""Memory that is read between two runs."""


@dataclass(frozen=True)
class Tuned:
    """What was found for one problem: the rule's way and its seconds, and the best way and its."""

    problem: str
    rule: Ways
    rule_seconds: float
    best: Ways
    best_seconds: float

    @property
    def better(self) -> bool:
        """Whether another way is clearly faster than the rule's."""
        return self.best_seconds < CLEARLY * self.rule_seconds


@dataclass(frozen=True)
class TuningReport:
    """What a session found, and how many of the model's problems it had time for."""

    found: tuple[Tuned, ...]
    problems: int

    @property
    def record(self) -> Record:
        """What is worth writing down."""
        return Record({t.problem: t.best for t in self.found if t.better})


def tune(
    g: Graph, target: Target, threads: int | None, seconds: float, progress: Progress = silent,
    options: Options | None = None,
) -> TuningReport:  # fmt: skip
    """Measure the contractions of a graph, those with most work first, for about `seconds`.

    They are those that compiling with `options` meets.
    """
    end = time.perf_counter() + seconds
    met = problems(g, target, options)
    order = sorted(met.values(), key=lambda m: -flops(alone(m.problem)))
    tuned: list[Tuned] = []
    for i, one in enumerate(order):
        if time.perf_counter() > end:
            break
        progress("tuning", i, len(order))
        tuned.append(measured(one, threads))
    progress("tuning", len(tuned), len(order))
    return TuningReport(tuple(tuned), len(order))


def problems(g: Graph, target: Target, options: Options | None = None) -> dict[str, Met]:
    """Return the contractions for which there is something to choose, by their text."""
    untuned = replace(options or Options(), tuning=Record())
    with meeting() as met:
        for stage, _ in run_stages(g.copy(), target, untuned):
            if stage.name == "layout":
                break
    return {text: m for text, m in met.items() if any(map(len, m.choices.values()))}


def ways(met: Met) -> Iterator[Ways]:
    """Yield the ways to compute a problem, the rule's first."""
    names = list(met.choices)
    seen: list[Ways] = []
    for numbers in product(*(dict.fromkeys(met.choices[name]) for name in names)):
        way = dict(zip(names, numbers, strict=True))
        if way not in seen:
            seen.append(way)
            yield way


def alone(problem: Problem) -> Graph:
    """Return a graph that computes one problem and little else."""
    g = Graph("problem")
    random = np.random.default_rng(0)

    def constant(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        if dtype.kind == "f":
            return random.standard_normal(shape).astype(dtype)
        return random.integers(-100, 100, shape).astype(dtype)

    x = g(Relu(), g.input("x", problem.x)) if problem.x.dtype == "f32" else g.input("x", problem.x)
    w = g.constant(constant(problem.w.extents, problem.w.numpy))
    if not isinstance(problem.op, Conv):
        lead = problem.x.shape[:-2]
        w = g(Broadcast((*lead, *problem.w.shape)), w) if lead else w
    y = g(problem.op, x, w)
    g.output("y", g(Relu(), y) if y.type.dtype == "f32" else y)
    return g


def measured(met: Met, threads: int | None) -> Tuned:
    """Compile one problem in every way and time them by turns."""
    text = str(met.problem)
    pairs: list[tuple[Ways, Executable]] = []
    for way in ways(met):
        options = Options(tuning=Record({text: way}))
        pairs.append((way, compile(alone(met.problem), met.problem.target, threads, None, options)))
    x = np.ones(met.problem.x.extents, met.problem.x.numpy)
    best = [np.inf] * len(pairs)
    swept = np.zeros(SWEEP_NBYTES, np.uint8)
    for _ in range(ROUNDS):
        for i, (_, exe) in enumerate(pairs):
            swept += 1
            begin = time.perf_counter()
            exe.run({"x": x})
            best[i] = min(best[i], time.perf_counter() - begin)
    fastest = int(np.argmin(best))
    return Tuned(text, pairs[0][0], best[0], pairs[fastest][0], best[fastest])
