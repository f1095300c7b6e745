"""What a caller can choose about compilation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from alpenglow.compiler.passes import Pass

Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `compile`.

    `numerics` is "fast" (contraction and reassociation; the default) or "strict" (operations as
    written).  `passes` are the caller's own, each inserted where its `after` says.  `after` is
    called with each pass and what it made.  `progress` is called on long work.  `check` validates
    every pass (default: what ALPENGLOW_CHECK says).
    """

    numerics: Literal["fast", "strict"] = "fast"
    passes: tuple[Pass, ...] = ()
    after: Callable[[Pass, Any], None] | None = None
    progress: Progress = silent
    check: bool | None = None
