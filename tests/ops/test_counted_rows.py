"""Counted loops in their plain form: rows that are scanned and stacked."""

from __future__ import annotations

import numpy as np
import pytest

from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.types import TensorType
from alpenglow.ops.control.counted import by_rows
from alpenglow.ops.control.loop import COUNTER, Scan
from alpenglow.ops.elementwise.arithmetic import Add, Maximum, Minimum, Mul, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.sequence.cache import UpdateCache
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Reshape

ROWS = 7


def number(b: Graph, n: int, dtype: str = "i64") -> Value:
    return b.constant(np.array(n, TensorType(dtype, ()).numpy))


def counted(
    count: int, slope: int, start: int, by: int = 1, reverse: bool = False, reads: bool = False
) -> Graph:
    """Return a loop that reads row `slope · k + start` of a table, k being a counter that grows by
    `by`, adds it to what it carries, and writes the sum at this row of another table.

    If it `reads` the other table as well, that has to be carried.
    """
    g, b = Graph("g"), Graph("body")
    b.input("number", COUNTER)
    k, h = b.input("k", "i32[]"), b.input("h", "f32[3]")
    table, other = b.input("table", f"f32[{ROWS},3]"), b.input("other", f"f32[{ROWS},3]")
    at = b(Add(), b(Mul(), b(Cast("i64"), k), number(b, slope)), number(b, start))
    clamped = b(Minimum(), b(Maximum(), at, number(b, 0)), number(b, ROWS - 1))
    wrapped = b(Add(), clamped, number(b, ROWS))
    place = b(Where(), b(Less(), clamped, number(b, 0)), wrapped, clamped)
    row = b(Gather(0), table, place)
    total = b(Add(), h, row)
    if reads:
        total = b(Sub(), total, b(Gather(0), other, place))
    flat = b(Reshape((1, ROWS, 3)), other)
    update = b(UpdateCache(1), flat, b(Reshape((1, 1, 3)), total), b(Reshape((1,)), place))
    b.output("k1", b(Add(), k, number(b, by, "i32")))
    b.output("h1", total)
    b.output("table1", table)
    b.output("other1", b(Reshape((ROWS, 3)), update))
    b.output("row", row)
    operands = [
        number(g, 1, "i32"), g.input("h", "f32[3]"), g.input("table", f"f32[{ROWS},3]"),
        g.input("other", f"f32[{ROWS},3]"),
    ]  # fmt: skip
    node = g.add(Scan(count, 4, 0, reverse), operands, [b])
    for i, v in enumerate(node.results):
        g.output(f"y{i}", v)
    return g


def plain(g: Graph) -> Node:
    """Put the plain form of the only loop of a graph in its place, and return it."""
    (node,) = g.nodes
    old = list(node.results)
    new = by_rows(g, node)
    for a, b in zip(old, new, strict=True):
        g.replace(a, b)
    g.prune()
    (loop,) = (n for n in g.nodes if isinstance(n.op, Scan))
    return loop


LOOPS = {
    "forward": counted(5, 1, 0),
    "all rows": counted(ROWS, 1, -1),
    "backward": counted(5, -1, 6),
    "reversed": counted(5, 1, 0, reverse=True),
    "backward, reversed": counted(5, -1, 6, reverse=True),
    "by two, every other row": counted(3, 1, 0, by=2),
    "clamped at the end": counted(7, 1, 1),
    "one row": counted(4, 0, 2),
    "once": counted(1, 1, 3),
}


@pytest.mark.parametrize("name", LOOPS)
def test_plain_forms_mean_the_same(name: str) -> None:
    g = LOOPS[name].copy()
    random = np.random.default_rng(0)
    feeds = {k: random.standard_normal(v.type.extents).astype("f") for k, v in g.inputs.items()}
    expected = evaluate(g, feeds)
    plain(g)

    for output, y in evaluate(g, feeds).items():
        np.testing.assert_array_equal(y, expected[output])


@pytest.mark.parametrize("name", ["forward", "all rows", "backward", "reversed", "once"])
def test_rows_are_scanned_and_stacked(name: str) -> None:
    loop = plain(LOOPS[name].copy())

    assert isinstance(loop.op, Scan)
    assert (loop.op.carried_count, loop.op.scanned_count) == (1, 1)
    assert len(loop.inputs) == 2 and len(loop.results) == 3


@pytest.mark.parametrize("name", ["by two, every other row", "clamped at the end", "one row"])
def test_other_rows_are_read_at_the_counter(name: str) -> None:
    loop = plain(LOOPS[name].copy())

    assert isinstance(loop.op, Scan)
    assert (loop.op.carried_count, loop.op.scanned_count) == (2, 0)


def test_a_table_that_is_read_as_well_is_carried() -> None:
    g = counted(5, 1, 0, reads=True)
    random = np.random.default_rng(0)
    feeds = {k: random.standard_normal(v.type.extents).astype("f") for k, v in g.inputs.items()}
    expected = evaluate(g, feeds)
    loop = plain(g)

    assert isinstance(loop.op, Scan)
    assert (loop.op.carried_count, loop.op.scanned_count) == (2, 1)
    for output, y in evaluate(g, feeds).items():
        np.testing.assert_array_equal(y, expected[output])
