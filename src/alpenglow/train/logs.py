"""What a run leaves to look at: a log for TensorBoard, and a curve."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from alpenglow.base.errors import OptionError
from alpenglow.train.history import Epoch

WIDTH, HEIGHT, MARGIN = 640, 360, 48
COLOURS = ("#1f6feb", "#d1242f")


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
            self._writer.add_scalar(f"held/{name}", value, number)
        self._writer.flush()


def curve(epochs: Sequence[Epoch], loss: str = "loss") -> str:
    """Return the loss of epochs, and of what was held back, as SVG."""
    lines = {
        "trained": [e.means[loss] for e in epochs],
        "held back": [e.held[loss] for e in epochs if loss in e.held],
    }
    most = max((y for ys in lines.values() for y in ys), default=0) or 1
    wide, high = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def place(i: int, y: float) -> str:
        x = MARGIN + wide * i / max(1, len(epochs) - 1)
        return f"{x:.1f},{MARGIN + high * (1 - y / most):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<path d="M{MARGIN},{MARGIN}v{high}h{wide}" fill="none" stroke="black"/>',
        f'<text x="{MARGIN - 6}" y="{MARGIN + 4}" text-anchor="end">{most:.3g}</text>',
        f'<text x="{MARGIN - 6}" y="{MARGIN + high}" text-anchor="end">0</text>',
        f'<text x="{MARGIN + wide}" y="{HEIGHT - MARGIN // 2}" text-anchor="end">'
        f"epoch {epochs[-1].number if epochs else 0}</text>",
    ]
    drawn = [(name, ys) for name, ys in lines.items() if ys]
    for k, ((name, ys), colour) in enumerate(zip(drawn, COLOURS, strict=False)):
        points = " ".join(place(i, y) for i, y in enumerate(ys))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(
            f'<text x="{MARGIN + 8 + 90 * k}" y="{MARGIN // 2}" fill="{colour}">'
            f"{html.escape(loss)}, {name}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])
