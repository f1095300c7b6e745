"""Printing results: lines to read or JSON, on stdout."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from alpenglow.base.words import escaped, told


def examples(text: str) -> str:
    """Return examples as the epilog of a command's help, line by line."""
    lines = (f"  {line}" for line in text.strip().splitlines())
    return "\b\nExamples:\n" + "\n".join(lines)


def show(result: Mapping[str, Any], lines: Iterable[str], as_json: bool) -> None:
    """Print a result as JSON if wanted, else as lines; both escape what does not print."""
    if as_json:
        click.echo(json.dumps(result, indent=1, allow_nan=False))
        return
    for line in lines:
        click.echo(escaped(line))


def durations(seconds: Sequence[float]) -> list[str]:
    """Return times in ms, those below 0.1 ms in µs, with three significant digits.

    There are more digits where times would look the same that differ by a nanosecond.
    """
    different = len({round(s, 9) for s in seconds})
    texts: list[str] = []
    for digits in range(3, 10):
        texts = [_duration(s, digits) for s in seconds]
        if len(set(texts)) >= different:
            break
    return texts


def _duration(seconds: float, digits: int) -> str:
    unit, value = ("µs", seconds * 1e6) if seconds < 1e-4 else ("ms", seconds * 1e3)
    before = math.floor(math.log10(value)) + 1 if value > 0 else 1
    return f"{value:.{max(0, digits - before)}f} {unit}"


def csv_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return rows as CSV under the names of their columns."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().splitlines()


def table(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Return rows as aligned lines; the columns numbered in `right` are flush right.

    On a terminal that is narrower than the table, cells are folded; in a pipe they never are.
    """
    cells = [[told(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if sys.stdout.isatty() and sum(widths) + 2 * len(widths) - 2 > (width := _columns()):
        return _folded(cells, right, width)
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _columns() -> int:
    """Return the width of the terminal."""
    return shutil.get_terminal_size().columns


def _folded(cells: Sequence[Sequence[str]], right: frozenset[int], width: int) -> list[str]:
    """Return rows as lines of at most `width` characters; cells that are too wide are folded."""
    grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for i in range(len(cells[0])):
        grid.add_column(justify="right" if i in right else "left", overflow="fold")
    for row in cells:
        grid.add_row(*map(Text, row))
    console = Console(width=width, color_system=None, file=io.StringIO())
    with console.capture() as printed:
        console.print(grid)
    return [line.rstrip() for line in printed.get().splitlines()]
