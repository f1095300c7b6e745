"""What a pass is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Facts = frozenset[str]


@dataclass(frozen=True, slots=True)
class Pass:
    """A step of the pipeline: `run(ir, target)` returns the next form of the program.

    `needs` lists the facts that must hold before it, `makes` those that hold after it, and
    `breaks` those that may hold no longer; all others are kept.  A pass that is `fast` changes how
    results are rounded and runs under numerics="fast" only; one that `steps` may round quantised
    tensors the other way, which is a step each time.  A pass of a user names the pass `after` which
    it runs.
    """

    name: str
    run: Callable[..., Any]
    doc: str
    needs: Facts = frozenset()
    makes: Facts = frozenset()
    breaks: Facts = frozenset()
    after: str = ""
    fast: bool = False
    steps: bool = False
