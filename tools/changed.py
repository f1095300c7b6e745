"""Run the tests that a change can reach, in two minutes.

    python tools/changed.py [--base REVISION] [--seconds 100] [--jobs 2] [--list]

Read docs/testing.md for how tests are chosen.  The exit status is that of pytest.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import takewhile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from changes import Changes, changes, default_base
from flaky import MARKS
from functions import ROOT
from import_graph import Graph
from record import FILE, FOLDER, RECORDING, Record, load

SECONDS = 100.0
"""The limit of a run: the two minutes that it may take, less the start and the end of processes."""

START = 15.0
"""Seconds in which pytest starts and collects tests."""

SPREAD = 0.3
"""The share of the time that goes to a spread sample of the tests that come last in the order."""

READERS: Mapping[str, tuple[str, ...]] = {
    "*.md": ("tests/test_docs.py",),
    "docs/*": ("tests/test_docs.py",),
    "docs/api*": ("tests/test_api_reference.py",),
    "tests/golden/*": ("tests/machines/cpu/test_golden_kernels.py",),
    "tests/conftest.py": ("tests/test_conftest.py",),
    "pyproject.toml": ("tests/test_imports.py", "tests/test_docs.py"),
    "src/*.py": ("tests/test_imports.py",),
}
"""Test files that read files of these names, beside those in which the name of the file stands."""


@dataclass
class Plan:
    """Changed test files, then tests in their order, then test files that run whole if time is
    left: those that read a changed file or import a changed helper."""

    first: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def order(self) -> list[str]:
        return [*self.first, *self.tests, *self.last]


def main(arguments: Sequence[str]) -> int:
    begin = time.time()
    parser = argparse.ArgumentParser(description="Run the tests that a change can reach.")
    parser.add_argument("--base", default="", metavar="REVISION", help="what to compare with")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="when to stop")
    parser.add_argument("--jobs", type=int, default=2, help="processes of pytest")
    parser.add_argument("--record", type=Path, default=FOLDER / FILE, help="from tools/record.py")
    parser.add_argument("--list", action="store_true", help="print the choice and run nothing")
    options = parser.parse_args(arguments)
    base = options.base or default_base(ROOT)
    graph = Graph(ROOT, FOLDER / "imports.json")
    change = changes(ROOT, base, graph)
    print(f"changed.py: differences from {base}: files {len(change.files)}, "
          f"functions of the package {len(change.functions)}")  # fmt: skip
    record = load(options.record) if options.record.exists() else None
    plan = planned(change, graph, record, (options.seconds - START) * options.jobs)
    for note in plan.notes:
        print(f"changed.py: {note}")
    if options.list:
        print(*plan.order(), sep="\n")
        return 0
    if not plan.order():
        print("changed.py: no test reads or executes what differs")
        return 0
    return run(plan, record, begin + options.seconds, options.jobs)


def planned(change: Changes, graph: Graph, record: Record | None, seconds: float) -> Plan:
    """Choose tests for a change, for so many seconds of cores if there is a record."""
    plan = Plan([f for f in change.files if _is_test(f) and f in graph.imports])
    readers = {*readers_of(change.files, graph)} - {*plan.first}
    if record is None:
        plan.notes.append("no record of what tests execute (make test-record): the test files that "
                          "import what differs run, those of the same folder first")  # fmt: skip
        plan.last = [f for f in by_imports(change.files, graph) if f not in plan.first]
        plan.last += sorted(readers - {*plan.last})
        return plan
    known = {name.partition("::")[0] for name in record.tests}
    new = [f for f in by_imports(change.files, graph) if f not in known and f not in plan.first]
    plan.last = [*new, *sorted(readers - {*new})]
    numbers, unknown = numbered(change.functions, record)
    plan.notes += [f"no recorded test executes {name}: all functions of its file count"
                   for name in unknown]  # fmt: skip
    whole = {*plan.first, *plan.last}
    files = [name.partition("::") for name in record.tests]
    there = np.array([bool(test) and file not in whole for file, _, test in files], np.bool_)
    listed = order(numbers, record, there)
    first, last = cost(plan.first, record), cost(plan.last, record)
    plan.tests, taken = within(listed, record, seconds - first - min(last, seconds / 2))
    plan.notes.append(
        f"{len(listed)} of {there.sum()} recorded tests execute what differs: {len(plan.tests)} "
        f"chosen ({taken:.0f} s of cores), {len(listed) - len(plan.tests)} left out; "
        f"whole files: {len(whole)} ({first + last:.0f} s)"
    )
    return plan


def readers_of(files: Iterable[str], graph: Graph) -> Iterator[str]:
    """Yield the test files that import a changed helper or tool, or that read a changed file."""
    for name in files:
        reached = {r for pattern, readers in READERS.items() if fnmatch.fnmatch(name, pattern)
                   for r in readers}  # fmt: skip
        if not (name.startswith("src/") and name.endswith(".py")):
            helpers = [name] if name in graph.imports else []
            reached |= graph.reaching([*helpers, *mentions(Path(name).name, graph)])
        yield from (f for f in reached if _is_test(f) and f in graph.imports)


def mentions(word: str, graph: Graph) -> list[str]:
    """Return the files of tests in whose text a file name stands."""
    pattern = re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")
    return [file for file in graph.files
            if file.startswith("tests/")
            and pattern.search((graph.root / file).read_text("utf-8"))]  # fmt: skip


def by_imports(files: Iterable[str], graph: Graph) -> Iterator[str]:
    """Yield the test files that import a changed file of the package, the nearest folders first."""
    changed = [f for f in files if f.startswith("src/") and f in graph.imports]
    folders = [Path(f).parts[2:-1] for f in changed]

    def distance(test: str) -> tuple[int, str]:
        own = Path(test).parts[1:-1]
        return min(_apart(own, folder) for folder in folders), test

    yield from sorted(filter(_is_test, graph.reaching(changed)), key=distance)


def _apart(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the number of steps between two folders."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
    return len(a) + len(b) - 2 * same


def _is_test(name: str) -> bool:
    path = ROOT / name
    return (name.startswith("tests/") and path.name.startswith("test_")
            and not any(path.is_relative_to(folder) for folder in _ignored()))  # fmt: skip


@cache
def _ignored() -> tuple[str, ...]:
    """Return the folders whose tests need a package that is not installed: `make test` does not
    collect them, but pytest does if a file is named."""
    sys.path.insert(0, str(ROOT / "tests"))
    return tuple(import_module("conftest").collect_ignore)


def numbered(names: Iterable[str], record: Record) -> tuple[list[int], list[str]]:
    """Return the numbers of functions that a test executes, and the names of all others; for these
    all functions of their file are taken."""
    ever = np.unpackbits(np.bitwise_or.reduce(record.bits, axis=0))
    numbers, unknown = set(), []
    for name in sorted(names):
        if name in record.numbers and ever[record.numbers[name]]:
            numbers.add(record.numbers[name])
        else:
            unknown.append(name)
    for file in {name.partition(":")[0] for name in unknown}:
        numbers |= {k for name, k in record.numbers.items() if name.startswith(f"{file}:")}
    return sorted(numbers), unknown


def order(numbers: Sequence[int], record: Record, there: npt.NDArray[np.bool_]) -> list[int]:
    """Return the tests that execute one of the functions, the most telling first.

    First come those that execute a function which few tests execute (in steps of two).  Among
    them, one case of each test function comes before the second of any, and one function of each
    file before the second; files of which the largest share executes a changed function come first.
    """
    executing = np.array([record.reaching(n) & there for n in numbers]).reshape(-1, len(there))
    counts = executing.sum(axis=1)
    unseen = record.unseen & there & bool(len(numbers))
    reached = [int(t) for t in np.flatnonzero(executing.any(axis=0) | unseen)]
    rare = {t: int(counts[executing[:, t]].min(initial=len(there))) for t in reached}
    total = Counter(name.partition("::")[0] for name in record.tests)
    share = Counter(record.tests[t].partition("::")[0] for t in reached)
    cases: Counter[str] = Counter()
    turns: dict[str, dict[str, int]] = defaultdict(dict)
    keys: dict[int, tuple[int, int, int, float, str]] = {}
    for t in sorted(reached, key=lambda t: (rare[t], record.seconds[t])):
        file, function = record.tests[t].partition("::")[0], record.tests[t].partition("[")[0]
        turn = turns[file].setdefault(function, len(turns[file]))
        step = int(math.log2(max(rare[t], 1)))
        keys[t] = (step, cases[function], turn, -share[file] / total[file], record.tests[t])
        cases[function] += 1
    return sorted(keys, key=keys.__getitem__)


def within(listed: Sequence[int], record: Record, seconds: float) -> tuple[list[str], float]:
    """Return the first tests that fit in a part of the time, then a spread sample of the others
    that fits in the rest, and the seconds of these tests."""
    chosen, taken, left = [], 0.0, []
    all_fit = float(record.seconds[list(listed)].sum()) <= seconds
    for t in listed:
        cost = float(record.seconds[t])
        if all_fit or taken + cost <= seconds * (1 - SPREAD):
            chosen.append(t)
            taken += cost
        else:
            left.append(t)
    for t in sorted(left, key=lambda t: zlib.crc32(record.tests[t].encode())):
        cost = float(record.seconds[t])
        if taken + cost <= seconds:
            chosen.append(t)
            taken += cost
    return [record.tests[t] for t in chosen], taken


def cost(files: Sequence[str], record: Record) -> float:
    """Return the recorded seconds of test files."""
    return float(sum(s for name, s in zip(record.tests, record.seconds, strict=True)
                     if name.partition("::")[0] in files))  # fmt: skip


def run(plan: Plan, record: Record | None, until: float, jobs: int) -> int:
    """Run what is chosen until a time; return the exit status of pytest."""
    functions = sorted({name.partition("[")[0] for name in plan.tests})
    chosen = {
        "order": plan.order(),
        "known": record.tests if record is not None else [],
        "functions": functions,
        "until": until,
    }
    files = dict.fromkeys(name.partition("::")[0] for name in plan.order())
    paths = [str(RECORDING), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "chosen.json")
        path.write_text(json.dumps(chosen), encoding="utf-8")
        environment = {**os.environ, "CHOSEN": str(path), "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "chosen", "-n", str(jobs),
                   "-m", MARKS, *files]  # fmt: skip
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
