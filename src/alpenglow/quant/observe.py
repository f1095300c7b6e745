"""Observing values: least and greatest element, and a histogram whose range grows as it must.

The histogram has a fixed number of bins.  An element outside doubles the range, as often as is
needed, and joins neighbouring bins in pairs: counts stay exact, whatever comes in which order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from alpenglow.base.errors import OptionError
from alpenglow.ir.types import Array

BINS = 2048

TINY = 1e-30
"""Ranges narrower than this, or wider than its reciprocal, are not computed with in f32."""


@dataclass(frozen=True, slots=True)
class ObservedRange:
    """What was seen of a value: the least and greatest element, and how often which.

    The bins of `counts` divide the numbers from `begin` to `end` evenly.  `infinite` counts the
    elements that were NaN or infinite; they are in no bin.
    """

    low: float
    high: float
    begin: float
    end: float
    counts: Array
    infinite: int = 0

    @property
    def total(self) -> int:
        """How many finite elements were seen."""
        return int(self.counts.sum())

    @property
    def centres(self) -> Array:
        """The middle of each bin, within what was really seen."""
        edges = np.linspace(self.begin, self.end, len(self.counts) + 1)
        return np.clip((edges[:-1] + edges[1:]) / 2, self.low, self.high)

    @property
    def mean(self) -> float:
        """The mean of the finite elements, as exact as the bins are narrow."""
        return float((self.centres * self.counts).sum() / max(self.total, 1))

    def sparkline(self, columns: int = 24) -> str:
        """Return the histogram between low and high as a line of blocks, taller for more."""
        if not self.total:
            return ""
        where = np.clip(_spread(self.centres, self.low, self.high, columns), 0, columns - 1)
        sums = np.bincount(where, self.counts, minlength=columns)
        # The square root keeps what is rare visible beside the crowd of zeros.
        heights = np.sqrt(sums / sums.max())
        return "".join(" ▁▂▃▄▅▆▇█"[math.ceil(8 * h)] for h in heights)


class Observer:
    """Sees arrays of one value, one after the other; `range` is what it has seen so far."""

    def __init__(self, bins: int = BINS) -> None:
        check_bins(bins)
        self._counts = np.zeros(bins, np.int64)
        self._begin = self._end = 0.0
        self._low, self._high = math.inf, -math.inf
        self._infinite = 0

    def see(self, array: Array) -> None:
        """Count the elements of an array."""
        flat = array.reshape(-1)
        if flat.dtype != np.float64:
            flat = flat.astype(np.float32, copy=False)
        if not flat.size:
            return
        low, high = float(flat.min()), float(flat.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            finite = flat[np.isfinite(flat)]
            self._infinite += flat.size - finite.size
            if not finite.size:
                return
            flat, low, high = finite, float(finite.min()), float(finite.max())
        self._low, self._high = min(self._low, low), max(self._high, high)
        self._widen()
        where = _spread(flat, self._begin, self._end, len(self._counts))
        np.clip(where, 0, len(self._counts) - 1, out=where)
        self._counts += np.bincount(where, minlength=len(self._counts))

    @property
    def range(self) -> ObservedRange:
        """What has been seen; a value of which nothing finite was seen has the range of 0."""
        seen = self._low <= self._high
        low, high = (self._low, self._high) if seen else (0.0, 0.0)
        counts = self._counts.copy()
        return ObservedRange(low, high, self._begin, self._end, counts, self._infinite)

    def _widen(self) -> None:
        """Let the bins hold all from the least to the greatest element."""
        if self._begin <= self._low and self._high <= self._end and self._begin < self._end:
            return
        if self._begin == self._end:
            # So far all elements were the same number, if there were any: they are in bin 0.
            seen = int(self._counts.sum())
            self._counts[:] = 0
            before = self._begin
            self._begin, self._end = self._low, self._high
            if self._begin < self._end and seen:
                at = _spread(np.array([before]), self._begin, self._end, len(self._counts))
                self._counts[min(int(at[0]), len(self._counts) - 1)] = seen
            else:
                self._counts[0] = seen
            return
        while self._low < self._begin or self._high > self._end:
            width, half = self._end - self._begin, len(self._counts) // 2
            pairs = self._counts.reshape(-1, 2).sum(1)
            self._counts[:] = 0
            if self._low < self._begin:
                self._begin -= width
                self._counts[half:] = pairs
            else:
                self._end += width
                self._counts[:half] = pairs


def check_bins(bins: int) -> None:
    """Raise OptionError unless a histogram can have this many bins."""
    if bins < 16 or bins % 2:
        raise OptionError(f"{bins} bins: expected an even number of 16 at least")


def _spread(x: Array, begin: float, end: float, bins: int) -> Array:
    """Return the bin of each element, the first and last perhaps one off: to be limited."""
    width = end - begin
    if not width:
        return np.zeros(x.shape, np.int64)
    if TINY < width < 1 / TINY and max(abs(begin), abs(end)) < 1e3 * width:
        near: Array = x.astype(np.float32) - np.float32(begin)
        near *= np.float32(bins / width)
        return near.astype(np.int32)
    # The quotient first: the width of a denormal range has no reciprocal.
    wide: Array = (x.astype(np.float64) - begin) / width
    return (wide * bins).astype(np.int64)
