"""Operands that are views: steps of 0, of more than 1, and back, along each axis of each operand.

A kernel that loads vectors has a way for each kind of step, and only one of them is what most
models need.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from agreement import disagreements
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.movement import Broadcast, Slice, Transpose

RANDOM = np.random.default_rng(0)

View = Callable[[Graph, str, tuple[int, ...]], Value]


def plain(g: Graph, name: str, shape: tuple[int, ...], dtype: str = "f32") -> Value:
    return g.input(name, f"{dtype}[{','.join(map(str, shape))}]")


def stretched(g: Graph, name: str, shape: tuple[int, ...], axis: int, dtype: str = "f32") -> Value:
    """A tensor that has one element along an axis, step 0; it lies in rows of a larger one."""
    thin = tuple(1 if i == axis % len(shape) else d for i, d in enumerate(shape))
    wide = tuple(3 if i == axis % len(shape) else d for i, d in enumerate(shape))
    starts = tuple(1 if i == axis % len(shape) else 0 for i in range(len(shape)))
    inner = g(Slice(starts, thin, (1,) * len(shape)), plain(g, name, wide, dtype))
    return g(Broadcast(shape), inner)


def stepped(g: Graph, name: str, shape: tuple[int, ...], axis: int, step: int,
            dtype: str = "f32") -> Value:  # fmt: skip
    """Every second element along an axis, or the elements from the last to the first."""
    axis %= len(shape)
    reach = tuple(d * abs(step) + 1 if i == axis else d for i, d in enumerate(shape))
    first = 1 if step > 0 else reach[axis] - 1
    starts = tuple(first if i == axis else 0 for i in range(len(shape)))
    steps = tuple(step if i == axis else 1 for i in range(len(shape)))
    return g(Slice(starts, shape, steps), plain(g, name, reach, dtype))


def turned(g: Graph, name: str, shape: tuple[int, ...], dtype: str = "f32") -> Value:
    """A tensor whose last two axes are turned over in memory."""
    *lead, rows, columns = shape
    perm = (*range(len(lead)), len(lead) + 1, len(lead))
    return g(Transpose(perm), plain(g, name, (*lead, columns, rows), dtype))


def views(g: Graph, name: str, shape: tuple[int, ...], dtype: str = "f32") -> list[Value]:
    """Return operands of one shape, each with other steps."""
    made = [plain(g, name, shape, dtype), turned(g, f"{name}t", shape, dtype)]
    for axis in range(len(shape)):
        made.append(stretched(g, f"{name}b{axis}", shape, axis, dtype))
        for step in (2, -1, -3):
            made.append(stepped(g, f"{name}s{axis}_{step}", shape, axis, step, dtype))
    one = g(Broadcast(shape), g.input(f"{name}one", f"{dtype}[{','.join('1' for _ in shape)}]"))
    return [*made, one]


@pytest.mark.parametrize("columns", [1, 3, 5, 16, 17, 33])
@pytest.mark.sampled(1)
def test_products_of_views(columns: int) -> None:
    g = Graph("f")
    rows, inner = (4, 5) if columns % 2 else (7, 16)
    xs, ys = views(g, "x", (rows, inner)), views(g, "y", (inner, columns))
    for i, y in enumerate(ys):
        g.output(f"x{i}", g(MatMul(), xs[0], y))
    for i, x in enumerate(xs):
        g.output(f"y{i}", g(MatMul(), x, ys[i % len(ys)]))

    assert disagreements(g) == []


@pytest.mark.rest
def test_products_of_views_in_a_batch() -> None:
    g = Graph("f")
    xs, ys = views(g, "x", (2, 3, 4, 5)), views(g, "y", (2, 3, 5, 6))
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        g.output(f"y{i}", g(MatMul(), x, ys[0]))
        g.output(f"x{i}", g(MatMul(), xs[0], y))

    assert disagreements(g) == []


@pytest.mark.parametrize("dtypes", [("u8", "i8"), ("bf16", "bf16")])
@pytest.mark.rest
def test_products_of_narrow_views(dtypes: tuple[str, str]) -> None:
    g = Graph("f")
    xs, ys = views(g, "x", (5, 11), dtypes[0]), views(g, "y", (11, 18), dtypes[1])
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        g.output(f"y{i}", g(MatMul(), x, ys[0]))
        g.output(f"x{i}", g(MatMul(), xs[0], y))

    assert disagreements(g, tolerance=1e-2) == []
