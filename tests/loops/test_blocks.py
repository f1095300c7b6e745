"""Rows of a result: short ones, few long ones, and those that Gather copies, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from agreement import TARGETS
from alpenglow.base.errors import FeedError
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Neg
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Broadcast, Reshape

every_target = pytest.mark.parametrize("target", TARGETS, ids=str)
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 11, 14, 15, 16, 17, 23, 31, 33, 47)


def drawn(dtype: str, *shape: int) -> Array:
    t = TensorType(dtype, shape)
    return (
        np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, shape).astype(t.numpy)
    )


def run(g: ag.Graph, target: ag.Target, *feeds: Array) -> list[Array]:
    exe = ag.compile(g, target=target, threads=1)
    return list(exe.run(dict(zip(g.inputs, feeds, strict=True))).values())


@every_target
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "u8", "i16", "bool"])
@pytest.mark.sampled(4)
def test_short_rows_are_repeated(dtype: str, target: ag.Target) -> None:
    g, feeds = ag.Graph("repeated"), []
    for width in WIDTHS:
        x = g.input(f"x{width}", f"{dtype}[9,5,{width}]")
        wide = g(Broadcast((2, 9, 5, 3, width)), g(Reshape((1, 9, 5, 1, width)), x))
        g.output(f"y{width}", g(Reshape((18, 5, 3 * width)), wide))
        feeds.append(drawn(dtype, 9, 5, width))

    for rows, repeated in zip(feeds, run(g, target, *feeds), strict=True):
        assert np.array_equal(repeated, np.tile(rows, (2, 1, 3)))


@every_target
@pytest.mark.parametrize("dtype", ["f32", "i64", "u8"])
@pytest.mark.sampled(2)
def test_short_rows_are_computed(dtype: str, target: ag.Target) -> None:
    g, feeds = ag.Graph("computed"), []
    for width in WIDTHS:
        x, y, z = (g.input(f"{n}{width}", f"{dtype}[{s},{width}]")
                   for n, s in (("x", "150,3"), ("y", "150,1"), ("z", "1,3")))  # fmt: skip
        y, z = (g(Broadcast((150, 3, width)), v) for v in (y, z))
        g.output(f"r{width}", g(Add(), g(Mul(), x, y), z))
        feeds += [drawn(dtype, *s, width) for s in ((150, 3), (150, 1), (1, 3))]

    results = run(g, target, *feeds)
    for i, result in enumerate(results):
        left, right, more = feeds[3 * i : 3 * i + 3]
        assert np.array_equal(result, left * right + more)


@every_target
@pytest.mark.parametrize("dtype", ["f32", "u8", "bool"])
@pytest.mark.parametrize("extent", [512 * 3, 512 * 3 + 5, 64 * 64 * 2 + 31])
@pytest.mark.sampled(4)
def test_few_long_rows_are_cut_into_runs(extent: int, dtype: str, target: ag.Target) -> None:
    g = ag.Graph("runs")
    x, y = g.input("x", f"{dtype}[7,{extent}]"), g.input("y", f"{dtype}[7,1]")
    wide = g(Broadcast((7, extent)), y)
    g.output("z", g(BitAnd() if dtype == "bool" else Add(), x, wide))
    feeds = drawn(dtype, 7, extent), drawn(dtype, 7, 1)

    (result,) = run(g, target, *feeds)

    assert np.array_equal(result, feeds[0] & feeds[1] if dtype == "bool" else feeds[0] + feeds[1])


CHECK = InRange(-11, 10)
GATHERS: dict[str, Callable[[ag.Graph, Any, Any], Any]] = {
    "alone": lambda g, x, at: g(Gather(1), x, at),
    "checked": lambda g, x, at: g(Gather(1), x, g(CHECK, at)),
    "negative": lambda g, x, at: g(Gather(-3), x, at),
    "of doubles": lambda g, x, at: g(Gather(1), g(Add(), x, x), at),
    "squared": lambda g, x, at: _squared(g, g(Gather(1), x, at)),
    "checked and squared": lambda g, x, at: _squared(g, g(Gather(1), x, g(CHECK, at))),
    "read twice": lambda g, x, at: g(Add(), g(Gather(1), x, at), g(Gather(1), x, g(Neg(), at))),
}
ROWS: dict[str, Callable[[Array, Array], Array]] = {
    "alone": lambda x, at: x[:, at],
    "checked": lambda x, at: x[:, at],
    "negative": lambda x, at: x[:, at],
    "of doubles": lambda x, at: 2 * x[:, at],
    "squared": lambda x, at: x[:, at] ** 2 + np.arange(1, 5).reshape(4, 1),
    "checked and squared": lambda x, at: x[:, at] ** 2 + np.arange(1, 5).reshape(4, 1),
    "read twice": lambda x, at: x[:, at] + x[:, -at],
}


def _squared(g: ag.Graph, rows: Any) -> Any:
    """Return squares plus what differs along one of the axes that are gathered together."""
    column = g.constant(np.arange(1, 5, dtype=np.float32).reshape(4, 1))
    return g(Add(), g(Mul(), rows, rows), g(Broadcast(rows.type.shape), column))


@every_target
@pytest.mark.parametrize("shape", ["f32[3,11,4,6], i64[2,50]", "f32[b,11,4,w], i64[m,n]"])
@pytest.mark.sampled(2)
def test_gathered_rows_are_copied_as_they_lie(shape: str, target: ag.Target) -> None:
    g = ag.Graph("gathered")
    x, at = (g.input(n, t) for n, t in zip(("x", "at"), shape.split(", "), strict=True))
    for name, make in GATHERS.items():
        g.output(name, make(g, x, at))
    exe = ag.compile(g, target=target, threads=1)

    for b, m, n, w in ((3, 2, 50, 6), *(((1, 1, 1, 1), (2, 3, 7, 33)) if "w" in shape else ())):
        rows, places = drawn("f32", b, 11, 4, w), drawn("i64", m, n) % 11
        results = exe.run({"x": rows, "at": places})
        wrong = [k for k, f in ROWS.items() if not np.array_equal(results[k], f(rows, places))]
        assert wrong == []


@every_target
@pytest.mark.parametrize("dtype", ["bool", "u8", "i8", "i16", "f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 40, 100])
@pytest.mark.sampled(10)
def test_gathered_rows_of_any_width_are_copied(width: int, dtype: str, target: ag.Target) -> None:
    g = ag.Graph("gathered")
    x, at = g.input("x", f"{dtype}[30,{width}]"), g.input("at", "i32[2,301]")
    g.output("y", g(Gather(0), x, at))
    feeds = drawn(dtype, 30, width), drawn("i32", 2, 301) % 30

    (result,) = run(g, target, *feeds)

    assert np.array_equal(result, feeds[0][feeds[1]])


@every_target
def test_an_index_of_a_row_that_is_out_of_range_is_reported(target: ag.Target) -> None:
    g = ag.Graph("gathered")
    x, at = g.input("x", "u8[30,64]"), g.input("at", "i64[9]")
    g.output("y", g(Gather(0), x, g(InRange(-30, 29), at)))
    exe = ag.compile(g, target=target, threads=1)

    with pytest.raises(FeedError, match="30"):
        exe.run({"x": drawn("u8", 30, 64), "at": np.array([0, 1, 2, 3, 30, 4, 5, 6, 7])})
