"""Run the test suites that the onnx package brings, through our ONNX backend on each target.

    python tools/conformance.py                            everything; writes docs/conformance.md
    python tools/conformance.py --only 'test_resize' --failures
    python tools/conformance.py --only 'Simple' --target cpu --json /tmp/simple.json --jobs 4

The tests are those of `onnx.backend.test.BackendTest`: of single nodes, of models made by PyTorch,
of small models, and of networks with made-up weights.  They run in worker processes: one that
dies or takes too long fails its test and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any
from unittest import SkipTest

import numpy as np
import onnx
from onnx.backend.base import Backend
from onnx.backend.test import BackendTest

import alpenglow
from alpenglow.base.errors import AlpenglowError
from alpenglow.onnx_backend import TARGETS, AlpenglowBackend, Prepared
from conformance_page import Outcome, how, page, summary

PAGE = Path(__file__).resolve().parent.parent / "docs" / "conformance.md"
SOURCES = str(Path(alpenglow.__file__).parent)
CATEGORY = re.compile("OnnxBackend(.*)ModelTest")
LONGEST_REASON = 110
DIFFERENT = "values differ"

RANDOM = {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike",
          "RandomUniform", "RandomUniformLike"}  # fmt: skip
"""What these make is random; the tests expect the numbers of NumPy's generator."""

Test = Callable[[object], object]
Tests = dict[tuple[str, str], Test]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, print how many passed, and write the page if all ran."""
    options = _parser().parse_args(arguments)
    targets = options.target or list(TARGETS.values())
    recorder = Recorder()
    tests = suites(recorder, re.compile(options.only or ""))
    if not tests:
        print(f"conformance: no test is called like '{options.only}'", file=sys.stderr)
        return 1
    begin = time.perf_counter()
    jobs = [Job(*key, target) for target in targets for key in tests]
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = run(jobs, tests, recorder, options.jobs, options.timeout, Path(scratch))
    outcomes.sort(key=lambda o: (o.category, o.test, o.target))
    print(f"{len(jobs)} tests in {time.perf_counter() - begin:.0f} s")
    print("\n".join(summary(outcomes, targets)))
    if options.failures:
        print("\n".join(failures(outcomes)))
    if options.json:
        options.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1) + "\n")
    if not options.only and not options.target:
        options.page.write_text("\n".join(page(outcomes, targets)) + "\n")
    return 0


def failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield a line for each test that failed, then for each reason how often it was given."""
    failed = [o for o in outcomes if o.status != "passed"]
    for o in failed:
        yield f"{o.target:11} {o.test}: {o.reason}"
    for reason, count in Counter(o.reason for o in failed).most_common(40):
        yield f"{count:5} {reason}"


# ── the tests, and what a worker does ──


@dataclass(frozen=True, slots=True)
class Job:
    """One test to run on one target."""

    category: str
    test: str
    target: str


class Recorder:
    """What the backend under test was given and what it made of that.

    `stock` tells whether onnx's own comparator takes what was compared; None: nothing was.
    """

    target = ""
    prepared: Prepared | None = None
    stock: bool | None = None

    def __init__(self) -> None:
        self.told: Callable[[list[str]], object] = list


def recording(recorder: Recorder) -> type[Backend]:
    """Return our backend; `recorder` chooses the target and sees what is prepared."""

    class Recording(AlpenglowBackend):
        @classmethod
        def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
            recorder.told(sorted(operators(model)))
            recorder.prepared = super().prepare(model, target=recorder.target)
            return recorder.prepared

        @classmethod
        def supports_device(cls, device: str) -> bool:
            return device == "CPU"

    return Recording


def compared(recorder: Recorder) -> type[BackendTest]:
    """Return the tests of the onnx package, with `similar` as comparator.

    `recorder` is told what onnx's own comparator would have said.
    """

    class Suites(BackendTest):
        @classmethod
        def assert_similar_outputs(
            cls,
            ref_outputs: Sequence[Any],
            outputs: Sequence[Any],
            rtol: float,
            atol: float,
            model_dir: str | None = None,
        ) -> None:
            takes = recorder.stock is not False
            try:
                BackendTest.assert_similar_outputs(ref_outputs, outputs, rtol, atol, model_dir)
            except Exception:  # whatever it raises, the stock runner fails the test
                takes = False
            recorder.stock = takes
            similar(ref_outputs, outputs, rtol, atol)

    return Suites


def similar(expected: Sequence[Any], actual: Sequence[Any], rtol: float, atol: float) -> None:
    """Assert that outputs agree: onnx's comparator, but for sequences and optionals.

    The original looks into an element of a sequence as if it were one, at which a tensor of rank 0
    fails; it does not miss what is missing at the end of a sequence, and knows no empty optional.
    """
    np.testing.assert_equal(len(actual), len(expected))
    for e, a in zip(expected, actual, strict=True):
        if isinstance(e, list | tuple):
            assert isinstance(a, list | tuple), "expected a sequence"
            similar(e, a, rtol, atol)
        elif e is None or a is None:
            assert e is a, "expected an empty optional"
        else:
            BackendTest.assert_similar_outputs([e], [a], rtol, atol)


def suites(recorder: Recorder, pattern: re.Pattern[str]) -> Tests:
    """Return the tests whose category or name matches, by category and name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx computes what it expects, overflows included
        cases = compared(recorder)(recording(recorder), __name__).test_cases
    found: Tests = {}
    for title, case in cases.items():
        match = CATEGORY.fullmatch(title)
        assert match, f"a suite is called {title}"
        for name, test in sorted(vars(case).items()):
            if not name.startswith("test_") or not name.endswith("_cpu"):
                continue
            key = match[1], name.removesuffix("_cpu")
            if pattern.search(key[0]) or pattern.search(key[1]):
                found[key] = test
    return found


def operators(model: onnx.ModelProto) -> set[str]:
    """Return the names of all operators in a model, ``domain:name`` outside ai.onnx."""
    found: set[str] = set()
    waiting = [*model.graph.node, *(n for f in model.functions for n in f.node)]
    while waiting:
        node = waiting.pop()
        plain = node.domain in ("", "ai.onnx")
        found.add(node.op_type if plain else f"{node.domain}:{node.op_type}")
        for a in node.attribute:
            waiting += [*a.g.node, *(n for g in a.graphs for n in g.node)]
    return found


def serve(pipe: Connection[Any, Any], tests: Tests, recorder: Recorder, scratch: Path) -> None:
    """Run the jobs that come through `pipe`, until the end; what they print is thrown away."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    warnings.simplefilter("ignore")
    # The runner lays data sets out there; it asks for the folder at each test.
    os.environ["ONNX_MODELS"] = tempfile.mkdtemp(dir=scratch)
    recorder.told = pipe.send
    while job := received(pipe):
        recorder.target, recorder.prepared, recorder.stock = job.target, None, None
        begin = time.perf_counter()
        status, reason = attempt(tests[job.category, job.test])
        exe = None if recorder.prepared is None else recorder.prepared.executable
        ran, outside = how(exe) if status == "passed" and exe is not None else ("", ())
        seconds = round(time.perf_counter() - begin, 3)
        pipe.send((status, ran, reason, seconds, outside, recorder.stock is True))


def received(pipe: Connection[Any, Any]) -> Job | None:
    """Return the next job; None if nobody is left to ask for one."""
    parent = os.getppid()
    while not pipe.poll(5):
        if os.getppid() != parent:
            return None
    job: Job = pipe.recv()
    return job


def attempt(test: Test) -> tuple[str, str]:
    """Run one test; return its status, and the reason if it failed."""
    try:
        test(None)
    except SkipTest as skip:
        return "skipped", str(skip)
    except Exception as error:
        return "failed", reason_of(error)
    return "passed", ""


def reason_of(error: Exception) -> str:
    """Return why a test failed in a line that is the same in each run."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = any(f.filename.startswith(SOURCES) for f in frames)
    if isinstance(error, AssertionError) and not inside:
        text = str(error)
        kinds = {"incorrect shape": "shapes differ", "tolerance": DIFFERENT,
                 "dtype": "element types differ", "Arrays are not": DIFFERENT}  # fmt: skip
        return next((kind for sign, kind in kinds.items() if sign in text), "results differ")
    text = error.message if isinstance(error, AlpenglowError) else str(error)
    line = next(iter(text.strip().splitlines()), "").partition(" (known test=")[0]
    line = re.sub(r"0x[0-9a-f]+|(/[\w.+-]+){2,}", "…", line)
    short = line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…"
    return f"{type(error).__name__}: {short}"


# ── the worker processes ──


class Worker:
    """A process that runs one job at a time."""

    def __init__(self, tests: Tests, recorder: Recorder, scratch: Path) -> None:
        # Forked, so that the tests, whose arrays take seconds to make, are there at once.
        context = get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, tests, recorder, scratch))
        self.process.start()
        theirs.close()
        self.job: Job | None = None
        self.operators: tuple[str, ...] = ()
        self.deadline = 0.0

    def give(self, job: Job, seconds: float) -> None:
        """Start a job that may take so many seconds."""
        self.job, self.operators = job, ()
        self.deadline = time.monotonic() + seconds
        self.pipe.send(job)

    def hear(self) -> Outcome | None:
        """Read what the process has to say; return the outcome if the job is over."""
        try:
            message = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            return self.outcome("crashed", "", f"the process died ({self.process.exitcode})", 0.0)
        if isinstance(message, list):
            self.operators = tuple(message)
            return None
        return self.outcome(*message)

    def outcome(
        self,
        status: str,
        ran: str,
        reason: str,
        seconds: float,
        outside: tuple[str, ...] = (),
        stock: bool = False,
    ) -> Outcome:
        """Return how the job ended; the worker is free again."""
        job, self.job = self.job, None
        assert job is not None, "a worker without a job answered"
        # Networks that were trained hold Dropout too, which does nothing where nobody trains.
        single = job.category == "Node"
        if single and reason == DIFFERENT and RANDOM.intersection(self.operators):
            reason = "random numbers differ"
        place = (job.category, job.test, job.target)
        return Outcome(*place, status, ran, reason, self.operators, seconds, outside, stock)

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run(
    jobs: Sequence[Job], tests: Tests, recorder: Recorder, count: int, seconds: float, scratch: Path
) -> list[Outcome]:
    """Run all jobs on `count` workers and return their outcomes."""
    waiting = deque(jobs)
    outcomes: list[Outcome] = []
    workers = [Worker(tests, recorder, scratch) for _ in range(min(count, len(jobs)))]
    try:
        while len(outcomes) < len(jobs):
            for w in workers:
                if w.job is None and waiting:
                    w.give(waiting.popleft(), seconds)
            for i, outcome in heard(workers, seconds):
                outcomes.append(outcome)
                if outcome.status in ("crashed", "timeout"):
                    workers[i].stop()
                    workers[i] = Worker(tests, recorder, scratch)
            progress(len(outcomes), len(jobs))
    finally:
        for w in workers:
            w.stop()
    return outcomes


def heard(workers: Sequence[Worker], seconds: float) -> Iterator[tuple[int, Outcome]]:
    """Wait for news; yield the outcomes of jobs that are over, with the worker's number."""
    busy = {w.pipe: i for i, w in enumerate(workers) if w.job is not None}
    left = min(workers[i].deadline for i in busy.values()) - time.monotonic()
    ready = wait(list(busy), max(left, 0))
    for pipe in ready:
        assert isinstance(pipe, Connection)
        outcome = workers[busy[pipe]].hear()
        if outcome is not None:
            yield busy[pipe], outcome
    for pipe, i in busy.items():
        w = workers[i]
        if pipe not in ready and w.job is not None and w.deadline <= time.monotonic():
            yield i, w.outcome("timeout", "", f"took more than {seconds:g} s", seconds)


def progress(done: int, total: int) -> None:
    """Say on a terminal how far the run is."""
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r{done}/{total}", end=end, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="PATTERN", help="tests or suites whose name matches")
    parser.add_argument(
        "--target", action="append", help="a target, for example cpu; default: all devices' targets"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="worker processes; now %(default)s"
    )
    parser.add_argument(
        "--timeout", type=float, default=60, metavar="SECONDS", help="per test; now %(default)s"
    )
    parser.add_argument("--failures", action="store_true", help="list the tests that fail")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome there")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", default=PAGE, help="default: %(default)s"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
