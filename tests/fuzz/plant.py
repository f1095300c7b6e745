"""Plant mistakes in copies of the compiler, one each, and see which of them fuzzing catches.

    python -m tests.fuzz.plant --seconds 180 [--only WORDS] [--tests] [--out TABLE.md]

Each copy is fuzzed from the same seed until the first finding, for so many seconds at most.  With
`--tests` it also says whether the tests, without any fuzzing, catch it.  The table is Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from .log import generation
from .mistakes import MISTAKES, Mistake

ROOT = Path(__file__).resolve().parents[2]
SEED = 5_000_000
"""Far from the seeds of campaigns and tests."""

EACH = 2
"""Settings of a model: what is wrong is mostly wrong at all widths, so more models are tried."""

TESTS = ("not slow and not cross and not models", "not fuzz")
"""Which tests are run on a copy: marks, and words in names."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mistake: the seed that showed it, after how many seconds, and how."""

    mistake: Mistake
    seed: int | None
    seconds: float
    how: str
    tests: str = ""

    def row(self) -> str:
        where = f"`{self.mistake.file.rpartition('/')[2]}`"
        found = f"{self.seed - SEED}, {self.seconds:.0f} s" if self.seed is not None else "**no**"
        cells = [self.mistake.name, where, found, self.how, *([self.tests] if self.tests else [])]
        return f"| {' | '.join(cells)} |"


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


def fuzzed(mistake: Mistake, folder: Path, seconds: float) -> Outcome:
    """Fuzz a copy until the first finding."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "tests.fuzz.campaign", "--seconds", str(seconds), "--first",
               "--seed", str(SEED), "--each", str(EACH), "--folder", "log"]  # fmt: skip
    done = subprocess.run(command, cwd=folder, env=_environment(folder), text=True,
                          capture_output=True, check=False)  # fmt: skip
    taken = time.monotonic() - begin
    entries = folder / "log" / generation() / "log.jsonl"
    for line in entries.read_text().splitlines() if entries.exists() else ():
        entry = json.loads(line)
        if "problems" in entry:
            return Outcome(mistake, entry["seed"], taken, _how(entry["problems"][0]))
    return Outcome(mistake, None, taken, "" if done.returncode in (0, 1) else done.stderr[-200:])


def _how(problem: str) -> str:
    """Return what a problem was, in few words."""
    engine, _, what = problem.partition(": ")
    return f"{engine}: {what.partition(':')[0]}"


def tested(folder: Path) -> str:
    """Say whether the tests catch the mistake in a copy."""
    marks, names = TESTS
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider",
               "-m", marks, "-k", names, "tests"]  # fmt: skip
    done = subprocess.run(command, cwd=folder, env=_environment(folder), text=True,
                          capture_output=True, check=False)  # fmt: skip
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return f"`{failed[0].split('::')[0].partition(' ')[2]}`" if failed else "no"


def _environment(folder: Path) -> dict[str, str]:
    cache = str(folder / "cache")
    return {**os.environ, "PYTHONPATH": str(folder / "src"), "XDG_CACHE_HOME": cache}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=180.0, help="how long each, at most")
    parser.add_argument("--only", default="", help="mistakes with these words in file or name")
    parser.add_argument("--tests", action="store_true", help="run the tests on each copy as well")
    parser.add_argument("--out", type=Path, help="write the table to this file")
    asked = parser.parse_args()
    rows = []
    caught = total = 0
    for mistake in MISTAKES:
        if asked.only not in mistake.file + mistake.name:
            continue
        with tempfile.TemporaryDirectory(prefix="alpenglow-planted-") as folder:
            planted(mistake, Path(folder))
            outcome = fuzzed(mistake, Path(folder), asked.seconds)
            if asked.tests:
                tests = tested(Path(folder))
                outcome = Outcome(mistake, outcome.seed, outcome.seconds, outcome.how, tests)
        caught, total = caught + (outcome.seed is not None), total + 1
        rows.append(outcome.row())
        print(rows[-1], flush=True)
    print(f"{caught} of {total} caught")
    if asked.out is not None:
        heads = ["mistake", "in", "seed and time", "by", *(["tests"] if asked.tests else [])]
        lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *rows]
        asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
