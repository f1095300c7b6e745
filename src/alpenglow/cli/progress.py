"""A progress bar for long work, on stderr and only where that is a terminal."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.progress import TimeRemainingColumn as Left
from rich.status import Status
from rich.table import Column

from alpenglow.base import progress as base
from alpenglow.cli.output import show

COMPILING = "compiling the training step …"
"""Text of the spinner before the first step."""


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


@dataclass(frozen=True, slots=True)
class Training:
    """Functions that print the progress of a training run: compilation, steps, and lines.

    Lines are printed above the bar.
    """

    compiling: base.Progress
    step: Callable[[str, int, int], None]
    out: Callable[[str], None]
    err: Callable[[str], None]


@contextlib.contextmanager
def training_progress() -> Iterator[Training]:
    """Yield the reports of a training run.

    On a terminal a spinner shows what is compiled; then a bar shows the number of steps done, and
    the time that is left.  In a pipe only lines are printed.
    """
    if not sys.stderr.isatty():
        yield Training(base.silent, base.silent, _out, functools.partial(click.echo, err=True))
        return
    console = Console(stderr=True)
    columns = (
        BarColumn(24), MofNCompleteColumn(), Left(),
        TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis")),
    )  # fmt: skip
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("")
    shown: Progress | Status = console.status(COMPILING)

    def compiling(what: str, done: int, total: int) -> None:
        text = f"{COMPILING} {what} {done}/{total}"
        if isinstance(shown, Status):
            shown.update(text)
        else:  # the evaluation, which is compiled after the first epoch
            bar.update(task, description=f"{what} {done}/{total}")

    def step(how: str, done: int, total: int) -> None:
        nonlocal shown
        if isinstance(shown, Status):
            shown.stop()
            shown = bar
            bar.start()
        bar.update(task, description=how, completed=done, total=total or None)

    def out(line: str) -> None:
        shown.stop()  # a bar would draw over a line of stdout
        _out(line)
        shown.start()

    def err(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    shown.start()
    try:
        yield Training(compiling, step, out, err)
    finally:
        shown.stop()


def _out(line: str) -> None:
    show({}, [line], as_json=False)
