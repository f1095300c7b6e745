"""How long a compilation may take: a time at which it ends, asked for between its steps.

Steps are passes, nodes that are made or folded, and kernels.  A step that runs is not interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from alpenglow.base.errors import CompileTimeoutError

_limit: ContextVar[tuple[float, float] | None] = ContextVar("limit", default=None)
"""When the compilation in this context ends, and how many seconds it was given; None: never."""


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Let compilation in the block end after some seconds; a limit around the block stays."""
    outer = _limit.get()
    if seconds is None or outer is not None:
        yield
        return
    token = _limit.set((time.monotonic() + seconds, seconds))
    try:
        yield
    finally:
        _limit.reset(token)


def check(step: str) -> None:
    """Raise CompileTimeoutError if the time of the compilation is up, naming the next step."""
    limit = _limit.get()
    if limit is not None and time.monotonic() > limit[0]:
        raise CompileTimeoutError(
            f"timeout: compilation has taken more than {limit[1]:g} s, before {step}",
            hint="a longer timeout",
        )
