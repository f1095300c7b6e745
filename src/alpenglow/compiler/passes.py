"""What a pass is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

from alpenglow.base.errors import OptionError

Facts = frozenset[str]


@dataclass(frozen=True, slots=True)
class Pass:
    """A step of the pipeline: `run(ir, target)` returns the next form of the program.

    `needs` lists the facts that must hold before it, `makes` those that hold after it, and
    `breaks` those that may hold no longer; all others are kept.  A pass that is `fast` changes how
    results are rounded and runs under numerics="fast" only; one that `steps` may round quantised
    tensors the other way, which is a step each time.  A pass of a user names the pass `after` which
    it runs.  `doc` says what it does, by default what the docstring of `run` begins with.
    """

    name: str
    run: Callable[..., Any]
    doc: str = ""
    needs: Facts = frozenset()
    makes: Facts = frozenset()
    breaks: Facts = frozenset()
    after: str = ""
    fast: bool = False
    steps: bool = False

    def __post_init__(self) -> None:
        if not callable(self.run):
            raise OptionError(
                f"pass '{self.name}' runs {self.run!r}, expected a function of what is compiled "
                "and the target"
            )
        if not self.doc:
            first = (getdoc(self.run) or "").partition("\n\n")[0]
            object.__setattr__(self, "doc", " ".join(first.split()))
