"""The same random models in every engine: interpreter, compiled code, ONNX Runtime.

    python -m tests.fuzz.differential --count 5000 --seed 0

prints what differs, each time as a model that has been made small, and writes it to --keep.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, shape_inference

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, UnsupportedError
from alpenglow.report import peer
from alpenglow.report.cut import Case, exposed
from alpenglow.report.failure import place
from alpenglow.report.probe import Lost, Probe
from alpenglow.report.reduce import recorded, reduce

from . import guard
from .draft import RECIPES, STAGED, Draft, operators
from .models import draft, sizes, special
from .noise import wrong
from .reference import Reference, flat

Array = NDArray[Any]

ENGINES: dict[str, tuple[str, str, float]] = {
    "interpreter": ("interpreter", "strict", 1.0),
    "strict": ("cpu", "strict", 8.0),
    "fast": ("cpu", "fast", 16.0),
}
"""Target, numerics, and how many times what rounding may do is allowed."""

PEER = 256.0
"""ONNX Runtime approximates: its exponentials and hyperbolic functions are off by many units."""

PEER_LEAST = 1e-6
"""And it computes some operators on f64 in single precision, as ONNX lets it."""

PEERLESS = {
    "MeanVarianceNormalization", "ReduceProd", "ReduceSumSquare", "QLinearMul", "QLinearAdd",
    "BlackmanWindow",
}  # fmt: skip
"""It takes the roots of negative variances, its products of integers end at the largest, the
ties of some quantised operators it rounds as they come, and what should be 0 is not quite."""

SECONDS = 120.0
"""Of all feeds of a model together, on a machine that may be busy."""
NBYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong, in which engine; two are the same if these two are."""

    engine: str
    what: str
    message: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.engine}: {self.what}" + (f": {self.message}" if self.message else "")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The problems of a model, and by whom it was run."""

    problems: tuple[Problem, ...] = ()
    ran: tuple[str, ...] = ()
    declined: str = ""
    feeding: int = 0


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


# ── in the process that may crash ──


def judge(model: bytes, feedings: Sequence[Mapping[str, Array]], peers: bool) -> Verdict:
    """Run a model in every engine, once for each of `feedings`, and compare.

    One executable an engine serves all of them, whatever their extents.  ONNX Runtime is asked, if
    `peers`, about the first.
    """
    try:
        g = ag.load(model)
    except UnsupportedError as error:
        return Verdict(declined=str(error))
    except Exception as error:
        return Verdict((Problem("load", place(error), str(error)),))
    engines = dict(_engines(g))
    ran: list[str] = []
    for number, feeds in enumerate(feedings):
        with np.errstate(all="ignore"):
            problems = _judged(model, engines, feeds, peers and not number, not number, ran)
        if problems:
            return Verdict(tuple(problems), tuple(ran), feeding=number)
    return Verdict((), tuple(ran))


def _engines(g: ag.Graph) -> Iterator[tuple[str, ag.Executable | Exception]]:
    for engine, (target, numerics, _) in ENGINES.items():
        try:
            yield engine, ag.compile(g, target, 1, options=ag.Options(numerics=numerics))
        except UnsupportedError:
            continue
        except Exception as error:
            yield engine, error


def _judged(
    model: bytes, engines: Mapping[str, ag.Executable | Exception], feeds: Mapping[str, Array],
    peers: bool, must_run: bool, ran: list[str],
) -> list[Problem]:  # fmt: skip
    """Return what is wrong with one choice of feeds; all but the first may be refused."""
    try:
        reference = Reference(model, feeds)
        allowed = reference.slack(6)
    except UnsupportedError:
        return []
    except AlpenglowError as error:
        if must_run:
            return [Problem("evaluate", place(error), str(error))]
        ran.append("refused")
        return list(_refusals(engines, feeds, str(error)))
    except Exception as error:
        return [Problem("evaluate", place(error), str(error))]
    problems = list(_problems(reference, allowed, engines, feeds, must_run, ran))
    if peers and not problems:
        problems += _peers(reference, allowed, model, ran)
    return problems


def _refusals(
    engines: Mapping[str, ag.Executable | Exception], feeds: Mapping[str, Array], why: str
) -> Iterator[Problem]:
    """Yield the engines that do not refuse what the reference refuses."""
    for engine, exe in engines.items():
        try:
            if not isinstance(exe, Exception):
                guard.run(exe, feeds)
                yield Problem(engine, "accepts", f"what is refused otherwise: {why}")
        except AlpenglowError:
            continue
        except Exception as error:
            yield Problem(engine, place(error), str(error).partition("\n")[0])


def _problems(
    reference: Reference, allowed: Mapping[str, Array],
    engines: Mapping[str, ag.Executable | Exception], feeds: Mapping[str, Array], must_run: bool,
    ran: list[str],
) -> Iterator[Problem]:  # fmt: skip
    for engine, exe in engines.items():
        ran.append(engine)
        try:
            if isinstance(exe, Exception):
                raise exe
            actual = guard.run(exe, feeds)
        except AlpenglowError as error:
            # Open extents are taken to be as large as what is cut out of them.
            if must_run:
                yield Problem(engine, place(error), str(error).partition("\n")[0])
            else:
                ran.append("refused open")
            continue
        except Exception as error:
            yield Problem(engine, place(error), str(error).partition("\n")[0])
            continue
        found = _compared(reference, flat(actual), allowed, ENGINES[engine][2])
        if found and engine == "fast":
            found = _unexplained(reference, flat(actual), allowed, found)
        if found:
            yield Problem(engine, "differs", found)


def _peers(
    reference: Reference, allowed: Mapping[str, Array], model: bytes, ran: list[str]
) -> Iterator[Problem]:
    try:
        typed = shape_inference.infer_shapes(onnx.load_model_from_string(model))
        if PEERLESS & set(operators(typed.graph.node)):
            return
        actual = peer.session(typed.SerializeToString(), 1).run(reference.feeds)
    except Exception:  # it takes less than we do, and says so in many ways
        return
    # What becomes of NaN in maxima ONNX does not say; and where there are no elements at all,
    # ONNX Runtime is often wrong.
    if reference.traits() & {"nan", "empty"} or any(0 in y.shape for y in flat(actual).values()):
        return
    ran.append("onnxruntime")
    if found := _compared(reference, flat(actual), allowed, PEER, PEER_LEAST):
        yield Problem("onnxruntime", "differs", found)


def _unexplained(
    reference: Reference, actual: Mapping[str, Array], allowed: Mapping[str, Array], found: str
) -> str:
    """Return what is found even where halves are computed as f32, and NaN quantised to anything."""
    traits = reference.traits()
    if {"nan", "bytes"} <= traits:
        return ""
    if "halves" in traits:
        return _compared(reference, actual, allowed, ENGINES["fast"][2], overflows=False)
    return found


def _compared(
    reference: Reference, actual: Mapping[str, Array], allowed: Mapping[str, Array],
    times: float, least: float = 0.0, overflows: bool = True,
) -> str:  # fmt: skip
    """Return how an output differs by more than rounding explains, "" if none does."""
    for name, y in reference.expected.items():
        if name not in actual:
            return f"output '{name}' is missing"
        if wrong(y, actual[name], allowed[name], times, least, overflows):
            # The noise may have missed what is a tie: try harder before saying so.
            more = reference.slack(60)
            if problem := wrong(y, actual[name], more[name], times, least, overflows):
                return f"output '{name}': {problem}"
    return ""


# ── on this side ──


class Hunt:
    """Seeds tried so far, and what they showed."""

    def __init__(self, seconds_each: float = 20.0, known: frozenset[str] = frozenset()) -> None:
        self.probe = Probe(SECONDS, NBYTES)
        self.seconds_each = seconds_each
        self.known = known
        self.ran: Counter[str] = Counter()
        self.operators: Counter[str] = Counter()
        self.models = 0

    def try_seed(self, seed: int) -> list[Finding]:
        """Return what the model of a seed shows, on its own feeds and on strange ones."""
        d = draft(seed)
        if not d.nodes:
            return []
        self.models += 1
        self.operators.update(operators(d.nodes))
        model = d.model()
        feedings = [d.feeds(), special(d, np.random.default_rng(seed)), *sizes(d)]
        verdict = self._judged(model, feedings if d.feeds() else feedings[:1], True)
        self.ran.update(verdict.ran or (("declined",) if verdict.declined else ()))
        self.ran.update(["open"] * d.is_open + ["staged"] * d.is_staged)
        return [self._small(seed, d, feedings, verdict, p) for p in verdict.problems[:1]]

    def _small(
        self, seed: int, d: Draft, feedings: Sequence[Mapping[str, Array]], verdict: Verdict,
        problem: Problem,
    ) -> Finding:  # fmt: skip
        """Return the problem with a small model: of fixed extents, if it shows there as well."""
        case = Case(d.model(), feedings[verdict.feeding])
        if verdict.feeding > 1 or not self._shows(case, problem):
            return self._short(seed, d, problem)
        small = reduce(case, lambda c: self._shows(c, problem), self._values, self.seconds_each)
        found = self._judged(small.model, [small.feeds], True).problems
        return Finding(seed, next((p for p in found if p == problem), problem), small)

    def _short(self, seed: int, d: Draft, problem: Problem) -> Finding:
        """Return the problem with as few nodes as it needs, all of its extents still open."""
        until = time.monotonic() + self.seconds_each
        i = len(d.nodes) - 1
        while i >= 0 and time.monotonic() < until:
            shorter = d.without(i)
            feedings = [shorter.feeds(), special(shorter, np.random.default_rng(seed))]
            feedings += sizes(shorter)
            model = shorter.model()
            if shorter.nodes and problem in self._judged(model, feedings, False).problems:
                d = shorter
            i = min(i, len(d.nodes)) - 1
        return Finding(seed, problem, Case(d.model(), d.feeds()))

    def _judged(
        self, model: onnx.ModelProto, feedings: Sequence[Mapping[str, Array]], peers: bool
    ) -> Verdict:
        found = self.probe(judge, model.SerializeToString(), [dict(f) for f in feedings], peers)
        if isinstance(found, Lost):
            if peers and not self._judged(model, feedings, False).problems:
                return Verdict()  # only ONNX Runtime dies of it
            return Verdict((Problem("process", found.kind, found.how),))
        assert isinstance(found, Verdict)
        return found

    def _shows(self, case: Case, problem: Problem) -> bool:
        try:
            shape_inference.infer_shapes(case.model, check_type=True, strict_mode=True)
        except Exception:  # a model that ONNX does not take shows nothing
            return False
        peers = problem.engine == "onnxruntime"
        return problem in self._judged(case.model, [case.feeds], peers).problems

    def _values(self, case: Case) -> Mapping[str, Array]:
        made = exposed(case).model.SerializeToString()
        found = self.probe(recorded, made, dict(case.feeds))
        return {} if isinstance(found, Lost) else found


def hunt(
    seeds: Iterable[int], until: float = float("inf"),
    report: Callable[[Hunt, list[Finding]], None] = lambda hunt, found: None,
) -> tuple[Hunt, list[Finding]]:  # fmt: skip
    """Try seeds until the clock (`time.monotonic`) says `until`; return what they showed."""
    state = Hunt()
    findings: list[Finding] = []
    try:
        for seed in seeds:
            if time.monotonic() > until:
                break
            found = state.try_seed(seed)
            findings += found
            report(state, found)
    finally:
        state.probe.close()
    return state, findings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=1000, help="how many models")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--keep", type=Path, help="write failing models to this folder")
    asked = parser.parse_args()
    kept = 0

    def report(state: Hunt, found: list[Finding]) -> None:
        nonlocal kept
        for f in found:
            print(f, flush=True)
            if asked.keep is not None:
                asked.keep.mkdir(parents=True, exist_ok=True)
                onnx.save(f.case.model, asked.keep / f"{f.seed}.onnx")
                np.savez(asked.keep / f"{f.seed}.npz", **f.case.feeds)
            kept += 1
        if sys.stderr.isatty():
            print(f"\r{state.models} models, {kept} findings ", end="", file=sys.stderr)
        elif state.models % 100 == 0:
            print(f"{state.models} models, {kept} findings", flush=True)

    seeds = range(asked.seed, asked.seed + asked.count)
    state, findings = hunt(seeds, time.monotonic() + asked.seconds, report)
    print(f"{state.models} models of {len(state.operators)} operators; {dict(state.ran)}")
    missing = sorted(r for r in RECIPES | STAGED if r.rpartition(":")[2] not in state.operators)
    print(f"{len(findings)} findings; no model had {missing}")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
