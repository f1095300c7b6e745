"""Plant mistakes in copies of the compiler, one each, and see which of them fuzzing catches.

    python -m tests.fuzz.plant --seconds 180 --workers 2 [--jobs 2] [--only WORDS] [--tests 600]
                               [--out FILE]

Each copy is fuzzed from the same seed until the first finding, for so many seconds at most, by as
many processes as `--jobs` says; what fails without the mistake, too, is none.  With `--tests` it
also says whether the tests, without any fuzzing, catch it in so many seconds; `--seconds 0` runs
nothing but these.  The table is Markdown.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .log import generation, kind_of, read
from .mistakes import MISTAKES, Mistake

ROOT = Path(__file__).resolve().parents[2]
SEED = 5_000_000
"""Far from the seeds of campaigns and tests."""

EACH = 2
"""Settings of a model: what is wrong is mostly wrong at all widths, so more models are tried."""

TESTS = ("(not slow or rest) and not cross and not opencl and not models", "not fuzz")
"""Which tests are run on a copy: marks, and words in names."""

NEAREST = ("ops/test_operators.py", "passes/*.py", "frontends/onnx/test_onnx_*.py")
"""Those that come first: most mistakes are in what they try."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mistake: the seed that showed it, how many cases after how many seconds, and
    how; and what the tests say."""

    mistake: Mistake
    seed: int | None = None
    seconds: float = 0.0
    cases: int = 0
    how: str = ""
    tests: str = ""

    def row(self) -> str:
        where = f"`{self.mistake.file.rpartition('/')[2]}`"
        cells = [self.mistake.name, where, "**no**", f"{self.seconds:.0f}", f"{self.cases:,}"]
        if self.seed is not None:
            cells[2] = str(self.seed)
        return f"| {' | '.join([*cells, self.how, self.tests])} |"


HEADS = ("mistake", "in", "seed", "seconds", "cases", "caught as", "tests")


def planted(mistake: Mistake, folder: Path) -> None:
    """Copy the package and its tests to a folder, and put the mistake into the copy."""
    for part in ("src", "tests", "docs", "tools"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    file = folder / "src" / "alpenglow" / mistake.file
    text = file.read_text(encoding="utf-8")
    count = text.count(mistake.old)
    assert count == 1, f"{mistake.name}: the old text stands {count} times in {mistake.file}"
    file.write_text(text.replace(mistake.old, mistake.new), encoding="utf-8")


def fuzzed(mistake: Mistake, folder: Path, seconds: float, jobs: int) -> Outcome:
    """Fuzz a copy until the first finding that is not one of the compiler as it is."""
    begin = time.monotonic()
    known: set[int] = set()
    cases = 0
    while (left := seconds - (time.monotonic() - begin)) > 1:
        done = campaign(folder, folder, left, SEED, "--workers", str(jobs))
        entries = logged(folder)
        cases = sum(e["cases"] for e in entries)
        new = [e for e in entries if "problems" in e and e["seed"] not in known]
        taken = time.monotonic() - begin
        for entry in new:
            if not fails(entry["seed"], folder):
                how = f"{kind_of(entry['problems'][0])}, {_how(entry['problems'][0])}"
                return Outcome(mistake, entry["seed"], taken, cases, how)
        known |= {e["seed"] for e in new}
        assert new or done.returncode in (0, 1), done.stderr[-2000:]
    return Outcome(mistake, None, time.monotonic() - begin, cases)


def campaign(
    tree: Path, folder: Path, seconds: float, seed: int, *more: str
) -> subprocess.CompletedProcess[str]:
    """Fuzz the compiler of a tree; the log is kept in a folder."""
    command = [sys.executable, "-m", "tests.fuzz.campaign", "--seconds", str(seconds), "--first",
               "--seed", str(seed), "--each", str(EACH), "--folder", str(folder / "log"),
               *more]  # fmt: skip
    return subprocess.run(command, cwd=tree, env=_environment(tree, folder), text=True,
                          capture_output=True, check=False)  # fmt: skip


def fails(seed: int, folder: Path) -> bool:
    """Whether a seed fails without any mistake planted."""
    apart = folder / f"without-{seed}"
    apart.mkdir()
    campaign(ROOT, apart, 300.0, seed, "--count", "1")
    (entry,) = logged(apart)
    return "problems" in entry


def logged(folder: Path) -> list[dict[str, Any]]:
    return [entry for entry, _ in read(folder / "log" / generation() / "log.jsonl")]


def _how(problem: str) -> str:
    """Return what a problem was, in few words."""
    engine, _, what = problem.partition(": ")
    return f"{engine}: {what.partition(':')[0]}"


def tested(folder: Path, seconds: float) -> str:
    """Say whether the tests catch the mistake in a copy."""
    marks, names = TESTS
    first = [str(p.relative_to(ROOT)) for each in NEAREST
             for p in sorted((ROOT / "tests").glob(each))]  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider",
               "-m", marks, "-k", names, *first, "tests"]  # fmt: skip
    begin = time.monotonic()
    try:
        done = subprocess.run(command, cwd=folder, env=_environment(folder, folder), text=True,
                              capture_output=True, check=False, timeout=seconds)  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"not in {seconds:.0f} s"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if failed:
        return f"`{failed[0].split('::')[0].partition(' ')[2]}`, {time.monotonic() - begin:.0f} s"
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return "no"


def _environment(tree: Path, folder: Path) -> dict[str, str]:
    cache = str(folder / "cache")
    path = os.pathsep.join([str(tree / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": cache}


def tried(mistake: Mistake, seconds: float, jobs: int, test_seconds: float) -> Outcome:
    """Plant a mistake in a copy, fuzz that, and test it."""
    with tempfile.TemporaryDirectory(prefix="alpenglow-planted-") as name:
        folder = Path(name)
        planted(mistake, folder)
        outcome = fuzzed(mistake, folder, seconds, jobs) if seconds else Outcome(mistake)
        if test_seconds:
            outcome = replace(outcome, tests=tested(folder, test_seconds))
    print(outcome.row(), flush=True)
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=180.0, help="how long each, at most")
    parser.add_argument("--workers", type=int, default=1, help="how many mistakes at a time")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes fuzz each")
    parser.add_argument("--only", default="", help="mistakes with these words in file or name")
    parser.add_argument("--tests", type=float, default=0.0, help="seconds of tests on each copy")
    parser.add_argument("--out", type=Path, help="write the table to this file")
    asked = parser.parse_args()
    chosen = [m for m in MISTAKES if asked.only in m.file + m.name]
    with ThreadPoolExecutor(asked.workers) as pool:
        outcomes = list(
            pool.map(lambda m: tried(m, asked.seconds, asked.jobs, asked.tests), chosen)
        )
    caught = sum(o.seed is not None for o in outcomes)
    kinds = Counter(o.how.partition(",")[0] for o in outcomes if o.seed is not None)
    text = f"{caught} of {len(outcomes)} caught: {dict(kinds)}"
    if asked.tests:
        text += f"; {sum(o.tests.startswith('`') for o in outcomes)} by the tests alone"
    print(text)
    if asked.out is not None:
        heads = [f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
        lines = [*heads, *(o.row() for o in outcomes)]
        asked.out.write_text("\n".join([*lines, "", text]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
