"""`place`: from a model and workers to a placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.log import log
from alpenglow.base.words import shown, some
from alpenglow.compiler import Options
from alpenglow.driver.compile import loaded
from alpenglow.host.provision import memory_of
from alpenglow.host.worker import Worker, check_workers
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import refuse_staged
from alpenglow.ir.types import Array
from alpenglow.placement.cost import Costs, costs
from alpenglow.placement.cut import part
from alpenglow.placement.schedule import Schedule, Traffic, traffic
from alpenglow.placement.search import Best, Cuts, Goal, Interval, soonest, steadiest
from alpenglow.placement.split import handed_out, parts_needed, split
from alpenglow.placement.text import Placement, Stage
from alpenglow.report.check import planned

CALL = 30e-6
"""Seconds that a stage costs besides: a queue, a call, and values that change their layout."""

TRIES = 30
"""How many placements are planned before it is given up that one keeps the limits."""


def place(
    model: Any,
    workers: Sequence[Worker],
    goal: Goal = "latency",
    *,
    pins: Mapping[str, str] | None = None,
    replicate: bool = False,
    tables_first: bool = False,
    measure: bool = True,
    shapes: Mapping[str, Sequence[int]] | None = None,
    options: Options | None = None,
) -> Placement:
    """Choose the worker that runs each node of a model, for the best latency or throughput.

    The schedule is cut into intervals.  The search includes the transfer of values over the links
    of workers and returns the best cuts; `Placement.within` bounds the loss if better cuts may
    exist.  A convolution, matrix multiplication or table whose weights fit no worker is split into
    parts.  The logger `alpenglow` reports the choice at INFO.

    Args:
        model: a model that `compile` takes.
        workers: the workers.
        goal: "latency" minimises the time of a single request, "throughput" the time between
            results of queued requests; then each worker has at most one stage.
        pins: names of workers by the names of results that they must compute.
        replicate: True lets workers without a stage run copies of the slowest stages.
        tables_first: True assigns tables whose rows are gathered first, the largest first, each to
            the first worker with room.
        measure: True measures each node, so the targets must run here; False estimates the times.
        shapes: the shapes of inputs with dynamic dimensions, by input name.
        options: the options of the compiler; None: `Options()`.

    Returns:
        The placement, whose text can be saved and edited.

    Raises:
        OptionError: if workers or pins contradict each other.
        UnsupportedError: if a stage fits no worker; it names the worker and the missing memory.

    Example:
        >>> workers = [ag.Worker(name, ag.Target.parse("cpu")) for name in ("left", "right")]
        >>> placement = ag.place("model.onnx", workers, measure=False, shapes={"x": (1, 8)})
        >>> placement.summary()
        '3/3 nodes on left; nothing is cut'
    """
    if goal not in get_args(Goal):
        raise OptionError(f"goal is {goal!r}, expected {' or '.join(map(repr, get_args(Goal)))}")
    check_workers(workers)
    graph = loaded(model, shapes, None)
    if not isinstance(graph, Graph):
        refuse_staged("placed")
    schedule = Schedule(graph)
    if not schedule.nodes:
        raise UnsupportedError(f"placing {shown(graph.name)}, which has no nodes, is not supported")
    splits: dict[str, int] = {}
    if None not in [w.memory for w in workers]:
        splits = parts_needed(schedule, max(w.memory or 0 for w in workers))
        schedule = Schedule(split(graph, splits))
    fixed = _pinned(schedule, workers, pins or {})
    if tables_first:
        fixed = {**handed_out(schedule, workers), **fixed}
    chosen = options or Options()
    by_target: dict[tuple[Any, int], Costs] = {}
    for w in workers:
        if (w.target, w.threads) not in by_target:
            by_target[w.target, w.threads] = costs(schedule, w, chosen, measure)
    each = [by_target[w.target, w.threads] for w in workers]
    search = _Search(schedule, workers, each, fixed, chosen)
    placement = replace(search.best(goal), splits=splits)
    if replicate:
        placement = search.replicated(placement)
    log.info("placed %s: %s", shown(graph.name), placement.summary())
    return placement


def _pinned(s: Schedule, workers: Sequence[Worker], pins: Mapping[str, str]) -> dict[int, int]:
    """Return the workers, by number, of nodes that are pinned."""
    nodes = {v.name: k for k, node in enumerate(s.nodes) for v in node.results}
    numbers = {w.name: d for d, w in enumerate(workers)}
    fixed: dict[int, int] = {}
    for name, worker in pins.items():
        if name not in nodes:
            raise OptionError(f"pins names '{name}', expected results of nodes", hint=some(nodes))
        if worker not in numbers:
            known = ", ".join(numbers)
            raise OptionError(f"'{name}' is pinned to '{worker}', expected one of {known}")
        if fixed.setdefault(nodes[name], numbers[worker]) != numbers[worker]:
            other = workers[fixed[nodes[name]]].name
            raise OptionError(f"'{name}' is pinned to '{worker}', expected '{other}' as its node")
    return fixed


@dataclass
class _Search:
    """Finding stages, planning them, and trying anew where they do not fit."""

    schedule: Schedule
    workers: Sequence[Worker]
    costs: Sequence[Costs]
    fixed: Mapping[int, int]
    options: Options

    def __post_init__(self) -> None:
        s, n = self.schedule, len(self.schedule.nodes)
        joined = frozenset.union(*(c.joined for c in self.costs))
        # Where other workers may or compile than before, an instruction is taken apart.
        inner = (p for p in range(1, n) if p not in joined or self._able(p) != self._able(p - 1))
        self.positions = [0, *inner, n]
        self.traffic: Traffic = traffic(s, self.positions)
        self.planned: dict[tuple[int, int, Any], int] = {}
        seconds = np.stack([c.seconds for c in self.costs], axis=1)
        self.before = np.concatenate([np.zeros((1, seconds.shape[1])), seconds.cumsum(0)])
        self.nbytes = np.repeat(
            (self.traffic.weights + self.traffic.alive + self.traffic.into + self.traffic.out)
            [:, :, None], len(self.workers), axis=2,
        )  # fmt: skip

    def _able(self, k: int) -> tuple[int | None, ...]:
        """Return where a node is pinned, and the workers that compile it."""
        compiling = (d for d, c in enumerate(self.costs) if k not in c.lacks)
        return (self.fixed.get(k), *compiling)

    def computing(self, cut: Interval) -> float:
        begin, end = self.positions[cut.begin], self.positions[cut.end]
        return float(self.before[end, cut.worker] - self.before[begin, cut.worker])

    def copying(self, cut: Interval) -> float:
        link, t = self.workers[cut.worker].link, self.traffic
        into, out = t.into[cut.begin, cut.end], t.out[cut.begin, cut.end]
        return link.time_of(int(into)) + link.time_of(int(out))

    def _seconds(self) -> Array:
        """Return what each stage takes on each worker: infinity where it must not be."""
        at = np.array(self.positions)
        inside = self.before[at][None, :, :] - self.before[at][:, None, :]
        total: Array = inside + CALL
        for d, w in enumerate(self.workers):
            for nbytes in (self.traffic.into, self.traffic.out):
                delay = np.where(nbytes > 0, w.link.seconds, 0.0)
                total[:, :, d] += delay + nbytes / w.link.bandwidth
            elsewhere = [k for k, worker in self.fixed.items() if worker != d]
            count = np.zeros(len(self.schedule.nodes) + 1)
            count[np.array(elsewhere, int) + 1] = 1
            pinned = count.cumsum()[at]
            total[:, :, d][pinned[None, :] - pinned[:, None] > 0] = np.inf
        return total

    def best(self, goal: Goal) -> Placement:
        """Return the best placement whose memory, once planned, keeps the limits."""
        seconds = self._seconds()
        limits = [np.inf if w.memory is None else w.memory for w in self.workers]
        for _ in range(TRIES):
            found = self._found(goal, seconds, limits)
            if found is None:
                raise self._nothing_fits(seconds, goal)
            if self._plan(found.cuts, limits):
                return self._placement(goal, found)
        raise self._nothing_fits(seconds, goal)

    def _found(self, goal: Goal, seconds: Array, limits: Sequence[float]) -> Best | None:
        if goal == "latency":
            return soonest(seconds, self.nbytes, limits)
        kinds = [(w.target, w.threads, w.memory, w.link) for w in self.workers]
        pinned = set(self.fixed.values())
        alike = [d if d in pinned else kinds.index(kind) for d, kind in enumerate(kinds)]
        cuts = steadiest(seconds, self.nbytes, limits, alike)
        return None if cuts is None else Best(cuts)

    def _plan(self, cuts: Cuts, limits: Sequence[float]) -> bool:
        """Plan the stages of limited workers, remember what they need, and say if that fits."""
        used = np.zeros(len(self.workers))
        for c in cuts:
            if np.isfinite(limits[c.worker]):
                self._remember(c)
            used[c.worker] += self.nbytes[c.begin, c.end, c.worker]
        return bool((used <= limits).all())

    def _remember(self, c: Interval) -> None:
        """Take what the planner says of a stage for what it needs, on all workers of the target."""
        target = self.workers[c.worker].target
        key = (c.begin, c.end, target)
        if key not in self.planned:
            self.planned[key] = self._memory(c)
        for d, w in enumerate(self.workers):
            if w.target == target:
                self.nbytes[c.begin, c.end, d] = self.planned[key]

    def _memory(self, c: Interval) -> int:
        """Return the bytes of a stage as planned: weights, arena, inputs and outputs."""
        begin, end = self.positions[c.begin], self.positions[c.end]
        program = planned(
            part(self.schedule, begin, end), self.workers[c.worker].target, options=self.options
        )
        return memory_of(program)

    def _nothing_fits(self, seconds: Array, goal: Goal) -> UnsupportedError:
        """Return the error that says what stands in the way."""
        name = shown(self.schedule.graph.name)
        limited = [w for w in self.workers if w.memory is not None]
        least = [self.nbytes[k, k + 1].min() for k in range(len(self.positions) - 1)]
        k = int(np.argmax(least))
        first = self.schedule.name(self.positions[k])
        most = max((w.memory or np.inf for w in self.workers), default=np.inf)
        if limited and least[k] > most:
            return UnsupportedError(
                f"{name}: '{first}' needs {int(least[k]):,} bytes, and no worker has more than "
                f"{int(most):,}", hint="a worker with more memory",
            )  # fmt: skip
        if limited:
            rooms = ", ".join(f"{w.name} ({w.memory:,} bytes)" for w in limited)
            return UnsupportedError(
                f"{name} does not fit: its stages were tried on {rooms}",
                hint="more memory, or another worker",
            )
        hint = "a worker has one stage at most for throughput: fewer pins, or goal='latency'"
        return UnsupportedError(f"{name}: no cut keeps to the pins", hint=hint)

    def _placement(self, goal: Goal, found: Best) -> Placement:
        stages: list[Stage] = []
        for k, c in enumerate(found.cuts):
            begin, end = self.positions[c.begin], self.positions[c.end]
            crossing = int(self.traffic.into[c.begin, c.end]) if k else 0
            why = self._why(goal, found.cuts, k) if k else ""
            stages.append(Stage(
                self.workers[c.worker].name, begin, end, self.schedule.name(begin),
                _rounded(self.computing(c)), _rounded(self.copying(c)),
                int(self.nbytes[c.begin, c.end, c.worker]), crossing, why,
            ))  # fmt: skip
        return Placement(
            self.schedule.graph.name, goal, tuple(self.workers), tuple(stages), found.within
        )

    def _why(self, goal: Goal, cuts: Cuts, k: int) -> str:
        """Return why stage k is not of the worker of the stage before."""
        before, here = cuts[k - 1], cuts[k]
        left, right = self.workers[before.worker].name, self.workers[here.worker].name
        nodes = range(self.positions[here.begin], self.positions[here.end])
        pinned = next((n for n in nodes if self.fixed.get(n, before.worker) != before.worker), None)
        if pinned is not None:
            return f"{self.schedule.name(pinned)} → {right}: pinned"
        lacks = self.costs[before.worker].lacks
        missing = next(
            (n for n in nodes if n in lacks and n not in self.costs[here.worker].lacks), None
        )
        if missing is not None:
            op = self.schedule.nodes[missing].op.name
            return f"{self.schedule.name(missing)} → {right}: not compiled for {left} ({op})"
        memory = self.workers[before.worker].memory
        if memory is not None and self.nbytes[before.begin, here.end, before.worker] > memory:
            return f"{self.schedule.name(nodes[0])} → {right}: {left} has {memory:,} bytes"
        times = [self.computing(c) + self.copying(c) for c in (before, here)]
        if goal == "throughput":
            return f"to balance {left} ({_ms(times[0])}) and {right} ({_ms(times[1])})"
        there = self.computing(replace(here, worker=before.worker))
        return f"{self.schedule.name(nodes[0])} → {right}: {_ms(times[1])} instead of {_ms(there)}"

    def replicated(self, placement: Placement) -> Placement:
        """Return a placement in which workers without a stage share the slowest that they can."""
        stages = list(placement.stages)
        busy = {s.worker for s in stages}
        for w in self.workers:
            if w.name in busy:
                continue
            alike = [
                k for k, s in enumerate(stages)
                if placement.worker(s.worker).target == w.target
                and placement.worker(s.worker).threads == w.threads
                and (w.memory is None or s.nbytes <= w.memory)
                and not any(k in self.fixed for k in range(s.begin, s.end))
            ]  # fmt: skip
            if alike:
                k = max(alike, key=lambda k: stages[k].takes)
                stages[k] = replace(stages[k], replicas=(*stages[k].replicas, w.name))
        return replace(placement, stages=tuple(stages))


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
