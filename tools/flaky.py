"""Run the tests of `make test` several times under other conditions, and compare the outcomes.

    python tools/flaky.py [ROUNDS] [-- ARGUMENTS OF PYTEST]

A round changes the order of tests, the hash seed, the folder of temporary files, the locale, the
time zone, the processor level and what fresh memory holds; a process beside it keeps one core busy.
A test whose outcome is not the same in all rounds is printed, and the exit status is 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARKS = "not slow and not cross and not opencl and not torch"
BUSY = "while True: sum(range(10**6))"


@dataclass(frozen=True)
class Round:
    """The conditions of one run; `byte` is what MALLOC_PERTURB_ fills fresh memory with."""

    seed: int
    folder: str
    locale: str
    zone: str
    byte: int
    processor: str = ""


ROUNDS = (
    Round(1, "tmp", "C.UTF-8", "UTC", 0),
    Round(2, "übergrößen-フォルダ", "C", "Pacific/Kiritimati", 0x55, "x86-64-v3"),
    Round(3, "deep/" * 8 + "er", "POSIX", "America/St_Johns", 0xA5, "x86-64-v2"),
)


def main(arguments: Sequence[str]) -> int:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    more = arguments[at + 1 :]
    count = int(arguments[0]) if at else len(ROUNDS)
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = [run(r, Path(scratch), more) for r in ROUNDS[:count]]
    if not all(outcomes):
        print("flaky.py: a round ran no test", file=sys.stderr)
        return 1
    lines = differences(outcomes)
    for line in lines:
        print(line)
    failed = sum("failed" in o.values() for o in outcomes)
    print(f"flaky.py: {len(outcomes[0])} tests, {len(outcomes)} rounds, {len(lines)} differences, "
          f"{failed} rounds with failures")  # fmt: skip
    return int(bool(lines) or bool(failed))


def run(r: Round, scratch: Path, more: Sequence[str]) -> dict[str, str]:
    """Return the outcome of each test under the conditions of a round."""
    folder = scratch / str(r.seed) / r.folder
    folder.mkdir(parents=True)
    report = scratch / f"{r.seed}.xml"
    command = [sys.executable, "-m", "pytest", "-n", "2", "-q", "-m", MARKS, "--order", str(r.seed),
               "-o", "junit_family=xunit1", f"--junitxml={report}",
               *(["--processor", r.processor] if r.processor else []), *more]  # fmt: skip
    print(f"flaky.py: {r}", flush=True)
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        subprocess.run(command, env=environment(r, folder), check=False)
    finally:
        busy.kill()
        busy.wait()
    return read(report) if report.exists() else {}


def environment(r: Round, folder: Path) -> dict[str, str]:
    """Return the variables of a round."""
    seed = {"PYTHONHASHSEED": str(r.seed), "TMPDIR": str(folder), "LC_ALL": r.locale, "TZ": r.zone}
    return {**os.environ, **seed, "MALLOC_PERTURB_": str(r.byte)}


def read(report: Path) -> dict[str, str]:
    """Return the outcome of each test that a report of JUnit's form states."""
    outcomes = {}
    for case in ET.parse(report).iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        name = f"{case.get('file') or case.get('classname')}::{case.get('name')}"
        bad = kinds & {"failure", "error"}
        outcomes[name] = "failed" if bad else "skipped" if kinds else "passed"
    return outcomes


def differences(outcomes: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a line for each test whose outcome is not the same in all rounds."""
    names = sorted({name for o in outcomes for name in o})
    lines = []
    for name in names:
        seen = [o.get(name, "absent") for o in outcomes]
        if len(set(seen)) > 1:
            lines.append(f"{name}: {', '.join(seen)}")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
