"""A campaign: random models under all settings for a while, recorded, resumed where it stopped.

    python -m tests.fuzz.campaign --seconds 600 --workers 2 --summary summary.txt

goes on with the seeds that have no line in the log (`log`) of this generator, and first with those
that failed before the compiler was changed.  What fails is made small and written to `findings`.
Each worker is a process of its own; one that dies or hangs is replaced, and its model a finding.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

from alpenglow.frontends.registry import frontends

from .differential import BATCH, Hunt, Tried, keep
from .judge import Problem, Verdict
from .log import Log, Totals, died, generation
from .recipe import RECIPES, STAGED
from .settings import NUMERICS, WIDTHS, lacking

ENOUGH = 40
"""Findings of a worker that are made small: after so many, there is something to mend first."""

LONG = 600
"""Characters of a finding that are printed."""

ALONE = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""What keeps NumPy to one thread a process."""


class Seeds:
    """Seeds that several threads take in batches."""

    def __init__(self, seeds: Iterable[int], until: float) -> None:
        self._seeds = iter(seeds)
        self._lock = threading.Lock()
        self.until = until

    def __iter__(self) -> Iterator[list[int]]:
        while time.monotonic() < self.until:
            with self._lock:
                batch = list(itertools.islice(self._seeds, BATCH))
            if not batch:
                return
            yield batch

    def stop(self) -> None:
        self.until = 0.0


def work(seeds: Seeds, log: Log, findings: Path, first: bool, each: int) -> None:
    """Try batches until there are no more; stop all at the first finding, if that is enough."""
    hunt = Hunt(0.0 if first else 30.0, each)
    count = 0
    try:
        for batch in seeds:
            begin = time.monotonic()
            tried = attempted(hunt, batch)
            seconds = (time.monotonic() - begin) / len(batch)
            for t in tried:
                log.add(t, seconds)
                forget(t.seed, findings)
                if t.finding is not None:
                    tell(t, findings)
                    count += 1
                    hunt.seconds_each = hunt.seconds_each if count < ENOUGH else 0.0
                    if first:
                        seeds.stop()
    finally:
        hunt.close()


def attempted(hunt: Hunt, batch: list[int]) -> list[Tried]:
    """Try a batch; what goes wrong on this side is a finding as well, and no worker's end."""
    try:
        return hunt.try_batch(batch)
    except Exception as error:
        traceback.print_exc()
        hunt.close()
        problem = Problem("campaign", type(error).__name__, str(error))
        return [Tried(seed, verdict=Verdict([problem])) for seed in batch]


def forget(seed: int, findings: Path) -> None:
    """Remove what was kept of a seed, which has been tried again."""
    for file in findings.glob(f"{seed}.*"):
        file.unlink()


def tell(tried: Tried, findings: Path) -> None:
    assert tried.finding is not None
    keep(tried.finding, findings)
    print(str(tried.finding)[:LONG], flush=True)


def campaign(
    folder: Path, seconds: float, workers: int, first_seed: int = 0, first_finding: bool = False,
    count: int | None = None, each: int = 0,
) -> Totals:  # fmt: skip
    """Try seeds for a while, on several threads with a process each; return what the log says."""
    for name in ALONE:
        os.environ.setdefault(name, "1")
    log = Log(folder)
    wanted: Iterable[int] = log.unfinished(first_seed)
    seeds = Seeds(itertools.islice(wanted, count), time.monotonic() + seconds)
    given = (seeds, log, folder / "findings", first_finding, each)
    threads = [threading.Thread(target=work, args=given, daemon=True) for _ in range(workers)]
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    except KeyboardInterrupt:
        seeds.stop()
        print("stopping; what is under way is tried again another time", file=sys.stderr)
    finally:
        log.close()
    return log.totals


def summary(totals: Totals) -> str:
    """Return what a log comes to, for reading."""
    n = totals.cases
    aside = totals.aside()
    share = 100 * sum(aside.values()) / max(n + totals.alone, 1)
    widths, found = totals.by_width(), totals.findings()
    kinds = ("silent differences", "crashes and hangs", "accesses outside operands", *found)
    ends = ", ".join(f"{n} times of {how}" for how, n in sorted(totals.ends.items()))
    lines = [
        *([f"the campaign's own process died {ends}"] if ends else []),
        f"{len(totals.entries):,} models, {n:,} cases, {n / max(totals.seconds, 1e-9):.1f} a second"
        f" of one process; {totals.alone:,} more that nobody else could run",
        "cases by lanes:    " + " ".join(f"{how:>9}" for how in NUMERICS),
        *(
            f"{lanes:18} " + " ".join(f"{widths[f'{lanes} {how}']:9,}" for how in NUMERICS)
            for lanes in WIDTHS
        ),
        *(f"none at {lanes} lanes: {why}" for lanes, why in lacking().items()),
        f"{len(totals.failing())} findings: "
        + ", ".join(f"{found[kind]} {kind}" for kind in dict.fromkeys(kinds)),
        f"set aside: {sum(aside.values())} cases, {share:.2f} %",
        *(f"  {count:6} {kind}" for kind, count in aside.most_common()),
        "oracles: " + ", ".join(f"{k} {v}" for k, v in sorted(totals.told().items())),
    ]
    reached = totals.words("operators")
    missing = sorted(r for r in RECIPES | STAGED if r.rpartition(":")[2] not in reached)
    if missing:
        lines.append("not reached yet: " + ", ".join(missing))
    return "\n".join(lines)


def supervised(folder: Path, seconds: float) -> int:
    """Run this command in a process of its own, which goes on if it dies; return its status.

    Models are judged in processes of workers; but findings are made small where ONNX itself, which
    infers the types of what is cut out, may die.
    """
    until = time.monotonic() + seconds
    while True:
        left = max(until - time.monotonic(), 1.0)
        command = [sys.executable, "-m", "tests.fuzz.campaign", *sys.argv[1:], "--alone"]
        process = subprocess.Popen([*command, "--seconds", str(left)])
        status = None
        while status is None:
            with contextlib.suppress(KeyboardInterrupt):  # it stops by itself
                status = process.wait()
        if status >= 0:
            return status
        died(folder, signal.Signals(-status).name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long, about")
    parser.add_argument("--workers", type=int, default=1, help="how many processes")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, help="at most so many seeds")
    parser.add_argument("--folder", type=Path, default=Path(".fuzz"), help="where the logs are")
    parser.add_argument("--summary", type=Path, help="write what is printed at the end here, too")
    parser.add_argument("--first", action="store_true", help="stop at the first finding")
    parser.add_argument("--each", type=int, default=0, help="settings of a model, by custom all")
    parser.add_argument("--alone", action="store_true", help="restart nothing if this process dies")
    asked = parser.parse_args()
    if not frontends():
        parser.error("alpenglow is not installed: no front end is known")
    if not asked.alone:
        raise SystemExit(supervised(asked.folder / generation(), asked.seconds))
    folder = asked.folder / generation()
    print(f"log: {folder / 'log.jsonl'}", flush=True)
    given = (asked.seconds, asked.workers, asked.seed, asked.first, asked.count, asked.each)
    totals = campaign(folder, *given)
    text = summary(totals)
    print(text)
    if asked.summary is not None:
        asked.summary.write_text(f"{text}\n", encoding="utf-8")
    raise SystemExit(1 if totals.failing() else 0)


if __name__ == "__main__":
    main()
