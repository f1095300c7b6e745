"""Rows: how those of a result, along axis 2, are made of those of an operand.

Images are [N, C, rows, …]; the layouts of machines leave rows at axis 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Count = TypeVar("Count", int, NDArray[np.int64])
"""A number of rows, or several."""

ROWS = 2
"""The axis of rows."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Row i of a result is made of rows i * stride - before + k * dilation, for k below `taps`.

    Of these, `before` lie before the first row and `after` behind the last: they are padding.
    """

    taps: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0

    def first(self, row: Count) -> Count:
        """Return the first row that row `row` of the result is made of."""
        return row * self.stride - self.before

    def end(self, rows: Count) -> Count:
        """Return one past the last row that the first `rows` rows of the result are made of."""
        return self.first(rows - 1) + (self.taps - 1) * self.dilation + 1


SAME = Rows()
"""Each row of the result is made of the one at the same place."""
