"""Starts and lengths of slices, as Python slices a list.

If a dimension is dynamic, starts and ends are presumed to lie within it, so that ``x[:, 1:-1]`` has
extent d - 2.  For smaller extents, where they are clamped, the model is imported anew.
"""

from __future__ import annotations

from alpenglow.frontends.presume import natural, presume
from alpenglow.ir.dims import Dim, Sym, ceil_div, known

FAR = 1 << 62
"""An offset of this size or more means the end: no axis is as long."""

LARGE = 1 << 24
"""An offset of this size or more is presumed to mean the end of a dynamic axis."""


def limits(extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """Return the first element and the number of elements of ``[start:end:step]`` on an axis."""
    if step > 0:
        first, last = offset(start, extent, 0, extent), offset(end, extent, 0, extent)
        reach = last - first
    else:
        first = offset(start, extent, -1, extent - 1)
        last = offset(end, extent, -1, extent - 1)
        reach = first - last
    if not known(reach) and natural(-reach):
        return 0, 0
    if not presume(reach, ">="):
        return 0, 0
    size = ceil_div(reach, abs(step))
    if known(size) and size <= 0:
        return 0, 0
    return first, size


def stride(step: int, size: Dim) -> int:
    """Return a step that fits in 64 bits and is equal wherever a second element is read."""
    if isinstance(size, int) and size <= 1:  # No guard is worth it.
        return 1 if step > 0 else -1
    return max(-FAR, min(step, FAR))


def offset(at: Dim, extent: Dim, low: Dim, high: Dim) -> Dim:
    """Return `at` counted from the front and limited to [low, high]."""
    if known(at) and abs(at) >= FAR:
        return high if at > 0 else low
    if known(at) and abs(at) >= LARGE and not known(extent):
        beyond, end = (at - high, high) if at > 0 else (low - at - extent, low)
        if presume(beyond, ">="):
            return end
    index = at + extent if negative(at) else at
    # The high limit counts last: on an empty axis it is -1 where one goes backwards.
    if not presume(high - index, ">="):
        return high
    return index if presume(index - low, ">=") else low


def negative(at: Dim) -> bool:
    """Whether an offset counts from the end; ``-N`` does, where N is not 0."""
    if known(at):
        return at < 0
    assert isinstance(at, Sym), f"{at} is neither known nor open"
    if all(c < 0 for _, c in at.terms):
        return presume(-at - 1, ">=")
    return not presume(at, ">=")
