"""Copies of arrays in few pieces of memory."""

from __future__ import annotations

import numpy as np
import pytest

from alpenglow.base.memory import ALIGNMENT
from alpenglow.runtime.session import held
from alpenglow.runtime.session.held import owned


@pytest.mark.parametrize("most", [64, 200, 1 << 20])
def test_copies_are_equal_and_apart(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "LARGE_NBYTES", most)
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.standard_normal((3, 5)).astype(np.float32),
        "none": np.empty((0, 4), np.float32),
        "one": np.asarray(True),
        "turned": rng.integers(0, 9, (7, 9)).T,
        "b": rng.standard_normal(100).astype(np.float16),
    }

    copies = owned(arrays)

    assert list(copies) == list(arrays)
    for name, copy in copies.items():
        np.testing.assert_array_equal(copy, arrays[name])
        assert copy.flags.c_contiguous and copy.ctypes.data % ALIGNMENT == 0
        copy[...] = 0  # nobody else's changes
    assert not any(copy.any() for copy in copies.values())
    assert arrays["a"].all() and arrays["one"]
