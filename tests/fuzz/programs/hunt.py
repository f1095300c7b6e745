"""Random programs of a format for a while: what differs is made small, printed and kept.

    python -m tests.fuzz.programs.hunt torch --seconds 600 --seed 0 --log torch.jsonl

The environment must have the format's own runtime.  The log has a line of JSON for each seed; the
same command goes on behind the last one.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import pkgutil
import resource
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from alpenglow.debug.probe import Lost, Probe

from ..judge import Problem, judge_all
from .beside import Beside, Format, Undefined, settings_of
from .program import Program, drawn

FORMATS = {"torch": "torch_format.TorchFormat", "jax": "jax_format.JaxFormat",
           "tflite": "tflite_format.TfliteFormat"}  # fmt: skip

BATCH = 20
SECONDS = 900.0
WORN = 3000 << 10

for _found in pkgutil.iter_modules([str(Path(__file__).parent)], prefix=f"{__package__}."):
    if ".steps_" in _found.name:
        importlib.import_module(_found.name)


@cache
def format_of(name: str) -> Format:
    """Return the format of a name."""
    module, _, kind = FORMATS[name].partition(".")
    made: Format = getattr(importlib.import_module(f"{__package__}.{module}"), kind)()
    return made


@dataclass
class Tried:
    """What a seed showed: its steps, how many cases were compared, and what went wrong."""

    seed: int
    lines: int = 0
    cases: int = 0
    declined: str = ""
    problems: list[Problem] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    source: str = ""
    seconds: float = 0.0


def judged(format_: Format, program: Program, seed: int, each: float) -> Beside:
    """Judge a program."""
    trial = Beside(format_, program, seed, settings_of(seed, program, each))
    judge_all([trial])
    return trial


def problems_of(name: str, seeds: Iterable[int], each: float = 0.35) -> tuple[int, list[str]]:
    """Judge the programs of seeds in this process; return how many cases, and what went wrong."""
    results = [_tried(format_of(name), seed, each, 0.0) for seed in seeds]
    said = [f"seed {t.seed}: {t.problems[0]}\n{t.source}" for t in results if t.problems]
    return sum(t.cases for t in results), said


def tried(name: str, seeds: list[int], each: float) -> tuple[list[Tried], int]:
    """Return what seeds show, and how large this process is, in KiB."""
    found = [_tried(format_of(name), seed, each) for seed in seeds]
    return found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _tried(format_: Format, seed: int, each: float, shrinking: float = 20.0) -> Tried:
    with format_.session():
        return _in_session(format_, seed, each, shrinking)


def _in_session(format_: Format, seed: int, each: float, shrinking: float) -> Tried:
    begin = time.monotonic()
    with np.errstate(all="ignore"):
        program = drawn(seed, format_.writer(), format_.opens)
    t = Tried(seed, len(program.lines))
    if not program.lines:
        t.declined = "nothing is drawn"
        return t
    try:
        trial = judged(format_, program, seed, each)
    except Undefined as error:
        t.declined = str(error)
        return t
    v = trial.verdict
    t.declined = v.declined
    confirmed = v.oracles.get("runtime") == "same"
    # A case is an import beside the runtime, or code beside the import, on one choice of feeds.
    settings = len([h for h in v.ran.values() if h != "unsupported"])
    t.cases = (1 + settings) * len(trial.references) if confirmed else 0
    t.odd = [h for h in v.ran.values() if h != "same"]
    t.problems = v.problems
    if v.problems:
        small, problem = shrunk(format_, program, seed, each, v.problems[0], shrinking)
        t.source, t.problems = str(small), [problem, *v.problems[1:]]
    t.seconds = time.monotonic() - begin
    return t


def shrunk(
    format_: Format, program: Program, seed: int, each: float, problem: Problem,
    seconds: float,
) -> tuple[Program, Problem]:  # fmt: skip
    """Return the program without lines and outputs that the problem does not need."""
    until = time.monotonic() + seconds

    def shows(p: Program) -> Problem | None:
        if not p.lines or not p.outputs or time.monotonic() > until:
            return None
        try:
            problems = judged(format_, p, seed, each).verdict.problems
        except Undefined:
            return None
        return next((q for q in problems if q == problem), None)

    better = True
    while better:
        better = False
        smaller = [program.showing([n]) for n in program.outputs if len(program.outputs) > 1]
        smaller += [program.without(i) for i in reversed(range(len(program.lines)))]
        for p in smaller:
            is_smaller = len(p.lines + p.outputs) < len(program.lines + program.outputs)
            if is_smaller and (q := shows(p)) is not None:
                program, problem, better = p, q, True
                break
    return program, problem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("format", choices=sorted(FORMATS))
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after so long")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=10**9, help="how many seeds at most")
    parser.add_argument("--each", type=float, default=0.35, help="settings of each, on average")
    parser.add_argument("--log", type=Path, help="append a line of JSON for each seed")
    asked = parser.parse_args()
    seeds = range(asked.seed, asked.seed + asked.count)
    hunt(asked.format, seeds, asked.seconds, asked.each, asked.log)


def hunt(name: str, seeds: range, seconds: float, each: float, log: Path | None) -> list[Tried]:
    """Try seeds; print what differs, and totals at the end."""
    until = time.monotonic() + seconds
    probe = Probe(SECONDS, 6 << 30)
    done: list[Tried] = []
    lines = log.read_text(encoding="utf-8").splitlines() if log and log.exists() else []
    known = {json.loads(x)["seed"] for x in lines}
    wanted = (s for s in seeds if s not in known)
    while time.monotonic() < until and (batch := list(itertools.islice(wanted, BATCH))):
        for t in attempted(probe, name, batch, each):
            done.append(t)
            if t.problems:
                print(f"seed {t.seed}: {str(t.problems[0])[:500]}\n{t.source}", flush=True)
            if log is not None:
                with log.open("a") as out:
                    out.write(json.dumps(_entry(t)) + "\n")
    probe.close()
    declined = Counter(t.declined[:60] for t in done if t.declined)
    print(f"{len(done)} programs, {sum(t.cases for t in done)} cases, "
          f"{sum(bool(t.problems) for t in done)} findings; "
          f"{Counter(h for t in done for h in t.odd)}; "
          f"declined {declined.most_common(30)}")  # fmt: skip
    return done


def attempted(probe: Probe, name: str, batch: list[int], each: float) -> list[Tried]:
    """Try a batch in the probe's process; what kills it is found one by one."""
    answer = probe(tried, name, batch, each)
    if not isinstance(answer, Lost):
        found, kibibytes = answer
        if kibibytes > WORN:
            probe.close()
        return list(found)
    if len(batch) == 1:
        return [Tried(batch[0], problems=[Problem("process", answer.kind, answer.how)])]
    return [t for seed in batch for t in attempted(probe, name, [seed], each)]


def _entry(t: Tried) -> dict[str, Any]:
    entry: dict[str, Any] = {"seed": t.seed, "lines": t.lines, "cases": t.cases}
    if t.declined:
        entry["declined"] = t.declined[:200]
    if t.problems:
        entry |= {"problems": [str(p)[:400] for p in t.problems], "source": t.source[:3000]}
    return entry


if __name__ == "__main__":
    main()
