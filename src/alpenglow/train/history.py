"""The epochs of a run: which is the best, when to stop, and the file that keeps them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO

from alpenglow.base import whole
from alpenglow.base.errors import FeedError

EPOCHS, BEST = ".epochs.json", ".best"
"""How the names of the two files next to a checkpoint go on."""


@dataclass
class Epoch:
    """Report one pass over the data.

    Args:
        number: the number of the epoch, from 0.
        steps: the number of steps of the epoch.
        seconds: the time of the epoch in seconds.
        means: the means of the scalar outputs over the batches.
        held: the same over the validation data.

    Example:
        >>> ag.train.Epoch(0, 100, 2.5, {"loss": 0.25}).means["loss"]
        0.25
    """

    number: int
    steps: int
    seconds: float
    means: dict[str, float]
    held: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{name} {value:.4f}" for name, value in self.means.items()]
        parts += [f"validation {name} {value:.4f}" for name, value in self.held.items()]
        return f"epoch {self.number}: {', '.join(parts)}, {self.seconds:.1f} s"


def best_of(epochs: Sequence[Epoch], loss: str) -> Epoch | None:
    """Return the first epoch with the lowest validation loss, None if no epoch has a finite one."""
    judged = [e for e in epochs if math.isfinite(e.held.get(loss, math.nan))]
    return min(judged, key=lambda e: e.held[loss], default=None)


def stalled(epochs: Sequence[Epoch], loss: str, patience: int | None) -> bool:
    """Return True if the last `patience` epochs have not lowered the validation loss."""
    if patience is None or not epochs:
        return False
    best = best_of(epochs, loss)
    first = epochs[0].number - 1 if best is None else best.number
    return epochs[-1].number - first >= patience


def file_of(checkpoint: str | os.PathLike[str]) -> Path:
    """Return the file next to a checkpoint that keeps the epochs."""
    return Path(os.fspath(checkpoint) + EPOCHS)


def best_file_of(checkpoint: str | os.PathLike[str]) -> Path:
    """Return the file next to a checkpoint that keeps the state after the best epoch."""
    return Path(os.fspath(checkpoint) + BEST)


def write(checkpoint: str | os.PathLike[str], epochs: Sequence[Epoch]) -> None:
    """Write the epochs of a run next to its checkpoint."""
    text = json.dumps([asdict(epoch) for epoch in epochs], indent=1)

    def fill(file: BinaryIO) -> None:
        file.write(text.encode())

    whole.write(file_of(checkpoint), fill)


def read(checkpoint: str | os.PathLike[str], count: int) -> list[Epoch]:
    """Return the epochs below number `count` that `write` wrote; none if there is no file.

    Raises FeedError if the file has other content.
    """
    file = file_of(checkpoint)
    if not file.exists():
        return []
    try:
        epochs = [Epoch(**entry) for entry in json.loads(file.read_bytes())]
        return [epoch for epoch in epochs if epoch.number < count]
    except (ValueError, TypeError) as error:
        raise FeedError(
            f"expected a list of epochs: {error}", file=str(file), hint="remove the file"
        ) from None
