"""Comparing what a grid made with what the interpreter made, and with what devices make."""

from __future__ import annotations

import numpy as np

from grid_programs import Ran

TOLERANCE = {2: 1e-2, 4: 2e-6, 8: 1e-12}
"""Relative to the largest element: a few roundings, by the bytes of an element."""


def assert_alike(ran: Ran, exact: bool) -> None:
    """Assert that outputs are those of the interpreter: `exact` ones by value, others nearly."""
    for name, expected in ran.expected.items():
        actual = ran.outputs[name]
        if exact or expected.dtype.kind in "iub":
            np.testing.assert_array_equal(actual, expected)
            continue
        size = max(1.0, float(np.abs(expected.astype(np.float64)).max(initial=0)))
        off = TOLERANCE[expected.dtype.itemsize] * size
        np.testing.assert_allclose(
            actual.astype(np.float64), expected.astype(np.float64), atol=off, rtol=0
        )
