"""The reports of a run: a log for TensorBoard, and the curve of the loss."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from alpenglow.base.errors import OptionError
from alpenglow.train.history import Epoch

WIDTH, HEIGHT, MARGIN = 640, 360, 48
COLOURS = ("#1f6feb", "#d1242f")

ROWS, WIDEST = 10, 100
"""Rows of the chart on a terminal, and its largest width in characters."""

SIGNS, BOTH = ("*", "o"), "@"
"""The characters of the chart for training and for validation, and for both in one position."""


class Log:
    """Scalars of steps and epochs, in a folder that TensorBoard reads.

    Needs the extra `tensorboard`; raises OptionError where that is not installed.
    """

    def __init__(self, folder: Path) -> None:
        if find_spec("tensorboardX") is None:
            raise OptionError(
                "a log for TensorBoard needs tensorboardX",
                hint="pip install 'alpenglow[tensorboard]'",
            )
        self._writer: Any = import_module("tensorboardX").SummaryWriter(str(folder))

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def step(self, number: int, means: Mapping[str, float]) -> None:
        """Note the means of an epoch up to a step."""
        for name, value in means.items():
            self._writer.add_scalar(f"train/{name}", value, number)

    def epoch(self, number: int, epoch: Epoch) -> None:
        """Note what came of an epoch, which ended with a step."""
        for name, value in epoch.held.items():
            self._writer.add_scalar(f"validation/{name}", value, number)
        self._writer.flush()


def curve(epochs: Sequence[Epoch], loss: str = "loss") -> str:
    """Return the loss of epochs, and of the validation data, as SVG, with axes."""
    lines = losses(epochs, loss)
    most = max((y for points in lines.values() for _, y in points), default=0) or 1
    numbers = [epoch.number for epoch in epochs] or [0]
    first, last = min(numbers), max(numbers)
    wide, high = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def x_of(number: int) -> float:
        return MARGIN + wide * (number - first) / max(1, last - first)

    def y_of(y: float) -> float:
        return MARGIN + high * (1 - y / most)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<path d="M{MARGIN},{MARGIN}v{high}h{wide}" fill="none" stroke="black"/>',
    ]
    for k in range(5):
        y = most * k / 4
        parts.append(f'<path d="M{MARGIN},{y_of(y):.1f}h{wide}" stroke="#dddddd"/>')
        parts.append(
            f'<text x="{MARGIN - 6}" y="{y_of(y) + 4:.1f}" text-anchor="end">{y:.3g}</text>'
        )
    for number in ticks(first, last, 8):
        parts.append(
            f'<text x="{x_of(number):.1f}" y="{MARGIN + high + 16}" text-anchor="middle">'
            f"{number}</text>"
        )
    parts.append(
        f'<text x="{MARGIN + wide // 2}" y="{HEIGHT - 8}" text-anchor="middle">epoch</text>'
    )
    drawn = [(name, points) for name, points in lines.items() if points]
    for k, ((name, points), colour) in enumerate(zip(drawn, COLOURS, strict=False)):
        placed = " ".join(f"{x_of(number):.1f},{y_of(y):.1f}" for number, y in points)
        parts.append(
            f'<polyline points="{placed}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(
            f'<text x="{MARGIN + 8 + 90 * k}" y="{MARGIN // 2}" fill="{colour}">'
            f"{html.escape(loss)}, {name}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


def chart(epochs: Sequence[Epoch], width: int, loss: str = "loss") -> list[str]:
    """Return the loss of epochs as lines of at most `width` characters, with axes."""
    lines = losses(epochs, loss)
    values = [y for points in lines.values() for _, y in points]
    numbers = [epoch.number for epoch in epochs]
    if len(set(numbers)) < 2 or not values:
        return []
    least, most = min(values), max(values)
    labels = [f"{most - (most - least) * row / (ROWS - 1):.4g}" for row in range(ROWS)]
    labels = [label if row % 3 == 0 else "" for row, label in enumerate(labels)]
    margin = max(map(len, labels))
    wide = max(2, min(width, WIDEST) - margin - 3)
    first, last = min(numbers), max(numbers)
    grid = [[" "] * wide for _ in range(ROWS)]

    def column(number: int) -> int:
        return round((number - first) * (wide - 1) / (last - first))

    for (_, points), sign in zip(lines.items(), SIGNS, strict=False):
        for number, y in points:
            row = round((most - y) * (ROWS - 1) / ((most - least) or 1))
            cell = grid[row][column(number)]
            grid[row][column(number)] = sign if cell in (" ", sign) else BOTH
    axis = [" "] * wide
    for number in ticks(first, last, max(2, wide // 10)):
        text = str(number)
        begin = min(column(number), wide - len(text))
        axis[begin : begin + len(text)] = text
    shown = ", ".join(f"{sign} {name}" for (name, points), sign in zip(
        lines.items(), SIGNS, strict=False) if points)  # fmt: skip
    if any(BOTH in row for row in grid):
        shown += f", {BOTH} both"
    return [
        f"{' ' * margin}   {loss} by epoch: {shown}",
        *(f"{label:>{margin}} | {''.join(row)}".rstrip()
          for label, row in zip(labels, grid, strict=True)),
        f"{' ' * margin} +{'-' * (wide + 1)}",
        f"{' ' * margin}   {''.join(axis)}".rstrip(),
    ]  # fmt: skip


def losses(epochs: Sequence[Epoch], loss: str) -> dict[str, list[tuple[int, float]]]:
    """Return the finite losses by the number of the epoch, of training and of validation."""
    both = {
        "training": [(e.number, e.means[loss]) for e in epochs],
        "validation": [(e.number, e.held[loss]) for e in epochs if loss in e.held],
    }
    return {
        name: [(number, y) for number, y in points if math.isfinite(y)]
        for name, points in both.items()
    }


def ticks(first: int, last: int, most: int) -> list[int]:
    """Return at most `most` + 1 round numbers from `first` to `last`."""
    steps = (unit * 10**power for power in range(9) for unit in (1, 2, 5))
    step = next(step for step in steps if (last - first) / step <= most)
    return [number for number in range(first, last + 1) if number % step == 0] or [first]
