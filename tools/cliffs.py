"""Find performance cliffs: random models of one operator, timed beside other runtimes.

    python tools/cliffs.py --cases 3000               # appends to .bench/cliffs.jsonl
    python tools/cliffs.py --cases 100 --only MaxPool,Conv --seed 3
    python tools/cliffs.py --case "MaxPool 17 seed 3 scale 1"
    python tools/cliffs.py --report                   # writes docs/cliffs.md

A case is drawn by its operator, its number, a seed and a scale (`cliff_draw.py`).  It is compiled
for one thread, run in ONNX Runtime and, where NumPy or PyTorch have the function, in these, and
timed by interleaved bursts in one process (`cliff_measure.py`).  Cases that the file has already
are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from threading import Lock, local
from typing import Any

import cliff_measure
import cliff_page
from alpenglow.base.errors import UnsupportedError
from alpenglow.measure.contest import Process
from cliff_draw import FAMILIES, WEIGHTS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "cliffs.md"
RESULTS = ROOT / ".bench" / "cliffs.jsonl"

PATIENCE = 120.0
"""After how many seconds a case counts as hung."""

FRESH = 200
"""A worker is replaced after so many cases, as compiled code stays in memory."""

Row = dict[str, Any]


class Worker(Process):
    """A process that measures cases."""

    program = cliff_measure.__file__


class Workers:
    """A worker for each thread, replaced when it died and now and then."""

    def __init__(self) -> None:
        self._local, self._lock = local(), Lock()
        self._all: list[Worker] = []

    def ask(self, op: str, number: int, seed: int, scale: int | None = None) -> Row:
        """Return the row of a case; a worker that dies or hangs is the result of the case."""
        worker = self._worker()
        self._local.left -= 1
        try:
            return worker.ask("case", PATIENCE, op=op, number=number, seed=seed, scale=scale)
        except UnsupportedError as error:
            self._local.left = 0
            name = f"{op} {number} seed {seed} scale {scale or 1}"
            return {"case": name, "op": op, "text": "", "failed": str(error)}

    def close(self) -> None:
        for worker in self._all:
            worker.close()

    def _worker(self) -> Worker:
        if getattr(self._local, "left", 0) > 0:
            found: Worker = self._local.worker
            return found
        if old := getattr(self._local, "worker", None):
            old.close()
        paths = [str(ROOT / "tools"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        settings = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "ALPENGLOW_CACHE": "off"}
        worker = Worker("case", 1, os.sched_getaffinity(0), environment=settings)
        self._local.worker, self._local.left = worker, FRESH
        with self._lock:
            self._all.append(worker)
        return worker


def order(cases: int, seed: int, only: Sequence[str] = ()) -> Iterator[tuple[str, int]]:
    """Yield operators and the numbers of their cases, in a drawn order."""
    ops = list(only) or list(FAMILIES)
    if unknown := sorted(set(ops) - set(FAMILIES)):
        raise SystemExit(f"--only: {', '.join(unknown)} is unknown; try: {', '.join(FAMILIES)}")
    shuffled, counts = random.Random(f"order {seed}"), dict.fromkeys(ops, 0)
    for op in shuffled.choices(ops, [WEIGHTS[op] for op in ops], k=cases):
        yield op, counts[op]
        counts[op] += 1


def parsed(case: str) -> tuple[str, int, int, int]:
    """Return the operator, number, seed and scale in a case's name."""
    match case.split():
        case [op, number, "seed", seed, "scale", scale] if op in FAMILIES:
            return op, int(number), int(seed), int(scale)
        case [op, number, "seed", seed] if op in FAMILIES:
            return op, int(number), int(seed), 1
    raise SystemExit(f'--case is "{case}", expected "OPERATOR NUMBER seed SEED scale SCALE"')


def done(results: Path) -> list[Row]:
    """Return the rows of a file; of a last line that was cut off nothing."""
    if not results.exists():
        return []
    lines = results.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def run(cases: int, seed: int, only: Sequence[str], jobs: int, results: Path) -> None:
    """Run the cases that a file does not have, and append them."""
    results.parent.mkdir(parents=True, exist_ok=True)
    had = {" ".join(row["case"].split()[:4]) for row in done(results)}
    todo = [c for c in order(cases, seed, only) if f"{c[0]} {c[1]} seed {seed}" not in had]
    about, workers = conditions(), Workers()
    try:
        with results.open("a", encoding="utf-8") as file, ThreadPoolExecutor(jobs) as pool:
            for row in pool.map(lambda c: workers.ask(c[0], c[1], seed), todo):
                print(json.dumps(row | about), file=file, flush=True)
                if words := cliff_page.remarkable(row):
                    print(words, flush=True)
    finally:
        workers.close()


def conditions() -> Row:
    """Return the machine and the versions of the runtimes."""
    packages = {p: version(p) for p in ("onnxruntime", "numpy", "torch")}
    return {"machine": cliff_page.machine(), "versions": packages}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=3000, help="how many to draw (3000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="operators, separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="cases at the same time (1)")
    parser.add_argument("--case", help="one case by its name: prints its row")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of rows")
    parser.add_argument("--report", action="store_true", help="write docs/cliffs.md from the file")
    args = parser.parse_args()
    if args.case:
        workers = Workers()
        print(json.dumps(workers.ask(*parsed(args.case)), indent=1))
        workers.close()
    elif args.report:
        PAGE.write_text(cliff_page.page(done(args.results)), encoding="utf-8")
    else:
        only = [op for op in args.only.split(",") if op]
        run(args.cases, args.seed, only, args.jobs, args.results)
        print(cliff_page.summary(done(args.results)))


if __name__ == "__main__":
    main()
