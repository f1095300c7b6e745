"""The same random models everywhere: under many settings, and by whoever else can run them.

    python -m tests.fuzz.differential --count 500 --seed 0

tries seeds and prints what differs, each time as a model that has been made small; `--keep FOLDER`
writes it.  What is to be recorded and resumed is a campaign (`campaign`).
"""

from __future__ import annotations

import argparse
import itertools
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, shape_inference

from alpenglow.debug.probe import Lost, Probe
from alpenglow.debug.reduce import recorded, reduce
from alpenglow.frontends.onnx.cut import Case, exposed

from .draft import Draft, operators
from .judge import Problem, Trial, Verdict, judge, judge_all
from .models import draft, sizes, special
from .oracles import ORACLES
from .settings import Setting, drawn

Array = NDArray[Any]
Feeds = Mapping[str, Array]

SECONDS = 120.0
"""Of a batch of models, on a machine that may be busy."""

NBYTES = 4 << 30

WORN = 1500 << 10
"""KiB of a process that is to be replaced: LLVM keeps some of what it compiles for ever."""

BATCH = 12
"""Models that are judged in one call, and compiled by gcc in one file."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, the seed that shows it, and the smallest model found that does."""

    seed: int
    problem: Problem
    case: Case

    def __str__(self) -> str:
        nodes = ", ".join(map(described, self.case.nodes))
        fed = ", ".join(f"{k} {a.dtype}{list(a.shape)}" for k, a in self.case.feeds.items())
        return f"seed {self.seed}: {self.problem}\n    {nodes}   of {fed}"


def described(node: onnx.NodeProto) -> str:
    given = ", ".join(f"{a.name}={helper.get_attribute_value(a)}" for a in node.attribute)
    return f"{node.op_type}({given})"


@dataclass(slots=True)
class Tried:
    """What a seed showed: the operators of its model, and the verdict."""

    seed: int
    operators: tuple[str, ...] = ()
    verdict: Verdict = field(default_factory=Verdict)
    kinds: tuple[str, ...] = ()
    finding: Finding | None = None

    def cases(self) -> int:
        """Count the widths and numerics that were compared, if somebody confirmed the results."""
        return self.compared() if self.verdict.confirmed else 0

    def compared(self) -> int:
        """Count the widths and numerics that were compared with the reference."""
        return len(self.widths())

    def widths(self) -> set[str]:
        """Return the widths and numerics that were compared with the reference: "16 strict"."""
        fine = (t for t, how in self.verdict.ran.items() if how not in ("unsupported", "wrong"))
        settings = map(Setting.parse, fine)
        return {f"{s.lanes} {s.numerics}" for s in settings if s.lanes}


# ── in the process that may crash ──


def feedings(d: Draft, seed: int) -> list[dict[str, Array]]:
    """Return the feeds of a draft: its own, strange ones, and other extents and decisions."""
    found = [d.feeds(), special(d, np.random.default_rng(seed)), *sizes(d)]
    return found if d.feeds() else found[:1]


def try_seeds(seeds: Sequence[int], peers: Sequence[str], each: int = 0) -> tuple[list[Tried], int]:
    """Judge the models of some seeds under `each` settings, by custom all.

    Also return how large this process has become, in KiB.
    """
    tried = [Tried(s) for s in seeds]
    trials = {}
    for t in tried:
        d = draft(t.seed)
        if not d.nodes:
            continue
        t.operators = tuple(operators(d.nodes))
        t.kinds = tuple(["open"] * d.is_open + ["staged"] * d.is_staged) or ("plain",)
        settings = drawn(t.seed, d.is_open, d.is_staged, each)
        model = d.model().SerializeToString()
        trials[t.seed] = Trial(model, feedings(d, t.seed), settings, peers, (1,), True)
    verdicts = dict(zip(trials, judge_all(list(trials.values())), strict=True))
    for t in tried:
        t.verdict = verdicts.get(t.seed, t.verdict)
    return tried, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def is_typed(model: bytes) -> bool:
    """Whether ONNX finds a model well typed."""
    try:
        proto = onnx.load_model_from_string(model)
        shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except Exception:
        return False
    return True


# ── on this side ──


class Hunt:
    """A process that judges models, and what finds the smallest that still fail."""

    def __init__(self, seconds_each: float = 30.0, each: int = 0) -> None:
        """Prepare to judge under `each` settings, to be made small in so many seconds."""
        self.probe = Probe(SECONDS, NBYTES)
        self.seconds_each = seconds_each
        self.each = each

    def try_batch(self, seeds: Sequence[int]) -> list[Tried]:
        """Return what the models of seeds show."""
        answer = self.probe(try_seeds, list(seeds), ORACLES, self.each)
        if isinstance(answer, Lost):
            if len(seeds) == 1:
                return [self._lost(seeds[0], answer)]
            found = [t for s in seeds for t in self.try_batch([s])]
            if not any(t.finding or "lost" in t.kinds for t in found):
                self._blame(found[0], answer, f"of seeds {seeds[0]} to {seeds[-1]} one by one")
            return found
        tried, kibibytes = answer
        if kibibytes > WORN:
            self.probe.close()
        for t in tried:
            if t.verdict.problems:
                t.finding = self._finding(t.seed, t.verdict, t.verdict.problems[0])
        return list(tried)

    def _lost(self, seed: int, lost: Lost) -> Tried:
        """Find out which setting a process did not survive."""
        d = draft(seed)
        t = Tried(seed, tuple(operators(d.nodes)))
        model, feeds = d.model(), feedings(d, seed)
        for setting in drawn(seed, d.is_open, d.is_staged, self.each):
            found = self._judged(model, feeds, [setting], (), (1,))
            t.verdict.ran |= found.ran
            if found.problems:
                t.verdict.problems += found.problems
                t.finding = self._finding(seed, t.verdict, found.problems[0])
                return t
        # Only others die of it, or all at once: ask each by itself.
        t.kinds = ("lost",)
        for name in ORACLES:
            found = self._judged(model, feeds, [], (name,), (1,))
            died = [p.message for p in found.problems if p.engine == "process"]
            t.verdict.oracles |= {name: died[0]} if died else found.oracles
            if found.confirmed:
                break
        by_others = [how for how in t.verdict.oracles.values() if how.startswith(("SIG", "no "))]
        if not by_others:
            self._blame(t, lost, "of no setting and no oracle by itself")
        return t

    def _blame(self, t: Tried, lost: Lost, when: str) -> None:
        """Make a finding of a process that died, though not of what was tried again."""
        d = draft(t.seed)
        t.verdict.problems.append(Problem("process", lost.kind, f"{lost.how}, but {when}"))
        t.finding = Finding(t.seed, t.verdict.problems[-1], Case(d.model(), d.feeds()))

    def _finding(self, seed: int, verdict: Verdict, problem: Problem) -> Finding:
        """Return the problem with a small model: of fixed extents, if it shows there as well."""
        d = draft(seed)
        feeds = feedings(d, seed)
        case = Case(d.model(), feeds[verdict.feeding])
        problem = self._plainest(case, problem)
        if verdict.feeding > 1 or not self._shows(case, problem):
            return self._short(seed, d, problem, verdict.feeding)
        small = reduce(case, lambda c: self._shows(c, problem), self._values, self.seconds_each)
        found = self._judged(small.model, [small.feeds], *_engine(problem)).problems
        return Finding(seed, next((p for p in found if p == problem), problem), small)

    def _plainest(self, case: Case, problem: Problem) -> Problem:
        """Return the problem under a setting with as little in it as still shows it."""
        (settings, _) = _engine(problem)
        if not settings:
            return problem
        setting, better = settings[0], True
        while better:
            better = False
            for simpler in setting.simpler():
                other = replace(problem, engine=str(simpler))
                if self._shows(case, other):
                    setting, problem, better = simpler, other, True
                    break
        return problem

    def _short(self, seed: int, d: Draft, problem: Problem, number: int) -> Finding:
        """Return the problem with as few nodes as it needs, all of its extents still open."""
        until = time.monotonic() + self.seconds_each
        case = Case(d.model(), feedings(d, seed)[number])
        i = len(d.nodes) - 1
        while i >= 0 and time.monotonic() < until:
            shorter = d.without(i)
            model, feeds = shorter.model(), feedings(shorter, seed)
            found = self._judged(model, feeds, *_engine(problem), (1,))
            if shorter.nodes and problem in found.problems:
                d, case = shorter, Case(model, feeds[found.feeding])
            i = min(i, len(d.nodes)) - 1
        return Finding(seed, problem, case)

    def _judged(
        self, model: onnx.ModelProto, feeds: Sequence[Feeds], settings: Sequence[Setting],
        peers: Sequence[str], strange: Sequence[int] = (),
    ) -> Verdict:  # fmt: skip
        given = [dict(f) for f in feeds]
        found = self.probe(judge, model.SerializeToString(), given, settings, peers, strange)
        if isinstance(found, Lost):
            engine = str(settings[0]) if settings else "process"
            return Verdict([Problem(engine, found.kind, found.how)])
        assert isinstance(found, Verdict)
        return found

    def _shows(self, case: Case, problem: Problem) -> bool:
        if self.probe(is_typed, case.model.SerializeToString()) is not True:
            return False  # a model that ONNX does not take, or dies of, shows nothing
        return problem in self._judged(case.model, [case.feeds], *_engine(problem)).problems

    def _values(self, case: Case) -> Mapping[str, Array]:
        made = exposed(case).model.SerializeToString()
        found = self.probe(recorded, made, dict(case.feeds))
        return {} if isinstance(found, Lost) else found

    def close(self) -> None:
        self.probe.close()


def _engine(problem: Problem) -> tuple[list[Setting], Sequence[str]]:
    """Return the settings and the peers that are needed to see a problem again."""
    try:
        return [Setting.parse(problem.engine)], ()
    except (KeyError, ValueError):
        return [], ORACLES


def hunt(
    seeds: Iterable[int], until: float = float("inf"),
    report: Callable[[Tried], None] = lambda tried: None,
) -> list[Tried]:  # fmt: skip
    """Try seeds until the clock (`time.monotonic`) says `until`; return what they showed."""
    state = Hunt()
    found: list[Tried] = []
    try:
        for batch in batches(seeds):
            if time.monotonic() > until:
                break
            for tried in state.try_batch(batch):
                found.append(tried)
                report(tried)
    finally:
        state.close()
    return found


def batches(seeds: Iterable[int]) -> Iterator[list[int]]:
    it = iter(seeds)
    while batch := list(itertools.islice(it, BATCH)):
        yield batch


def keep(finding: Finding, folder: Path) -> None:
    """Write the model of a finding to a folder, what it is fed, and what was wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / str(finding.seed)
    onnx.save(finding.case.model, stem.with_suffix(".onnx"))
    np.savez(stem.with_suffix(".npz"), **finding.case.feeds)
    stem.with_suffix(".txt").write_text(f"{finding}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=1000, help="how many models")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--keep", type=Path, help="write failing models to this folder")
    asked = parser.parse_args()

    def report(tried: Tried) -> None:
        if tried.finding is not None:
            print(tried.finding, flush=True)
            if asked.keep is not None:
                keep(tried.finding, asked.keep)

    seeds = range(asked.seed, asked.seed + asked.count)
    found = hunt(seeds, time.monotonic() + asked.seconds, report)
    ran = Counter(how for t in found for how in t.verdict.ran.values())
    others = Counter(f"{k} {how}" for t in found for k, how in t.verdict.oracles.items())
    cases = sum(t.cases() for t in found)
    print(f"{len(found)} models, {cases} cases; {dict(ran)}; {dict(others)}")
    raise SystemExit(1 if any(t.finding for t in found) else 0)


if __name__ == "__main__":
    main()
