"""Footprints: exactly which bytes of its buffer a region touches.

A footprint has one form, whatever type and order of axes the region reads them by, so two regions
that touch the same bytes in the same pattern compare equal.  Where a shortcut does not tell, bytes
are marked on a map of the buffer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from alpenglow.ir.types import Array
from alpenglow.program.instr import Region


class Footprint(NamedTuple):
    """Bytes from `begin` on: `axes` are (extent, stride) pairs, innermost first, in bytes.

    No axis repeats bytes, and none continues the one inside it; the innermost has stride 1.
    """

    begin: int
    axes: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.begin + 1 + sum((n - 1) * stride for n, stride in self.axes)

    @property
    def empty(self) -> bool:
        return not self.axes

    @property
    def dense(self) -> bool:
        """Whether the bytes follow each other without gaps."""
        return len(self.axes) == 1

    def unit(self) -> int:
        """Return the largest number of bytes that places and runs are multiples of."""
        if self.empty:
            return 0
        return math.gcd(self.begin, self.axes[0][0], *(stride for _, stride in self.axes[1:]))


EMPTY = Footprint(0, ())


def footprint(r: Region) -> tuple[Footprint, bool]:
    """Return which bytes a region touches, and whether it touches each of them once.

    Windows that overlap each other are taken to touch all that lies between their ends.
    """
    if 0 in r.shape:
        return EMPTY, True
    size = r.type.numpy.itemsize
    begin, end = r.span()
    steps = [(abs(s), d) for d, s in zip(r.shape, r.strides, strict=True) if d > 1]
    repeats = any(s == 0 for s, _ in steps)
    axes: list[tuple[int, int]] = [(size, 1)]
    reach = size
    for step, extent in sorted((s * size, d) for s, d in steps if s):
        if step < reach:
            return Footprint(begin, ((end - begin, 1),)), False
        inner, stride = axes[-1]
        if step == inner * stride:
            axes[-1] = (inner * extent, stride)
        else:
            axes.append((extent, step))
        reach += (extent - 1) * step
    return Footprint(begin, tuple(axes)), not repeats


def overlap(a: Footprint, b: Footprint) -> bool:
    """Whether two footprints on one buffer share a byte."""
    if a.empty or b.empty or a.begin >= b.end or b.begin >= a.end:
        return False
    if a == b or (a.dense and b.dense):
        return True
    marks = Map(max(a.end, b.end), (a, b))
    marks.mark(a)
    return bool(marks.view(b).any())


class Map:
    """Marks on the bytes of a buffer, as coarse as the footprints on it allow."""

    def __init__(self, nbytes: int, footprints: Iterable[Footprint]) -> None:
        self.unit = math.gcd(nbytes, *(f.unit() for f in footprints)) or 1
        self.marks = np.zeros(nbytes // self.unit, np.bool_)

    def fits(self, *footprints: Footprint) -> bool:
        """Whether the map is fine enough for these."""
        return not any(f.unit() % self.unit for f in footprints)

    def full(self) -> bool:
        return bool(self.marks.all())

    def mark(self, f: Footprint) -> None:
        if not f.empty:
            self.view(f)[...] = True

    def has(self, f: Footprint) -> bool:
        """Whether all bytes are marked."""
        return f.empty or bool(self.view(f).all())

    def view(self, f: Footprint) -> Array:
        (run, _), *outer = f.axes
        shape = (*(n for n, _ in reversed(outer)), run // self.unit)
        strides = (*(s // self.unit for _, s in reversed(outer)), 1)
        return np.ndarray(shape, np.bool_, self.marks, f.begin // self.unit, strides)
