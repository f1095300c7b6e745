"""A progress bar for long work, on stderr and only where that is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.progress import TimeRemainingColumn as Left

from alpenglow.base import progress as base


@contextlib.contextmanager
def progress() -> Iterator[base.Progress]:
    """Yield what to give `Options.progress`; the bar is gone when the block ends."""
    if not sys.stderr.isatty():
        yield base.silent
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Elapsed())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what)
            bar.update(tasks[what], completed=done, total=total)

        yield report


@contextlib.contextmanager
def epochs_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yield what to tell how a run stands, how many steps are done, and how many there are or 0; a
    bar shows it, with the time that is left."""
    if not sys.stderr.isatty():
        yield base.silent
        return
    columns = (BarColumn(), MofNCompleteColumn(), Left(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")

        def report(how: str, done: int, total: int) -> None:
            bar.update(task, description=how, completed=done, total=total or None)

        yield report
