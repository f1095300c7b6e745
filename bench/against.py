"""Two commits of ours, by turns: is anything slower than it was?

    python bench/compare.py --against REV [--nets A,B] [--threads 1,2] [--rounds N]

Each commit compiles with its own sources and its own cache, on the same interpreter and the same
packages.  A row is *slower* if more than 80 % of its rounds took over 2 % longer than those of REV.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from alpenglow.base.errors import OptionError
from alpenglow.measure.contest import Length, TimeRatio, compete, middles
from peers import Running

TOLERATED = 1.02
"""How many times as long a call may take before a row counts as slower."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a net takes on so many threads: seconds before and now, and the ratio, now to before."""

    net: str
    threads: int
    before: float
    now: float
    ratio: TimeRatio

    @property
    def slower(self) -> bool:
        """True if it is slower wherever 80 % of the rounds lie."""
        return self.ratio.low > TOLERATED

    def __str__(self) -> str:
        low, high = self.ratio.low, self.ratio.high
        verdict = "  slower" if self.slower else "  faster" if high < 1 / TOLERATED else ""
        return (
            f"{self.net:<22}{self.threads:>3}{1e3 * self.before:>12.4g}{1e3 * self.now:>12.4g}"
            f"{self.ratio.median:>9.3f}  {low:.3f}-{high:.3f}{verdict}"
        )


HEAD = f"{'net':<22}{'thr':>3}{'before ms':>12}{'now ms':>12}{'now/then':>9}  80 % of rounds"


def unpacked(root: Path, revision: str, folder: Path) -> Path:
    """Return the folder in which a commit is installed; raise OptionError if there is none such."""
    named = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"],
        cwd=root, capture_output=True, text=True,
    )  # fmt: skip
    if named.returncode:
        raise OptionError(f"no commit is called '{revision}'", hint="git log --oneline")
    sha = named.stdout.strip()
    place = folder / sha[:12]
    if not (place / "site").exists():
        parts = ["src", "pyproject.toml", "README.md", "LICENSE"]
        archive = subprocess.run(
            ["git", "archive", sha, *parts], cwd=root, capture_output=True, check=True
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(place, filter="data")
        # Its entry points count, too, and those are what is installed.
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", str(place / "site"), str(place)], check=True)
    return place / "site"


def measure(
    net: str, files: tuple[Path, Path], threads: int, then: Path, scratch: Path, length: Length,
    precision: str,
) -> Row:  # fmt: skip
    """Let both commits run a net, a burst each by turns."""
    cpus = os.sched_getaffinity(0)
    places: Mapping[str, Path | None] = {"before": then, "now": None}
    with ExitStack() as stack:
        contestants = {}
        for who, place in places.items():
            cache = scratch / who / "cache"
            environment = {"ALPENGLOW_CACHE": str(cache)}
            if place is not None:
                environment["PYTHONPATH"] = str(place)
            one = stack.enter_context(
                Running("alpenglow", threads, cpus, sys.executable, environment)
            )
            one.load(*files, scratch / who, precision)
            contestants[who] = one
        took = {who: middles(found) for who, found in compete(contestants, length).items()}
    now, before = took["now"], took["before"]
    middle = sorted(before)[len(before) // 2], sorted(now)[len(now) // 2]
    return Row(net, threads, *middle, TimeRatio.of(now, before))


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of what has been measured, and how many rows are slower."""
    yield HEAD
    yield from map(str, rows)
    slower = [f"{r.net} on {r.threads}" for r in rows if r.slower]
    yield f"{len(rows)} rows, {len(slower)} slower" + (f": {', '.join(slower)}" if slower else "")
