"""Converters that order elements by a comparator of any kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.frontends.presume import fixed
from alpenglow.frontends.stablehlo.bodies import apply_body
from alpenglow.frontends.stablehlo.convert.compare import ordinal
from alpenglow.frontends.stablehlo.keys import Key, keys_of
from alpenglow.frontends.stablehlo.module import Block
from alpenglow.frontends.stablehlo.places import counted
from alpenglow.frontends.stablehlo.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.logic import BitAnd, BitNot, BitOr, BitXor
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.tensor.gather import Gather, GatherElements
from alpenglow.ops.tensor.movement import stretch
from alpenglow.ops.tensor.order import TopK

MOST_COMPARED = 1 << 12
"""Longer rows are sorted only by a comparator that compares keys."""


@on("stablehlo.sort")
def sort(s: Site) -> Made:
    """Rows are sorted together, stably, whatever is said of that."""
    xs = s.required()
    rank = xs[0].type.rank
    axis = s.number("dimension", -1)
    axis = s.axis(axis + rank if axis < 0 else axis, rank)
    if any(x.type.shape != xs[0].type.shape for x in xs):
        found = " and ".join(str(x.type) for x in xs)
        raise s.wrong(f"operands are {found}, expected the same shape")
    if fixed(xs[0].type.shape[axis]) < 2:
        return xs
    keys = keys_of(s.body(), len(xs))
    if keys is None:
        order = _network(s, xs, axis)
    else:
        order = _by_keys(s, xs, axis, keys)
    return [s.g(GatherElements(axis), x, order) for x in xs]


def _by_keys(s: Site, xs: Sequence[Value], axis: int, keys: Sequence[Key]) -> Value:
    """Return the order by keys, the last of which matters least: so that is the first sorted by."""
    order: Value | None = None
    for key in reversed(keys):
        block = Block(s.body().arguments, (*key.body, key.returns))
        # The argument of the other side is not read.
        (value,) = apply_body(s, block, [x for x in xs for _ in range(2)])
        if key.total and value.type.dtype in FLOATS:
            value = ordinal(s, value)
        value = s.cast(value, "u8") if value.type.dtype == "bool" else value
        if order is not None:
            value = s.g(GatherElements(axis), value, order)
        _, turn = s.g.add(TopK(axis, value.type.shape[axis], key.falls), [value]).results
        order = turn if order is None else s.g(GatherElements(axis), order, turn)
    assert order is not None, "there is a key"
    return order


def _network(s: Site, xs: Sequence[Value], axis: int) -> Value:
    """Return the order by a comparator: a network of Batcher's, in which equals keep their order.

    In each step all elements are compared with partners at a distance that is a power of two.
    """
    n = fixed(xs[0].type.shape[axis])
    if n > MOST_COMPARED:
        raise s.refuse(
            f"{n} elements are not supported by this comparator; supported: at most "
            f"{MOST_COMPARED}, or a comparison of one key after the other"
        )
    shape = xs[0].type.shape
    order = counted(s, n, axis, shape)
    values = list(xs)
    for size, distance in _stages(n):
        values, order = _exchanged(s, values, order, axis, size, distance)
    return order


def _stages(n: int) -> list[tuple[int, int]]:
    """Return the steps of odd-even merging: the size of what is merged, and the distance."""
    stages = []
    size = 1
    while size < n:
        distance = size
        while distance:
            stages.append((size, distance))
            distance //= 2
        size *= 2
    return stages


def _exchanged(
    s: Site, values: Sequence[Value], order: Value, axis: int, size: int, distance: int
) -> tuple[list[Value], Value]:
    """Return values and order after a step of the network, which puts partners in order."""
    n = fixed(order.type.shape[axis])
    partner, first = _partners(n, size, distance)
    index = s.g.constant(np.array(partner, np.int64))
    low = _row(s, first, order, axis)
    there = [s.g(Gather(axis), v, index) for v in values]
    other = s.g(Gather(axis), order, index)
    mine = _before(s, values, there, order, other)
    # The first of two partners keeps the smaller, the second the larger.
    keeps = s.g(BitNot(), s.g(BitXor(), mine, low))
    made = [s.g(Where(), keeps, a, b) for a, b in zip(values, there, strict=True)]
    return made, s.g(Where(), keeps, order, other)


def _before(s: Site, a: Sequence[Value], b: Sequence[Value], i: Value, j: Value) -> Value:
    """Return a bool per element: True if `a` comes before `b`, of equal ones the earlier."""
    pairs = [v for both in zip(a, b, strict=True) for v in both]
    turned = [v for both in zip(b, a, strict=True) for v in both]
    (less,), (greater,) = apply_body(s, s.body(), pairs), apply_body(s, s.body(), turned)
    earlier = s.g(BitAnd(), s.g(BitNot(), greater), s.g(Less(), i, j))
    same = s.g(BitAnd(), earlier, s.g(BitNot(), less))
    return s.g(BitOr(), less, same)


def _partners(n: int, size: int, distance: int) -> tuple[list[int], list[bool]]:
    """Return each element's partner in a step, itself if it has none, and if it is the first."""
    partner, first = list(range(n)), [True] * n
    begin = distance % size if distance < size else 0
    for j in range(begin, n - distance, 2 * distance):
        for i in range(min(distance, n - j - distance)):
            a, b = i + j, i + j + distance
            if a // (2 * size) == b // (2 * size):
                partner[a], partner[b] = b, a
                first[b] = False
    return partner, first


def _row(s: Site, truths: Sequence[bool], like: Value, axis: int) -> Value:
    """Return truth values along an axis, the same for all others."""
    narrow = tuple(len(truths) if i == axis else 1 for i in range(like.type.rank))
    row = s.g.constant(np.array(truths).reshape(narrow))
    return stretch(s.g, row, like.type.shape)
