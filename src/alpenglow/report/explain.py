"""The report of a quantized model, layer by layer: noise, ranges, shares of time, and reasons."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.calibration.metrics import decibels
from alpenglow.calibration.ranges import observed
from alpenglow.calibration.samples import Dataset, Feeds
from alpenglow.calibration.tune import Halves, known_as
from alpenglow.driver.compile import compile as compile_model
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.target import Target
from alpenglow.measure.profile import InstrTime, profile
from alpenglow.quant.activations import unmoved
from alpenglow.quant.convert import written
from alpenglow.quant.naming import names
from alpenglow.quant.plan import Decision, Plan
from alpenglow.quant.profile import Profile
from alpenglow.runtime.executables.executor import Executable

SAMPLES = 16
"""Samples that noise is measured on."""

ROUNDS = 5
"""Runs that times are the medians of."""

SLOWER = 1.1
"""How much longer a layer must take to be called slower: times vary."""

DOT_PRODUCTS = {"x86-64": ("avx512vnni", "avxvnni"), "aarch64": ("i8mm", "dotprod")}
"""What multiplies bytes fast, by architecture."""


@dataclass(frozen=True, slots=True)
class LayerReport:
    """What is known of a layer.

    `stored` is "quantized", or the precision of its product, for which `why` is the reason.  `sqnr`
    is the ratio of its result's power to that of the noise in it, in decibels; `low`, `high`
    and `sparkline` tell of its operand as profiled; `before` and `after` are its seconds in a run
    of the original and of the quantized model, nan where no kernel could be told to be its.
    """

    name: str
    kind: str
    stored: str
    why: str
    sqnr: float
    low: float
    high: float
    sparkline: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The layers in order, seconds of all kernels before and after, and sentences on the whole."""

    layers: tuple[LayerReport, ...]
    before: float
    after: float
    notes: tuple[str, ...]

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table: the head, and a row a layer."""
        head = ("layer", "kind", "stored", "SQNR dB", "range of its operand", "", "time %", "→ %")
        return [head, *(self._row(x) for x in self.layers)]

    def sentences(self) -> list[str]:
        """Return a sentence for each layer that stays as it is, and those on the whole."""
        kept = [
            f"{x.name} {'stays in' if x.stored == 'f32' else 'takes'} {x.stored}: {x.why}."
            for x in self.layers
            if x.why
        ]
        return [*kept, *self.notes]

    def markdown(self) -> str:
        """Return the table and the sentences as Markdown."""
        head, *rows = self.rows()
        lines = [head, tuple("---" for _ in head), *rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return "\n".join([table, "", *(f"- {s}" for s in self.sentences())]) + "\n"

    def _row(self, x: LayerReport) -> tuple[str, ...]:
        seen = "" if math.isnan(x.low) else f"{x.low:.4g} to {x.high:.4g}"
        sqnr = "" if math.isnan(x.sqnr) else "exact" if math.isinf(x.sqnr) else f"{x.sqnr:.1f}"
        shares = [_percent(x.before, self.before), _percent(x.after, self.after)]
        return x.name, x.kind, x.stored, sqnr, seen, x.sparkline, *shares


def explain(
    made: Plan, profile: Profile | None, data: Dataset, threads: int | None = None,
    precision: Halves = "f32", keep: Collection[str] = (),
) -> Explanation:  # fmt: skip
    """Run the original and the quantized graph on some samples and tell how they differ.

    `precision` and `keep` are those that the quantized graph is compiled with, as far as times are
    told; the noise is from quantization alone.
    """
    g, env = written(made, floats=True)
    whole = [d for d in made.decisions if d.node in made.graph.nodes]
    results = [d.node.results[0] for d in whole]
    few = data.first(SAMPLES)
    noise = _noise(made.graph, g, env, results, few, threads)
    feeds = few.at(0)
    old = compile_model(made.graph, threads=threads)
    new = compile_model(g, threads=threads, precision=precision, keep=tuple(keep))
    before = _seconds(old, made.graph, feeds, results)
    after = _seconds(new, g, feeds, [env[v] for v in results])
    called = names(made.graph)
    layers = []
    for d in made.decisions:
        v = d.node.results[0]  # of one in a region neither noise nor time is known
        x = d.node.inputs[0]
        seen = profile.ranges.get(called.get(unmoved(x), "")) if profile and x else None
        low, high = (seen.low, seen.high) if seen else (math.nan, math.nan)
        line = seen.sparkline() if seen else ""
        layers.append(
            LayerReport(d.name, d.node.op.name, _stored(d, precision, keep), d.why,
                        decibels(noise[v]) if v in noise else math.nan, low, high, line,
                        before.layers.get(v, math.nan),
                        after.layers.get(env[v], math.nan) if v in env else math.nan)
        )  # fmt: skip
    notes = tuple(_notes(layers, before, after))
    return Explanation(tuple(layers), before.kernels, after.kernels, notes)


def _stored(d: Decision, precision: Halves, keep: Collection[str]) -> str:
    """Return what a layer takes: integers, or what the graph is compiled for unless it is kept."""
    if not d.why:
        return "quantized"
    return "f32" if {d.name, d.node.op.name, known_as(d)} & set(keep) else precision


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds of a run and of its layers, and all of its kernels."""

    run: float
    layers: Mapping[Value, float]
    parts: Sequence[InstrTime]

    @property
    def kernels(self) -> float:
        """What all kernels take together, each measured alone."""
        return sum(p.seconds for p in self.parts)


def _noise(
    old: Graph, new: Graph, env: Mapping[Value, Value], results: Iterable[Value], data: Dataset,
    threads: int | None,
) -> dict[Value, float]:  # fmt: skip
    """Return the power of the noise in each result as a share of that of the result."""
    before, wanted = observed(old, results)
    after, twins = observed(new, (env[v] for v in wanted.values()))
    assert wanted.keys() == twins.keys(), "outputs go by their numbers"
    runs = [compile_model(g, threads=threads) for g in (before, after)]
    noise: dict[str, float] = defaultdict(float)
    signal: dict[str, float] = defaultdict(float)
    for feeds in data:
        a, b = (exe.run(_as_taken(exe, feeds)) for exe in runs)
        for name in wanted:
            with np.errstate(all="ignore"):
                wide = a[name].astype(np.float64)
                noise[name] += float(((b[name].astype(np.float64) - wide) ** 2).sum())
                signal[name] += float((wide**2).sum())
    return {v: noise[n] / signal[n] if signal[n] else math.nan for n, v in wanted.items()}


def _as_taken(exe: Executable, feeds: Feeds) -> dict[str, Any]:
    return {n: feeds[n] for n in exe.inputs}


def _seconds(exe: Executable, g: Graph, feeds: Feeds, results: Sequence[Value]) -> _Times:
    """Return how long each layer takes; kernels that compute several are shared out evenly."""
    times = profile(exe, _as_taken(exe, feeds), g, ROUNDS)
    owner = {v.name: v for v in results if v.name}
    layers: dict[Value, float] = defaultdict(float)
    for part in times.parts:
        owners = [owner[n] for n in part.sources if n in owner]
        for v in owners:
            layers[v] += part.seconds / len(owners)
    return _Times(times.run, layers, times.parts)


def _notes(layers: Iterable[LayerReport], before: _Times, after: _Times) -> Iterator[str]:
    target = Target.parse("cpu")
    wanted = DOT_PRODUCTS.get(target.architecture, ())
    if wanted and not any(map(target.has, wanted)):
        yield (
            f"This CPU has no {' or '.join(wanted)}: products of bytes take several instructions, "
            "and int8 gains memory more than time."
        )
    alone = [p for p in after.parts if set(p.kind.split("+")) <= CONVERSIONS]
    if alone:
        seconds = sum(p.seconds for p in alone)
        yield (
            f"{_percent(seconds, after.kernels)} % of the time goes to kernels that only convert "
            f"between precisions, {len(alone)} in number.  They did not fuse because they stand "
            f"between kernels that compute in different ones, or at the edge: "
            f"{_some(map(_between, alone))}."
        )
    slower = [x.name for x in layers if not x.why and x.after > SLOWER * x.before]
    if slower:
        yield f"Slower than in f32: {_some(slower)}."
    if after.run:
        yield (
            f"A run took {before.run * 1e3:.3f} ms before and {after.run * 1e3:.3f} ms after "
            f"({before.run / after.run:.2f} ×)."
        )


def _between(p: InstrTime) -> str:
    """Say where a kernel stands."""
    name = ", ".join(p.sources) or p.kind
    return f"{name} (between {' and '.join(p.before)} and {' and '.join(p.after)})"


CONVERSIONS = {"quantize", "dequantize", "cast", "broadcast"}
"""Operators of kernels that compute nothing."""


def _some(words: Iterable[str], most: int = 6) -> str:
    listed = list(dict.fromkeys(words))
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole and not math.isnan(part) else ""
