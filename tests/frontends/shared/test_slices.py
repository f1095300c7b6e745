"""Slices begin and end where Python's do, however long the axis and however far the bounds."""

from __future__ import annotations

import itertools

import pytest

from alpenglow.frontends.presume import presuming
from alpenglow.frontends.slices import limits, stride
from alpenglow.ir.dims import bind, holds, parse

MOST = (1 << 63) - 1
NEAR = [s * (1 << 31) + d for s in (-1, 1) for d in (-2, -1, 0, 1, 5)]
BOUNDS = [-6, -1, 0, 1, 5, *NEAR, -MOST - 1, MOST]
STEPS = [1, 2, -1, -3, 1 << 31, 1 - (1 << 31), MOST, -MOST]


@pytest.mark.parametrize("extent", [0, 1, 5, (1 << 31) - 1, 1 << 31, (1 << 31) + 5])
def test_bounds_are_those_of_python(extent: int) -> None:
    for start, end, step in itertools.product(BOUNDS, BOUNDS, STEPS):
        expected = range(*slice(start, end, step).indices(extent))
        first, size = limits(extent, start, end, step)
        assert isinstance(size, int)
        apart = stride(step, size)

        assert size == len(expected), (start, end, step)
        if size:
            assert range(first, first + size * apart, apart) == expected, (start, end, step)


def test_limits_of_an_open_axis_are_right_wherever_their_guards_hold() -> None:
    n, extents = parse("N"), [1, 5, (1 << 24) + 1, (1 << 31) - 1, (1 << 31) + 5]
    seen = 0
    for start, end, step in itertools.product(BOUNDS, BOUNDS, STEPS):
        with presuming() as kept:
            first, size = limits(n, start, end, step)
        for extent in extents:
            values = {"N": extent}
            if holds(tuple((x, relation) for x, relation in kept.guards), values):
                seen += 1
                expected = range(*slice(start, end, step).indices(extent))
                assert bind(size, values) == len(expected), (start, end, step, extent)
                assert not expected or bind(first, values) == expected[0], (start, end, step)

    assert seen > 1000
