"""How far apart two results are, as one number that a tolerance can be held against."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.ir.types import Array


def error(expected: Any, actual: Any) -> float:
    """Return the largest deviation relative to the largest element; inf if they have no likeness.

    NaN and infinities must stand in the same places.  Sequences are compared element by element,
    strings must be the same.
    """
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return np.inf
        return max(map(error, expected, actual), default=0.0)
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        return 0.0 if type(expected) is type(actual) and expected == actual else np.inf
    if expected.dtype == object:
        return 0.0 if np.array_equal(expected, actual) else np.inf
    return _between(expected, actual)


def _between(expected: Array, actual: Array) -> float:
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
