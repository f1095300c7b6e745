"""Settings: all that is chosen beside the model when it is compiled and run.

A setting is a machine and numerics, which make a *case* of a model, and what else is drawn by lot.
It prints as words that read back: "x86-64-v3 fast threads=2 archive level=0".
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Literal

import numpy as np

from alpenglow.ir.target import Target

WIDTHS: dict[int, tuple[str, ...]] = {
    16: ("x86-64-v4", "cpu"),
    8: ("x86-64-v3",),
    4: ("x86-64-v2", "x86-64"),
    1: ("c",),
}
"""Machines by their lanes.  One lane is C, through gcc: what no vector of ours is left in."""

NUMERICS: tuple[Literal["strict", "fast"], ...] = ("strict", "fast")


@dataclass(frozen=True, slots=True)
class Setting:
    """How a model is compiled and run.

    `extents` are those of the feeds, or left open as the model has them.  `way` is how code comes
    to be run: as it was made, or through an archive; C has its vectors in a gcc type, or in arrays
    (`portable`).  `tuned` is the seed of a random record, 0 for none.  `level` is LLVM's, or gcc's.
    `cache` is how many bytes are taken to fit a cache, where that decides how large layers are
    split; 0 leaves it as it is, and small models whole.  If `fenced`, each kernel runs between
    pages that nobody may touch (`guarded`).
    """

    machine: str
    numerics: Literal["strict", "fast"] = "fast"
    threads: int = 1
    extents: Literal["fixed", "open"] = "fixed"
    way: Literal["run", "archive", "portable"] = "run"
    tuned: int = 0
    precision: Literal["f32", "bf16", "f16"] = "f32"
    level: int = 2
    cache: int = 0
    fenced: int = 0

    @property
    def lanes(self) -> int:
        """The width that this counts as: 0 for the interpreter."""
        return next((n for n, machines in WIDTHS.items() if self.machine in machines), 0)

    @property
    def is_c(self) -> bool:
        return self.machine == "c"

    def __str__(self) -> str:
        words = [self.machine, self.numerics]
        for f in fields(self)[2:]:
            value = getattr(self, f.name)
            if value != f.default:
                words.append(str(value) if isinstance(value, str) else f"{f.name}={value}")
        return " ".join(words)

    @staticmethod
    def parse(text: str) -> Setting:
        """Return the setting that prints as `text`."""
        machine, numerics, *words = text.split()
        found = Setting(machine, "strict" if numerics == "strict" else "fast")
        for word in words:
            name, _, number = word.partition("=")
            if number:
                found = replace(found, **{name: int(number)})
            else:
                found = replace(found, **{_WORDS[word]: word})
        return found

    def simpler(self) -> Iterator[Setting]:
        """Yield settings that have less in them, one thing left out of each."""
        plain = Setting(self.machine, self.numerics)
        for f in fields(self)[2:]:
            if getattr(self, f.name) != getattr(plain, f.name):
                yield replace(self, **{f.name: getattr(plain, f.name)})


_WORDS = {
    "open": "extents", "archive": "way", "portable": "way", "bf16": "precision",
    "f16": "precision",
}  # fmt: skip
"""The fields whose values are words."""

PLAIN = tuple(Setting(WIDTHS[n][0], how) for n in (16, 8, 4) for how in NUMERICS)
"""All widths that LLVM makes code for, both numerics, nothing special."""


def here(settings: Sequence[Setting]) -> list[Setting]:
    """Return the settings whose machines are at most this one; C where there is a compiler."""
    return [s for s in settings if runs(s.machine) and s.lanes in (0, lanes_of(s.machine))]


@cache
def runs(machine: str) -> bool:
    """Whether this machine runs code for another, or for a compiler of C."""
    if machine == "c":
        return shutil.which("gcc") is not None
    return Target.parse(machine).is_host_compatible()


@cache
def lanes_of(machine: str) -> int:
    """Return how many lanes there are: "cpu" has as many as this machine."""
    return 1 if machine == "c" else Target.parse(machine).facts.lanes


def lacking() -> dict[int, str]:
    """Return the widths that no setting of this machine has, each with the reason."""
    found = {}
    for lanes, machines in WIDTHS.items():
        if not any(here([Setting(m)]) for m in machines):
            found[lanes] = "there is no gcc" if lanes == 1 else f"it does not run {machines[0]}"
    return found


def drawn(seed: int, is_open: bool, is_staged: bool, each: int = 0) -> list[Setting]:
    """Return the settings of a model: all widths with both numerics, and the rest by lot.

    If `each` is not 0, so many of them: more models can be tried.
    """
    rng = np.random.default_rng((seed, 0x5E77))
    widths = [n for n in WIDTHS if n > 1 or not is_staged]
    found = here([_drawn(rng, n, how, is_open, is_staged) for n in widths for how in NUMERICS])
    if not each or each >= len(found):
        return found
    return [found[i] for i in sorted(rng.permutation(len(found))[:each])]


def _drawn(
    rng: np.random.Generator, lanes: int, numerics: Literal["strict", "fast"], is_open: bool,
    is_staged: bool,
) -> Setting:  # fmt: skip
    # A fixed number of throws: what is decided by one does not move the others.
    throws = rng.random(10)
    s = Setting(str(WIDTHS[lanes][int(throws[0] * len(WIDTHS[lanes]))]), numerics)
    if s.is_c:
        portable = throws[1] < 0.75
        return replace(s, way="portable" if portable else "run", level=int(throws[2] < 0.1))
    s = replace(s, threads=1 + int(throws[1] < 0.25), level=2 if throws[2] < 0.35 else 0)
    if is_open and throws[3] < 0.5:
        s = replace(s, extents="open")
    # At level 0 LLVM itself reads more than it is asked to, of a page that is there.
    if throws[9] < 0.2 and s.level == 2:
        s = replace(s, fenced=1)
    if throws[4] < 0.1:
        s = replace(s, way="archive")
    if is_staged or s.extents == "open":
        return s
    if throws[5] < 0.2:
        s = replace(s, tuned=1 + int(throws[5] * 5000))
    if throws[6] < 0.1:
        s = replace(s, precision="bf16" if throws[7] < 0.5 else "f16")
    if throws[8] < 0.3:
        s = replace(s, cache=256 << int(throws[8] * 20))
    return s
