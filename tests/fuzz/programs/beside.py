"""A random program of some format, judged beside the format's own runtime, under settings of ours.

The reference is the imported graph, evaluated node by node; the runtime says that it is right, and
code under settings is compared with it (`judge.Trial`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from alpenglow.base.errors import AlpenglowError, UnsupportedError
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel

from ..dice import SIZES, SYMBOLS
from ..elements import Array
from ..judge import Feeds, Trial, is_near
from ..noise import widest, wrong
from ..reference import Reference
from ..settings import Setting, drawn
from .program import Program, Writer, strange

TIMES = 24.0
"""How many times what rounding may do a runtime may be off: its functions are approximations."""

LEAST = 1e-6
"""The same, relative to the largest element."""


class Undefined(UnsupportedError):
    """The format, or its runtime, does not take a program, whoever runs it."""


class Format(Protocol):
    """A format, its writer and its runtime."""

    name: str
    opens: bool
    """Whether extents may be left open."""
    nan: bool
    """Whether the runtime says what becomes of NaN."""
    tiny: bool
    """Whether the runtime computes with denormal numbers; otherwise they are 0."""

    def session(self) -> AbstractContextManager[object]:
        """Return a context in which programs are drawn and run."""

    def writer(self) -> Writer:
        """Return what writes a new program."""

    def loaded(self, program: Program, feeds: Feeds, is_open: bool) -> Graph | StagedModel:
        """Import a program, for extents as in feeds, or those that are symbols left open."""

    def run(self, program: Program, feeds: Feeds) -> dict[str, Array]:
        """Return outputs by the runtime, named as the graph names them.  May raise Undefined."""

    def more(
        self, program: Program, references: Mapping[int, Reference], seed: int
    ) -> list[tuple[str, str]]:
        """Judge other ways of running it: return who differs, and how."""


class Beside(Trial):
    """The trial of a program."""

    def __init__(
        self, format_: Format, program: Program, seed: int, settings: Sequence[Setting]
    ) -> None:
        rng = np.random.default_rng(seed)
        odd = strange(program, rng, format_.tiny, format_.nan)
        feedings: list[Feeds] = [program.inputs, odd]
        if not program.inputs:
            feedings = feedings[:1]
        feedings += sizes(program)
        super().__init__(b"", feedings, settings, ("runtime",), (), True)
        self.format, self.program, self.seed = format_, program, seed

    def _loaded(self, feeds: Feeds | None = None) -> Graph | StagedModel:
        return self.format.loaded(self.program, feeds or self.feedings[0], feeds is None)

    def _found(self, engine: str, what: str, error: Exception | str) -> None:
        if "it serves these alone" in str(error):  # slower for other extents, and no more
            self.verdict.ran[engine] = "unproved"
            return
        if engine == "load" and isinstance(error, AlpenglowError):
            self.verdict.declined = str(error)
            return
        first = self.references.get(0)
        if isinstance(first, AlpenglowError) and isinstance(error, AlpenglowError):
            return  # what data make impossible may be refused at any time
        super()._found(engine, what, error)

    def _is_fixed(self) -> bool:
        return False

    def _ask(self) -> None:
        for number, reference in self.references.items():
            feeds = self.feedings[number]
            try:
                theirs = self.format.run(self.program, feeds)
            except Undefined as error:
                self.verdict.oracles.setdefault("runtime", f"refuses: {error}"[:80])
                continue
            if isinstance(reference, AlpenglowError):
                if not number:
                    self._found(self.format.name, "accepts", f"what we refuse: {reference}")
                continue
            if not self.format.nan and "nan" in reference.traits():
                continue
            for name, y in reference.expected.items():
                if not self.format.nan and y.dtype.kind == "f" and not np.isfinite(y).all():
                    continue
                what = apart(reference, name, theirs[name]) if name in theirs else "is missing"
                if what:
                    self.verdict.feeding = number
                    self._found(self.format.name, "differs" if number != 1 else "differs, strange",
                                f"output '{name}': {what}")  # fmt: skip
                    break
            self.verdict.oracles["runtime"] = "same"
        if not self.verdict.problems:
            fine = {n: r for n, r in self.references.items() if isinstance(r, Reference)}
            for who, what in self.format.more(self.program, fine, self.seed):
                self._found(who, "differs", what)


def apart(reference: Reference, name: str, theirs: Array, times: float = TIMES) -> str:
    """Return how a result of the runtime differs from the reference, "" if it does not."""
    y = reference.expected[name]
    if is_near(y, theirs):
        return ""
    overflows = "halves" not in reference.traits()
    if not overflows and y.shape == theirs.shape and y.dtype == theirs.dtype:
        # Sums of halves are f32 for one and halves for the other, which overflow earlier.
        theirs = np.where(np.isinf(widest(theirs)), y, theirs)
    for runs in (6, 60):
        what = wrong(y, theirs, reference.slack(runs)[name], times, LEAST, overflows)
        if not what:
            return ""
    return what


def sizes(program: Program) -> list[Feeds]:
    """Return feeds of other extents, if any are open."""
    if not program.is_open:
        return []
    found: list[Feeds] = []
    # One of them is enough: each is imported and run for its own.
    for chosen in SIZES[len(program.lines) % 3 :][:1]:
        to = dict(zip(SYMBOLS.values(), chosen, strict=True))
        feeds = {}
        for k, a in program.inputs.items():
            shape = tuple(to.get(n, n) for n in a.shape)
            feeds[k] = np.resize(a, shape) if a.size else np.ones(shape, a.dtype)
        if any(feeds[k].shape != a.shape for k, a in program.inputs.items()):
            found.append(feeds)
    return found


def settings_of(seed: int, program: Program, each: float) -> list[Setting]:
    """Return `each` of the settings that are drawn for a seed, on average; none is C."""
    every = [s for s in drawn(seed, program.is_open, False) if not s.is_c]
    rng = np.random.default_rng((seed, 0xC))
    count = int(each + rng.random())
    return [every[i] for i in sorted(rng.permutation(len(every))[:count])]
