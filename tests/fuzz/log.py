"""The log of a campaign: a line of JSON for each seed, so that it can stop at any time and go on.

It lies in a folder of the generator that made the models: where recipes change, a seed makes
another model, and what was tried before counts no more.  A line that was not finished, because the
process was killed, is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import alpenglow

from .aside import NAMES
from .differential import Tried

HERE = Path(__file__).parent
SYNC = 5.0
"""Seconds after which what was written is on the disk for sure."""


def generation() -> str:
    """Return a name for what makes the models and the settings of seeds."""
    names = ("dice.py", "draft.py", "elements.py", "grids.py", "inference.py", "models.py",
             "recipe.py", "recipes_*.py", "settings.py", "views.py", "windows.py")  # fmt: skip
    return digest(p for name in names for p in HERE.glob(name))


def compiler() -> str:
    """Return a name for the compiler as it is now."""
    return digest(Path(alpenglow.__file__).parent.rglob("*.py"))


def digest(files: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for file in sorted(files):
        found.update(file.name.encode() + file.read_bytes())
    return found.hexdigest()[:12]


def line(tried: Tried, seconds: float) -> dict[str, Any]:
    """Return what is kept of a seed."""
    v = tried.verdict
    entry: dict[str, Any] = {
        "seed": tried.seed, "cases": tried.cases(), "compared": tried.compared(),
        "kinds": list(tried.kinds), "operators": sorted(set(tried.operators)),
        "widths": sorted(tried.widths()), "oracles": v.oracles, "seconds": round(seconds, 3),
    }  # fmt: skip
    odd = {setting: how for setting, how in v.ran.items() if how != "same"}
    if odd:
        entry["odd"] = odd
    if v.declined:
        entry["declined"] = v.declined[:200]
    if v.problems:
        entry["problems"] = [str(p)[:400] for p in v.problems]
    if tried.finding is not None:
        entry["finding"] = str(tried.finding)
    return entry


@dataclass
class Totals:
    """What all lines of a log come to; a seed that was tried again counts once, as it was last."""

    entries: dict[int, dict[str, Any]] = field(default_factory=dict)
    compilers: dict[int, str] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)
    """Signals that the campaign's own process died of, and how often."""

    def add(self, entry: dict[str, Any], compiler: str) -> None:
        self.entries[entry["seed"]] = entry
        self.compilers[entry["seed"]] = compiler

    @property
    def cases(self) -> int:
        return sum(e["cases"] for e in self.entries.values())

    @property
    def alone(self) -> int:
        """How many more cases only we could run."""
        return sum(e["compared"] - e["cases"] for e in self.entries.values())

    @property
    def seconds(self) -> float:
        return sum(e["seconds"] for e in self.entries.values())

    def by_width(self) -> Counter[str]:
        """Count the confirmed cases by width and numerics."""
        return Counter(w for e in self.entries.values() if e["cases"] for w in e["widths"])

    def findings(self) -> Counter[str]:
        """Count what failed, by what went wrong: one finding a seed."""
        return Counter(kind_of(e["problems"][0]) for e in self.entries.values() if "problems" in e)

    def failing(self) -> list[int]:
        return sorted(s for s, e in self.entries.items() if "problems" in e)

    def aside(self) -> Counter[str]:
        """Count cases by the kind that they were set aside for."""
        found: Counter[str] = Counter()
        for e in self.entries.values():
            found.update(how for how in e.get("odd", {}).values() if how in NAMES)
            if e["cases"]:
                continue  # somebody confirmed it, whatever others said
            kinds = {how for how in e["oracles"].values() if how in NAMES}
            found.update(dict.fromkeys(sorted(kinds)[:1], e["compared"]))
        return found

    def words(self, name: str) -> Counter[str]:
        """Count the words that stand in the lists `name` of seeds."""
        return Counter(word for e in self.entries.values() for word in e[name])

    def told(self) -> Counter[str]:
        """Count what oracles said."""
        return Counter(f"{k} {v}" for e in self.entries.values() for k, v in e["oracles"].items())


def kind_of(problem: str) -> str:
    """Return what kind of finding a problem is, by its text."""
    what = problem.partition(": ")[2]
    if what.startswith(("differs", "accepts")):
        return "silent differences"
    if what.startswith(("crash", "hang")):
        return "crashes and hangs"
    if "may leave its operands" in what:
        return "addresses without proof"
    if what.startswith("Trespass") or "between fences" in what:
        return "accesses outside operands"
    return "errors"


class Log:
    """The log of one generation, open for more lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "log.jsonl"
        self.compiler = compiler()
        self.totals = Totals()
        for entry, made_by in read(self.path):
            self.totals.add(entry, made_by)
        self.totals.ends.update(entry["died"] for entry in lines(self.path) if "died" in entry)
        self._file = open(self.path, "ab")  # noqa: SIM115
        self._lock = threading.Lock()
        self._synced = time.monotonic()
        if self._file.tell() and not _ends_well(self.path):
            self._file.write(b"\n")
        self._write({"session": time.strftime("%Y-%m-%d %H:%M:%S"), "compiler": self.compiler})

    def add(self, tried: Tried, seconds: float) -> None:
        """Write the line of a seed."""
        entry = line(tried, seconds)
        with self._lock:
            self.totals.add(entry, self.compiler)
            self._write(entry)

    def unfinished(self, first: int) -> Iterator[int]:
        """Yield seeds from `first` on that have no line yet; before, those that failed otherwise.

        A seed that failed with another compiler than this one may not fail any more.
        """
        done = self.totals.entries
        yield from [s for s in self.totals.failing() if self.totals.compilers[s] != self.compiler]
        seed = first
        while True:
            if seed not in done:
                yield seed
            seed += 1

    def close(self) -> None:
        with self._lock:
            os.fsync(self._file.fileno())
            self._file.close()

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        if time.monotonic() - self._synced > SYNC:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()


def read(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the lines of seeds, each with the compiler of its session."""
    made_by = ""
    for entry in lines(path):
        if "session" in entry:
            made_by = entry["compiler"]
        elif "seed" in entry:
            yield entry, made_by


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log that were written to their ends."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for text in file:
            with contextlib.suppress(ValueError):  # the process was killed while it wrote
                yield json.loads(text)


def died(folder: Path, how: str) -> None:
    """Write that the process of a campaign died."""
    with (folder / "log.jsonl").open("ab") as file:
        file.write(b"\n" + json.dumps({"died": how}).encode() + b"\n")


def _ends_well(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
