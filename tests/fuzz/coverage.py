"""What of the compiler the fuzzers reach by themselves: lines and branches, a file a row.

    python -m tests.fuzz.coverage --seconds 600 --workers 2 --out unreached.txt

runs the models of seeds, and nothing else, under coverage.py; it prints a table, and writes to
`--out` what was never reached.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "src/alpenglow"
WATCHED = (
    "machines/vector/templates/*", "loops/*", "passes/*", "frontends/onnx/convert/*",
    "ops/*", "program/*",
)  # fmt: skip

APART = 100_000
"""Seeds between where workers begin."""

ROUND = 60.0
"""Seconds of one process: what it reached is lost if it dies."""

Files = Mapping[str, Any]


def measured(folder: Path, seconds: float, first: int) -> int:
    """Run seeds under coverage.py for a while; return the seed to go on with."""
    until, seed = time.monotonic() + seconds, first
    while (left := until - time.monotonic()) > 0:
        reached = folder / f"from-{first}"
        command = [
            sys.executable, "-m", "coverage", "run", "--branch", "--parallel-mode",
            f"--data-file={folder / 'data'}",
            f"--include={','.join(str(ROOT / SOURCE / w) for w in WATCHED)}",
            "-m", "tests.fuzz.sweep", "--seed", str(seed), "--seconds", str(min(ROUND, left)),
            "--reached", str(reached),
        ]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, check=False)
        seed = int(reached.read_text()) + (done.returncode != 0)
        if done.returncode:
            print(f"the process of seed {seed - 1} ended with {done.returncode}", flush=True)
    return seed


def report(folder: Path) -> Files:
    """Combine what processes wrote; return the report of each file, by its name."""
    data, out = folder / "data", folder / "report.json"
    for words in (["combine", "-q"], ["json", "-q", "-o", str(out)]):
        command = [sys.executable, "-m", "coverage", *words, f"--data-file={data}"]
        subprocess.run(command, cwd=ROOT, check=True)
    return dict(json.loads(out.read_text())["files"])


def table(files: Files) -> list[str]:
    """Return the rows of a table: lines and branches of each file, and how many are missed."""
    rows = [f"{'file':52} {'lines':>6} {'missed':>6} {'branches':>8} {'missed':>6} {'reached':>8}"]
    total = [0, 0, 0, 0]
    for name, f in sorted(files.items()):
        s = f["summary"]
        numbers = [s["num_statements"], s["missing_lines"], s["num_branches"],
                   s["missing_branches"]]  # fmt: skip
        total = [a + b for a, b in zip(total, numbers, strict=True)]
        rows.append(_row(_short(name), numbers))
    rows.append(_row("all", total))
    return rows


def _row(name: str, numbers: Sequence[int]) -> str:
    lines, no_lines, branches, no_branches = numbers
    share = 100 * (1 - (no_lines + no_branches) / max(lines + branches, 1))
    return f"{name:52} {lines:6} {no_lines:6} {branches:8} {no_branches:6} {share:7.1f}%"


def unreached(files: Files) -> list[str]:
    """Return what was never reached: the text of lines, and branches by where they lead."""
    found = []
    for name, f in sorted(files.items()):
        lines = (ROOT / name).read_text().splitlines()
        missed = sorted(f["missing_lines"])
        for n in missed:
            found.append(f"{_short(name)}:{n}: {lines[n - 1].strip()}")
        for start, end in f["missing_branches"]:
            if start not in missed and end not in missed:
                to = "the end" if end < 0 else f"{end}: {lines[end - 1].strip()}"
                found.append(f"{_short(name)}:{start}: {lines[start - 1].strip()}  ->  {to}")
    return found


def _short(name: str) -> str:
    return name.removeprefix(f"{SOURCE}/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long, about")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=1, help="how many processes")
    parser.add_argument("--out", type=Path, help="write what was never reached to this file")
    asked = parser.parse_args()
    if find_spec("coverage") is None:
        parser.error("coverage.py is needed: pip install coverage")
    with tempfile.TemporaryDirectory(prefix="alpenglow-coverage-") as folder:
        starts = [asked.seed + k * APART for k in range(asked.workers)]
        with ThreadPoolExecutor(asked.workers) as pool:
            ends = list(pool.map(lambda s: measured(Path(folder), asked.seconds, s), starts))
        files = report(Path(folder))
    tried = sum(end - start for start, end in zip(starts, ends, strict=True))
    rows = [*table(files), f"{tried} models from seed {asked.seed} on, {asked.workers} x {APART}"]
    print("\n".join(rows))
    if asked.out is not None:
        asked.out.write_text("\n".join([*rows, "", *unreached(files), ""]))


if __name__ == "__main__":
    main()
