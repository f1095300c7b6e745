"""Progress of long work on stderr: a line that is written over, or one line when it is done."""

from __future__ import annotations

import contextlib
import sys

from alpenglow.base.errors import OptionError
from alpenglow.base.progress import Progress, silent


def reporter(progress: object) -> Progress:
    """Return what `compile` reports to, by its `progress`: True is stderr, False is nobody.

    Otherwise it is a function of what is done, how many parts of it are done, and how many there
    are; raises OptionError if it is none.
    """
    if isinstance(progress, bool):
        return on_stderr if progress else silent
    if not callable(progress):
        raise OptionError(f"progress is {progress!r}, expected True, False or a function")
    chosen: Progress = progress
    return chosen


def on_stderr(what: str, done: int, total: int) -> None:
    """Write ``compiling kernels 3/7``: over the last such line on a terminal, else at the end."""
    stream = sys.stderr
    if stream is None or not total:
        return
    end = "\n" if done >= total else ""
    # What somebody else has closed, or cannot be written to, is no reason not to compile.
    with contextlib.suppress(OSError, ValueError):
        begin = "\r" if stream.isatty() else ""
        if begin or end:
            stream.write(f"{begin}{what} {done}/{total}{end}")
            stream.flush()
