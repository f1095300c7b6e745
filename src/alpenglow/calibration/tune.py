"""Tuning by accuracy: which layers can be quantized before more is lost than is allowed.

First each layer is quantized alone, which tells how much noise it makes in the results.  Then the
layers with the most noise for the work that they save are kept as they are, as few as will do: the
number is found by bisection.  At last each of those that were kept is tried again, the one with the
most work first.

Where the model is to be compiled for half precision, layers that are not quantized take halves, but
for those that lose too much in them too: these are found in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from alpenglow.base.errors import OptionError
from alpenglow.base.progress import Progress, silent
from alpenglow.calibration.metrics import Metric, Outputs, check_metric, decibels, loss
from alpenglow.calibration.samples import Dataset
from alpenglow.driver.compile import compile as compile_model
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.quant.convert import convert
from alpenglow.quant.layers import size, taps
from alpenglow.quant.options import QuantOptions
from alpenglow.quant.plan import Decision, Plan, plan
from alpenglow.quant.profile import Profile

Halves = Literal["f32", "bf16", "f16"]

PROBES = 32
"""Samples on which the noise of a single layer is measured."""

SECOND_TRIES = 8
"""How many of the layers that were kept are tried again."""


@dataclass(frozen=True, slots=True, eq=False)
class Tuning:
    """What was found: the plan, and what it loses by the metric.

    `before` and `after` are losses of the original and of the quantized model; `noise` holds, for
    each layer, the share of noise in the results if it is quantized alone, where a search was
    needed; `tried` counts the models that were measured.  `precision` is to be that of compiling
    the model, and `wide` what is to be kept from it.
    """

    plan: Plan
    metric: Metric
    before: float
    after: float
    noise: Mapping[str, float]
    tried: int
    precision: Halves = "f32"
    wide: tuple[str, ...] = ()

    @property
    def drop(self) -> float:
        """What is lost more than before."""
        return self.after - self.before


def tune(
    g: Graph,
    profile: Profile | None,
    data: Dataset,
    options: QuantOptions | None = None,
    *,
    metric: Metric = "agreement",
    max_drop: float = 0.005,
    precision: Halves = "f32",
    threads: int | None = None,
    progress: Progress = silent,
) -> Tuning:
    """Return the plan that quantizes as much work as `max_drop` allows of a loss by `metric`.

    What `options` keep stays kept.  Other layers that are not quantized take `precision`.  Raises
    FeedError where the metric needs labels and there are none.
    """
    check_metric(metric, data.labels)
    if not 0 <= max_drop <= 1:
        raise OptionError(f"max_drop is {max_drop}, expected a share between 0 and 1")
    search = _PlanSearch(g, profile, data, options or QuantOptions(), metric, threads, progress)
    tuning = search.made(max_drop)
    return tuning if precision == "f32" else search.halved(tuning, precision, max_drop)


class _PlanSearch:
    """The models that were tried, and what each of them lost."""

    def __init__(
        self, g: Graph, profile: Profile | None, data: Dataset, options: QuantOptions,
        metric: Metric, threads: int | None, progress: Progress,
    ) -> None:  # fmt: skip
        self.g, self.profile, self.data = g, profile, data
        self.options, self.metric = options, metric
        self.threads, self.progress = threads, progress
        self.lost: dict[frozenset[str], float] = {}
        self.reference = self.run(g, data)
        self.before = loss(metric, self.reference, self.reference, data.labels)

    def made(self, most: float) -> Tuning:
        all_layers = plan(self.g, self.profile, self.options)
        candidates = [d for d in all_layers.decisions if not d.why]
        kept: frozenset[str] = frozenset()
        noise: dict[str, float] = {}
        if candidates and self.loss(kept) - self.before > most:
            noise = self.noise(candidates)
            kept = self.search(candidates, noise, most)
        final = _told(self.plan(kept), kept, noise)
        tried = len(self.lost) + len(noise)
        return Tuning(final, self.metric, self.before, self.loss(kept), noise, tried)

    def search(
        self, candidates: list[Decision], noise: Mapping[str, float], most: float
    ) -> frozenset[str]:
        """Return the layers to keep so that no more than `most` is lost."""
        worst = sorted(candidates, key=lambda d: -noise[d.name] / max(work(d), 1))
        kept = _fewest([d.name for d in worst], lambda few: self.loss(few) - self.before <= most)
        again = sorted((d for d in candidates if d.name in kept), key=lambda d: -work(d))
        for d in again[:SECOND_TRIES]:
            fewer = kept - {d.name}
            if self.loss(fewer) - self.before <= most:
                kept = fewer
        return kept

    def halved(self, tuning: Tuning, precision: Halves, most: float) -> Tuning:
        """Return the tuned graph, with half precision in layers that are not quantized."""
        g = convert(tuning.plan, floats=True)
        asked = self.options.keep
        left = [d for d in tuning.plan.decisions if d.why and isinstance(d.node.op, Conv | MatMul)]
        rest = [known_as(d) for d in left if not asked & {d.name, d.node.op.name}]
        lost: dict[frozenset[str], float] = {}

        def loses(wide: frozenset[str]) -> float:
            if wide not in lost:
                outputs = self.run(g, self.data, precision, wide | asked)
                lost[wide] = loss(self.metric, outputs, self.reference, self.data.labels)
            return lost[wide]

        wide: frozenset[str] = frozenset()
        if rest and loses(wide) - self.before > most:
            few = self.data.first(PROBES)
            full = self.run(g, few)
            noise = {}
            for i, name in enumerate(rest, 1):
                alone = self.run(g, few, precision, asked | set(rest) - {name})
                noise[name] = loss("sqnr", alone, full, None)
                self.progress("sensitivity", i, len(rest))
            worst = sorted(rest, key=lambda name: -noise[name])
            wide = _fewest(worst, lambda few: loses(few) - self.before <= most)
        after = loses(wide) if rest else tuning.after
        return replace(tuning, after=after, tried=tuning.tried + len(lost), precision=precision,
                       wide=tuple(sorted(wide | asked)))  # fmt: skip

    def noise(self, candidates: list[Decision]) -> dict[str, float]:
        """Return, for each layer, the noise that it makes if it alone is quantized."""
        data = self.data.first(PROBES)
        reference = self.run(self.g, data)
        noise = {}
        for i, d in enumerate(candidates, 1):
            alone = replace(self.options, only=frozenset({d.name}))
            g = convert(plan(self.g, self.profile, alone), floats=True)
            noise[d.name] = loss("sqnr", self.run(g, data), reference, None)
            self.progress("sensitivity", i, len(candidates))
        return noise

    def plan(self, kept: frozenset[str]) -> Plan:
        return plan(self.g, self.profile, replace(self.options, keep=self.options.keep | kept))

    def loss(self, kept: frozenset[str]) -> float:
        """Return what is lost if these layers are kept."""
        if kept not in self.lost:
            trial = self.plan(kept)
            made = convert(trial, floats=True) if trial.stores else None
            outputs = self.reference if made is None else self.run(made, self.data)
            self.lost[kept] = loss(self.metric, outputs, self.reference, self.data.labels)
            self.progress("search", len(self.lost), len(self.lost))
        return self.lost[kept]

    def run(
        self, g: Graph, data: Dataset, precision: Halves = "f32", keep: Iterable[str] = ()
    ) -> Outputs:
        exe = compile_model(g, taking_halves(), self.threads, precision=precision, keep=tuple(keep))
        return [exe.run(feeds) for feeds in data]


def taking_halves() -> Target:
    """Return this host as one that multiplies halves as fast as any: a plan is for others, too."""
    host = Target.parse("cpu")
    return replace(host, facts=replace(host.facts, slower=()))


def _fewest(worst: list[str], enough: Callable[[frozenset[str]], bool]) -> frozenset[str]:
    """Return the first few of some names that are enough, if all of them are; by bisection."""
    low, high = 0, len(worst)
    while high - low > 1:
        middle = (low + high) // 2
        if enough(frozenset(worst[:middle])):
            high = middle
        else:
            low = middle
    return frozenset(worst[:high])


def known_as(d: Decision) -> str:
    """Return the name of a layer's result, or of what becomes of it."""
    v = d.node.results[0]
    while not v.name and len(v.users) == 1:
        v = next(iter(v.users)).results[0]
    return v.name


def _told(chosen: Plan, kept: frozenset[str], noise: Mapping[str, float]) -> Plan:
    """Return a plan that says of the layers kept by the search why they are."""
    why = "quantized alone it leaves the results {:.1f} dB, and too much would be lost"
    decisions = tuple(
        replace(d, why=why.format(decibels(noise[d.name]))) if d.name in kept else d
        for d in chosen.decisions
    )
    return replace(chosen, decisions=decisions)


def work(d: Decision) -> int:
    """Return the multiplications of a layer."""
    return size(d.node.results[0].type) * taps(d.node)
