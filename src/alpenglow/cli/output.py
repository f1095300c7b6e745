"""Printing results: lines to read or JSON, on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

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


def table(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Return rows as aligned lines; the columns numbered in `right` are flush right."""
    cells = [[told(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
