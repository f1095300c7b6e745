"""What a caller can choose about compilation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from alpenglow.base import knobs
from alpenglow.base.errors import OptionError
from alpenglow.compiler.passes import Pass
from alpenglow.passes.choices import Record

Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `compile`.

    `numerics` is "fast" (contraction and reassociation; the default) or "strict" (operations as
    written).  `passes` are the caller's own, each inserted where its `after` says.  `after` is
    called with each pass and what it made.  `progress` is called on long work.  `check` validates
    every pass (default: what ALPENGLOW_CHECK says).  `tuning` is what `alpenglow tune` measured
    (default: the record that ALPENGLOW_TUNING names, see `base.knobs`); it changes speed only.
    """

    numerics: Literal["fast", "strict"] = "fast"
    passes: tuple[Pass, ...] = ()
    after: Callable[[Pass, Any], None] | None = None
    progress: Progress = silent
    check: bool | None = None
    tuning: Record | None = None

    def __post_init__(self) -> None:
        if self.numerics not in ("fast", "strict"):
            raise OptionError(f"numerics is {self.numerics!r}, expected 'fast' or 'strict'")

    @property
    def record(self) -> Record:
        """The tuning record that counts; raises ParseError if it cannot be read."""
        if self.tuning is not None:
            return self.tuning
        path = knobs.tuning_file()
        return Record() if path is None or not path.exists() else Record.read(path)
