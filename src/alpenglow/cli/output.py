"""Printing results: lines to read or JSON, on stdout."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import click

from alpenglow.base.words import escaped, told

GAP = "  "
"""Blanks between the columns of a table."""

NARROWEST = 8
"""The least width to which a column of text is folded."""

PIECE = re.compile(r"[^\s,;+_/.:-]*[\s,;+_/.:-]+|[^\s,;+_/.:-]+")
"""Pieces of a cell, between which it is folded."""


def examples(text: str) -> str:
    """Return examples as the epilog of a command's help, line by line."""
    lines = (f"  {line}" for line in text.strip().splitlines())
    return "\b\nExamples:\n" + "\n".join(lines)


def show(
    result: Mapping[str, Any], lines: Iterable[str], as_json: bool, wrap: bool = True
) -> None:
    """Print a result as JSON if wanted, else as lines, with escapes for unprintable characters.

    If `wrap` is true, lines are wrapped between words where the terminal ends.
    """
    if as_json:
        click.echo(json.dumps(result, indent=1, allow_nan=False))
        return
    width = columns() if wrap else None
    for line in map(escaped, lines):
        for part in [line] if width is None else _wrapped(line, width):
            click.echo(part)


def _wrapped(line: str, width: int) -> list[str]:
    """Return a line as lines of at most `width` characters; later ones are indented."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)


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

    On a terminal that is narrower than the table, the widest columns are folded; in a pipe no
    column is.
    """
    cells = [[told(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if (terminal := columns()) is not None:
        widths = _narrowed(widths, right, terminal - len(GAP) * (len(widths) - 1))
    lines = []
    for row in cells:
        folded = [_folded(cell, width) for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*folded, fillvalue=""):
            aligned = [
                part.rjust(width) if i in right else part.ljust(width)
                for i, (part, width) in enumerate(zip(parts, widths, strict=True))
            ]
            lines.append(GAP.join(aligned).rstrip())
    return lines


def columns() -> int | None:
    """Return the width of the terminal in characters, None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _narrowed(widths: Sequence[int], right: frozenset[int], width: int) -> list[int]:
    """Return widths of columns whose sum is at most `width`, if columns of text can give enough."""
    narrowed = list(widths)
    text = [i for i in range(len(widths)) if i not in right]
    while sum(narrowed) > width and text:
        widest = max(text, key=lambda i: narrowed[i])
        if narrowed[widest] <= NARROWEST:
            break
        narrowed[widest] -= 1
    return narrowed


def _folded(text: str, width: int) -> list[str]:
    """Return a text as lines of at most `width` characters, broken behind blanks and signs."""
    if len(text) <= width:
        return [text]
    lines = [""]
    for piece in PIECE.findall(text):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return [line.rstrip() for line in lines]
