"""Try mistakes in the package, and write for each test file its cost and what it alone finds.

    python tools/test_costs.py mutate [--count 60] [--seed 1] [--seconds 25] [--minutes 30]
    python tools/test_costs.py page --junit REPORT [--out docs/tests.md]

The first needs the record of `make test-record`, and adds outcomes to `.venv/reached/outcomes`; a
mistake whose outcome is there is not tried again.
The second writes the page from them and from a JUnit report of `make test`
(`pytest -o junit_family=xunit1 --junitxml=REPORT`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from changed import order
from changes import changed_functions
from flaky import MARKS
from functions import ROOT
from import_graph import Graph
from mutations import Mutation, drawn, planted
from record import FILE, FOLDER, RECORDING, Record, load

OUTCOMES = FOLDER / "outcomes"

COSTLY = 5.0
"""Seconds of cores from which on a test file is costly."""

TRIED = 5
"""Mistakes that a test file has to be tried with before it is called a candidate."""


@dataclass(frozen=True)
class Outcome:
    """A mistake, the number of recorded tests that execute the changed function, and which tests
    ran and failed."""

    file: str
    line: int
    kind: str
    what: str
    reached: int
    ran: tuple[str, ...]
    found: tuple[str, ...]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Write what each test file costs and finds.")
    commands = parser.add_subparsers(dest="command", required=True)
    mutate = commands.add_parser("mutate", help="try mistakes")
    mutate.add_argument("--count", type=int, default=60, help="how many are drawn")
    mutate.add_argument("--seed", type=int, default=1)
    mutate.add_argument("--seconds", type=float, default=25.0, help="of cores for each mistake")
    mutate.add_argument("--minutes", type=float, default=30.0, help="when to begin no other")
    page = commands.add_parser("page", help="write the page")
    page.add_argument("--junit", type=Path, required=True, help="a report of make test")
    page.add_argument("--out", type=Path, default=ROOT / "docs" / "tests.md")
    options = parser.parse_args(arguments)
    if options.command == "page":
        options.out.write_text(text(costs(options.junit), read(OUTCOMES)), encoding="utf-8")
        return 0
    both = zip_longest(drawn(options.count, options.seed), planted())
    known = {(o.file, o.line, o.what) for o in read(OUTCOMES)}
    mistakes = [m for m in chain.from_iterable(both) if m is not None]
    mistakes = [m for m in mistakes if (m.file, m.line, m.what) not in known]
    return tried(mistakes, load(FOLDER / FILE), options.seconds, options.minutes)


def read(path: Path) -> list[Outcome]:
    """Return the outcomes of a file, none if there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Outcome(**json.loads(line)) for line in lines]


def tried(
    mistakes: Sequence[Mutation], record: Record, seconds: float, minutes: float
) -> int:
    """Run the tests of each mistake, and add the outcomes to OUTCOMES."""
    graph = Graph(ROOT, FOLDER / "imports.json")
    asked = [wanted(m, graph, record, seconds) for m in mistakes]
    begun = {"out": str(OUTCOMES), "seconds": 2 * seconds, "mutations": asked,
             "until": time.time() + 60 * minutes}  # fmt: skip
    files = sorted({t.partition("::")[0] for one in asked for t in one["tests"]})
    paths = [str(RECORDING), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "mutating.json")
        path.write_text(json.dumps(begun), encoding="utf-8")
        environment = {**os.environ, "MUTATING": str(path), "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "mutating",
                   "-p", "no:cacheprovider", "-m", MARKS, *files]  # fmt: skip
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def wanted(mutation: Mutation, graph: Graph, record: Record, seconds: float) -> dict[str, Any]:
    """Return a mutation with the tests to run: of each file some of those that execute it."""
    before = (ROOT / mutation.file).read_text(encoding="utf-8")
    names = changed_functions(ROOT, graph, mutation.file, before, mutation.text)
    numbers = [record.numbers[name] for name in names if name in record.numbers]
    tests = order(numbers, record, np.array(["::" in t for t in record.tests]))
    executing = [t for t in tests if any(record.reaching(n)[t] for n in numbers)]
    return {
        **{name: getattr(mutation, name) for name in ("file", "line", "kind", "what", "text")},
        "reached": len(executing),
        "tests": [record.tests[t] for t in fitting(executing, record, seconds)],
    }


def fitting(tests: Sequence[int], record: Record, seconds: float) -> Iterator[int]:
    """Yield the tests that fit into the time, in turns: one of each file before the second."""
    turns: Counter[str] = Counter()
    keys = {}
    for k, test in enumerate(tests):
        file = record.tests[test].partition("::")[0]
        keys[test] = turns[file], k
        turns[file] += 1
    taken = 0.0
    for test in sorted(tests, key=keys.__getitem__):
        if taken + record.seconds[test] <= seconds:
            taken += float(record.seconds[test])
            yield test


def costs(report: Path) -> dict[str, tuple[int, float]]:
    """Return the number of tests and the seconds of each test file of a JUnit report."""
    counted: dict[str, list[float]] = defaultdict(list)
    for case in ET.parse(report).iter("testcase"):
        counted[case.get("file") or ""].append(float(case.get("time", 0)))
    return {file: (len(times), sum(times)) for file, times in counted.items()}


def text(cost: Mapping[str, tuple[int, float]], outcomes: Sequence[Outcome]) -> str:
    """Return the page."""
    ran, found, alone = Counter[str](), Counter[str](), Counter[str]()
    for outcome in outcomes:
        finders = {_file(test) for test in outcome.found}
        ran.update({_file(test) for test in outcome.ran})
        found.update(finders)
        alone.update(finders if len(finders) == 1 else ())
    rows = [
        f"| `{file}` | {count:,} | {seconds:.1f} | {ran[file]} | "
        f"{found[file]} | {alone[file]} |"
        for file, (count, seconds) in sorted(cost.items(), key=lambda item: -item[1][1])
    ]
    candidates = [
        file for file, (_, seconds) in sorted(cost.items(), key=lambda item: -item[1][1])
        if seconds >= COSTLY and ran[file] >= TRIED and not alone[file]
    ]  # fmt: skip
    total = sum(seconds for _, seconds in cost.values())
    part = sum(cost[file][1] for file in candidates)
    return PAGE.format(
        tests=f"{sum(count for count, _ in cost.values()):,}", files=len(cost),
        seconds=f"{total:,.0f}", mistakes=len(outcomes), summary=_summary(outcomes),
        costly=f"{COSTLY:.0f}", tried=TRIED, part=f"{part:.0f}", share=f"{part / total:.0%}",
        number=len(candidates),
        unjudged=sum(s >= COSTLY and ran[f] < TRIED for f, (_, s) in cost.items()),
        candidates=_listed(candidates, cost, ran, found), survivors=_survivors(outcomes),
        rows="\n".join(rows),
    )  # fmt: skip


def _file(test: str) -> str:
    return test.partition("::")[0]


def _summary(outcomes: Sequence[Outcome]) -> str:
    """Return a table: for each kind of mistake, how many were found."""
    lines = []
    for kind in [*sorted({o.kind for o in outcomes}), "all"]:
        some = [o for o in outcomes if kind in (o.kind, "all")]
        executed = [o for o in some if o.ran]
        finders = [len({_file(t) for t in o.found}) for o in executed]
        lines.append(f"| {kind} | {len(some)} | {len(executed)} | {sum(n > 0 for n in finders)} | "
                     f"{sum(n == 1 for n in finders)} |")  # fmt: skip
    return "\n".join(lines)


def _listed(
    files: Sequence[str], cost: Mapping[str, tuple[int, float]], ran: Counter[str],
    found: Counter[str],
) -> str:  # fmt: skip
    return "\n".join(
        f"| `{file}` | {cost[file][1]:.1f} | {ran[file]} | {found[file]} |"
        for file in files
    )


def _survivors(outcomes: Sequence[Outcome]) -> str:
    return "\n".join(
        f"| `{o.file.removeprefix('src/alpenglow/')}:{o.line}` | {o.what.replace('|', '¦')} | "
        f"{o.reached} | {len(o.ran)} |"
        for o in sorted(outcomes, key=lambda o: (o.file, o.line)) if not o.found
    )  # fmt: skip


PAGE = """\
# The cost and the findings of each test

*Reference.*  `tools/test_costs.py` writes this page.  For each test file of `make test`: its cost,
and how many planted mistakes it finds.  It is for those who move tests between `make test` and
`make test-rest` ([testing](testing.md)).  Index: [index](index.md).

    python tools/test_costs.py mutate            try mistakes, after make test-record
    python tools/test_costs.py page --junit REPORT

`make test` runs {tests} tests in {files} files, {seconds} s by the sum of the durations in a JUnit
report.

## Mistakes

{mistakes} mistakes were planted, one at a time: the mistakes of `tests/fuzz/mistakes.py` (*by
hand*), and mutations at random places (a longer file is drawn more often).  For each mistake,
recorded tests ran that execute the changed function: one of each test file, then a second of each
file, and so on, up to a limit of recorded seconds.  A test finds a mistake if it fails with the
mistake and passes without it.

| kind | planted | executed | found | found by one file alone |
|---|---|---|---|---|
{summary}

The numbers are lower bounds, because only a sample of the tests ran for each mistake.  Tests that
start processes find nothing here: the mistake is in the process of the test.  A mutation may also
change nothing that can be observed.

## Candidates for `make test-rest`

A candidate takes {costly} s or more, was tried with {tried} mistakes or more, and found none
alone.  Files that are candidates: {number}, which take {part} s, {share} of `make test`.  Files of
{costly} s or more that were tried with fewer mistakes, and so are not judged: {unjudged}.

| test file | seconds | tried with | found |
|---|---|---|---|
{candidates}

## Mistakes that no test found

| place | mistake | tests that execute it | tests that ran |
|---|---|---|---|
{survivors}

## All test files

| test file | tests | seconds | tried with | found | found alone |
|---|---|---|---|---|---|
{rows}
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
