"""Calibration: which part of a range is worth its steps.

Steps are few, so those spent on rare outliers are missed by everything else.  Each method looks at
a histogram and returns the range to store; what lies outside is limited to its ends.  Both ends are
cut at the same magnitude, so that one search serves every schema.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from alpenglow.base.errors import OptionError
from alpenglow.ir.types import Array
from alpenglow.quant.observe import ObservedRange
from alpenglow.quant.schema import Parameters, Schema, limits, parameters

Calibration = Literal["minmax", "percentile", "mse", "entropy"]
CALIBRATIONS: tuple[Calibration, ...] = ("minmax", "percentile", "mse", "entropy")

CANDIDATES = 100
"""How many magnitudes to cut at are tried."""

LEAST = 0.05
"""The smallest magnitude that is tried, as a share of the largest element's."""


class Storage(NamedTuple):
    """How the calibrated range will be stored."""

    dtype: str
    schema: Schema


def calibrate(
    seen: ObservedRange, method: Calibration, storage: Storage, percentile: float = 99.99
) -> tuple[float, float]:
    """Return the range to store, chosen from what was seen.

    - minmax: all of it.
    - percentile: what holds `percentile` % of the magnitudes.
    - mse: that with the least squared error, rounding and limiting together.
    - entropy: that whose stored distribution loses least of the one seen (Kullback-Leibler).
    """
    check(method, percentile)
    if method == "minmax" or seen.low == seen.high or not seen.total:
        return seen.low, seen.high
    centres = seen.centres
    if method == "percentile":
        return _cut(seen, _percentile(np.abs(centres), seen.counts, percentile))
    largest = max(abs(seen.low), abs(seen.high))
    cuts = [_cut(seen, largest * f) for f in np.linspace(1, LEAST, CANDIDATES)]
    error = _squared if method == "mse" else _divergence
    errors = [error(seen, centres, parameters(*cut, *storage)) for cut in cuts]
    # Of equals the first, the widest, is taken.
    return cuts[int(np.argmin(errors))]


def check(method: str, percentile: float) -> None:
    """Raise OptionError unless there is such a method with such a percentile."""
    if method not in CALIBRATIONS:
        raise OptionError(f"calibration is '{method}', expected one of {', '.join(CALIBRATIONS)}")
    if not 50 < percentile <= 100:
        raise OptionError(f"percentile {percentile}: expected more than 50, at most 100")


def _cut(seen: ObservedRange, magnitude: float) -> tuple[float, float]:
    """Return what is left of a range if no magnitude may exceed this one."""
    return max(min(seen.low, magnitude), -magnitude), min(max(seen.high, -magnitude), magnitude)


def _percentile(sizes: Array, counts: Array, percentile: float) -> float:
    """Return the magnitude that `percentile` % of the elements do not exceed."""
    order = np.argsort(sizes)
    below = np.cumsum(counts[order])
    at = int(np.searchsorted(below, below[-1] * percentile / 100))
    return float(sizes[order[min(at, len(order) - 1)]])


def _squared(seen: ObservedRange, centres: Array, p: Parameters) -> float:
    """Return the sum of squared errors of storing the elements so."""
    error = p.restored(centres) - centres
    return float((seen.counts * error * error).sum())


def _divergence(seen: ObservedRange, centres: Array, p: Parameters) -> float:
    """Return how much the distribution of stored elements tells less than that seen.

    What lies outside counts at the ends.  Within a step the stored distribution is even over the
    bins that were not empty.  Zeros are left out: they are always stored exactly, and an activation
    makes so many of them that they would outvote all else.
    """
    first, _ = limits(p.dtype)
    level = p.stored(centres).astype(np.int64) - first
    counts = np.where(np.abs(centres) < (seen.end - seen.begin) / len(level), 0, seen.counts)
    inside = (centres >= p.low - p.scale / 2) & (centres <= p.high + p.scale / 2)
    kept = np.where(inside, counts, 0)
    reference = kept.astype(np.float64)
    where = np.flatnonzero(inside)
    if not where.size:
        return np.inf
    reference[where[0]] += counts[: where[0]].sum()
    reference[where[-1]] += counts[where[-1] + 1 :].sum()
    full = reference > 0
    if not full.any():
        return 0.0
    bins = np.bincount(level[full], minlength=1)
    sums = np.bincount(level, kept, minlength=len(bins))
    stored = np.zeros_like(reference)
    stored[full] = sums[level[full]] / bins[level[full]]
    # A bin that only holds what was cut off has no share in what is stored: it gets a trace of one.
    stored[full] = np.maximum(stored[full], 1e-4)
    a, b = reference[full] / reference.sum(), stored[full] / stored.sum()
    return float((a * np.log(a / b)).sum())
