"""Memory that begins where vectors like it: at a multiple of a cache line."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector of any target."""


def aligned_bytes(nbytes: int) -> NDArray[np.uint8]:
    """Return `nbytes` bytes of memory that begins at a multiple of ALIGNMENT; they are not set."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + nbytes]


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array itself if it is dense and begins at a multiple of ALIGNMENT, else a copy."""
    if array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
        return array
    place = aligned_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    place[...] = array
    return place
