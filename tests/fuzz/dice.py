"""What is thrown while a model is drafted: numbers, extents, shapes and element types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .elements import COMMON, DTYPES, ORDINARY, Shape
from .inference import Declined

EXTENTS = (0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 7, 8, 8, 9, 9, 12, 15, 16, 17, 31, 32, 33)
"""Small, and one more or less than one or two vectors of 4, 8 and 16 elements."""
LARGE = (24, 48, 63, 64, 65, 96, 100, 127, 128, 129, 160, 255, 256, 257, 300)
LARGEST = 4096
"""The most elements of a value: models stay quick, and loops still have every kind of tail."""

SYMBOLS = {"n": 11, "m": 13}
"""Open extents, and what they are while a model is drafted: numbers that nothing else is."""
SIZES = ((19, 5), (1, 2), (0, 1))
"""Other extents for SYMBOLS."""


@dataclass
class Dice:
    """Throws for a model of some opset."""

    rng: np.random.Generator
    opset: int
    is_open: bool = False
    """Whether inputs may have open extents: those that are a number of SYMBOLS."""

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def number(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def one_of(self, options: Sequence[Any]) -> Any:
        if not options:
            raise Declined
        return options[int(self.rng.integers(len(options)))]

    def extent(self, most: int = LARGEST, least: int = 1) -> int:
        """Return an extent such as vectors, blocks and tiles trip over, within bounds."""
        table = LARGE if self.chance(0.04) else EXTENTS
        fitting = [e for e in table if least <= e <= most]
        return int(self.one_of(fitting)) if fitting else self.number(least, max(most, least))

    def shape(self, least: int = 0, most: int = 6, empty: bool = True) -> Shape:
        """Return a shape of a rank in between; large ranks are rare."""
        rank = min(most, max(least, int(self.one_of((0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6)))))
        out: list[int] = []
        for _ in range(rank):
            room = LARGEST // max(int(np.prod(out or [1])), 1)
            extent = self.extent(room, 0)
            if out and out[-1] <= room and self.chance(0.15):
                extent = out[-1]
            if self.is_open and self.chance(0.4):
                extent = int(self.one_of(list(SYMBOLS.values())))
            # Without elements little is computed: rarely.
            out.append(extent if extent or (empty and self.chance(0.3)) else 2)
        return tuple(out)

    def dtype(self, allowed: Iterable[str]) -> str:
        known = [d for d in allowed if d in DTYPES]
        common = [d for d in COMMON if d in known]
        ordinary = [d for d in ORDINARY if d in known]
        if common and self.chance(0.6):
            return str(self.one_of(common))
        return str(self.one_of(ordinary if ordinary and self.chance(0.85) else known))
