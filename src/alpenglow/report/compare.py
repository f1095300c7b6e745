"""How far apart two results are, as one number that a tolerance can be held against."""

from __future__ import annotations

import numpy as np

from alpenglow.ir.types import Array


def error(expected: Array, actual: Array) -> float:
    """Return the largest deviation relative to the largest element; inf if they have no likeness.

    NaN and infinities must stand in the same places.
    """
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return np.inf
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(a)
    if (
        not np.array_equal(a[~finite], b[~finite], equal_nan=True)
        or not np.isfinite(b[finite]).all()
    ):
        return np.inf
    largest = float(np.max(np.abs(a[finite]), initial=0.0))
    with np.errstate(over="ignore"):
        deviation = float(np.max(np.abs(a[finite] - b[finite]), initial=0.0))
    return deviation / (largest or 1.0)
