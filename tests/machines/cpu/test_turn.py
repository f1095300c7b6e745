"""Transposes are turned over in registers, whatever is computed with them."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.ir.types import DTYPES
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.logic import BitAnd, BitNot
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.tensor.movement import Transpose

RNG = np.random.default_rng(0)

CASES = [
    ("f32", (70, 33), (1, 0)),
    ("u8", (2, 35, 131), (0, 2, 1)),
    ("bool", (90, 17), (1, 0)),
    ("f16", (3, 20, 5, 19), (0, 3, 2, 1)),
    ("f64", (9, 4, 11), (2, 1, 0)),
    ("i8", (1, 30, 31, 3), (0, 3, 1, 2)),
    ("f32", (2, 3, 9, 40), (0, 2, 3, 1)),
]


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize(("dtype", "shape", "perm"), CASES)
@pytest.mark.sampled(7)
def test_transposes_move_each_element(
    dtype: str, shape: tuple[int, ...], perm: tuple[int, ...], open_: bool
) -> None:
    g = ag.Graph("turn")
    # Channels of images are known.
    extents = ["h" if open_ and d == max(shape) else str(d) for d in shape]
    g.output("y", g(Transpose(perm), g.input("x", f"{dtype}[{','.join(extents)}]")))
    exe = ag.compile(g)
    for extent in (max(shape), max(shape) + 5) if open_ else (max(shape),):
        sizes = [extent if d == max(shape) else d for d in shape]
        x = RNG.integers(0, 2 if dtype == "bool" else 100, sizes).astype(DTYPES[dtype])

        np.testing.assert_array_equal(exe(x), x.transpose(perm))


def test_what_is_computed_with_transposes_is_computed_as_they_are_turned() -> None:
    g = ag.Graph("turn")
    image, shift = g.input("x", "u8[1,12,45,3]"), g.input("z", "f32[1,3,12,45]")
    bytes_ = g(Transpose((0, 3, 1, 2)), image)
    g.output("y", g(Add(), g(Cast("f32"), bytes_), shift))
    x = RNG.integers(0, 255, (1, 12, 45, 3)).astype(np.uint8)
    z = RNG.integers(-9, 9, (1, 3, 12, 45)).astype(np.float32)
    exe = ag.compile(g)

    np.testing.assert_array_equal(exe(x, z), x.transpose(0, 3, 1, 2) + z)


def of_bools(kind: str, n: str) -> ag.Graph:
    g = ag.Graph("turn")
    a, b = (g(Transpose((1, 0)), g.input(name, f"bool[{n},33]")) for name in "ab")
    x, y = (g.input(name, f"f32[33,{n}]") for name in "xy")
    result = {
        "where": lambda: g(Where(), a, x, y),
        "not": lambda: g(BitNot(), a),
        "and": lambda: g(BitAnd(), a, b),
        "several": lambda: g(Where(), g(BitAnd(), g(BitNot(), a), b), g(Add(), x, y), y),
    }[kind]()
    g.output("z", result)
    return g


@pytest.mark.parametrize("kind", ["where", "not", "and", "several"])
@pytest.mark.parametrize("n", ["70", "n"])
@pytest.mark.sampled(4)
def test_bools_are_computed_with_as_they_are_turned(kind: str, n: str) -> None:
    feeds = {name: RNG.integers(0, 2, (70, 33)).astype(bool) for name in "ab"}
    feeds |= {name: RNG.integers(-9, 9, (33, 70)).astype(np.float32) for name in "xy"}
    expected = evaluate(of_bools(kind, "70"), feeds)["z"]

    np.testing.assert_array_equal(ag.compile(of_bools(kind, n)).run(feeds)["z"], expected)
