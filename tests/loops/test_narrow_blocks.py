"""Vectors of narrow integers: as many lanes as fill a register, and what full vectors leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from agreement import TARGETS
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Div, Maximum, Mul
from alpenglow.ops.elementwise.comparison import Equal, Less
from alpenglow.ops.elementwise.logic import BitAnd, BitNot, BitXor, ShiftLeft, ShiftRight
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.tensor.movement import Concat

EXTENTS = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 127, 1000, 20011)
FIXED = (1, 7, 47, 64, 20011)
DTYPES = ("bool", "u8", "i8", "u16", "i16")
HALVES = ("f16", "bf16")
CASES: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "and": (("bool", "i16"), lambda g, x, y: g(BitAnd(), x, y)),
    "xor": (("bool", "u8"), lambda g, x, y: g(BitXor(), x, y)),
    "not": (("bool", "u8"), lambda g, x, y: g(BitNot(), x)),
    "add": (("i8", "u16"), lambda g, x, y: g(Add(), x, y)),
    "multiply": (("u8", "i16"), lambda g, x, y: g(Mul(), x, y)),
    "maximum": (("u8", "i16"), lambda g, x, y: g(Maximum(), x, y)),
    "divide": (("i8",), lambda g, x, y: g(Div(), x, y)),
    "equal": (("bool", "u8"), lambda g, x, y: g(Equal(), x, y)),
    "less": (("u8", "i8", "u16"), lambda g, x, y: g(Less(), x, y)),
    "left": (("u8",), lambda g, x, y: g(ShiftLeft(), x, y)),
    "right": (("u8", "i8", "i16"), lambda g, x, y: g(ShiftRight(), x, y)),
    "where": (("bool", "u8", "i16"), lambda g, x, y: g(Where(), g(Equal(), x, y), x, y)),
    "wider": (("u8",), lambda g, x, y: g(BitAnd(), g(Cast("i32"), x), g(Cast("i32"), y))),
    "narrower": (("bool", "i8"), lambda g, x, y: g(Equal(), g(Cast("f32"), x), g(Cast("f32"), y))),
    "joined": ((*DTYPES, *HALVES), lambda g, x, y: g(Concat(0), x, y, x)),
}
KINDS = [(name, dtype) for name, (dtypes, _) in CASES.items() for dtype in dtypes]


def drawn(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    t = TensorType(dtype, shape)
    bits = np.random.default_rng(seed).integers(0, 256, (*shape, t.numpy.itemsize), np.uint8)
    if dtype == "bool":
        return np.asarray(bits[..., 0] % 2 == 0)
    if dtype in HALVES:
        bits[..., 1] &= 0xBB  # the interpreter changes the bits of NaN
    return bits.view(t.numpy).reshape(shape)


def graph(extent: int | str) -> ag.Graph:
    """Return every case for vectors of `extent` elements, as an output each."""
    g = ag.Graph("narrow")
    operands = {
        dtype: (g.input(f"x_{dtype}", f"{dtype}[{extent}]"),
                g.input(f"y_{dtype}", f"{dtype}[{extent}]"))
        for dtype in (*DTYPES, *HALVES)
    }  # fmt: skip
    for name, dtype in KINDS:
        g.output(f"{name}_{dtype}", CASES[name][1](g, *operands[dtype]))
    return g


def feeds(extent: int) -> dict[str, Array]:
    """Return operands of any bits."""
    names = [(side, dtype) for dtype in (*DTYPES, *HALVES) for side in "xy"]
    return {f"{side}_{dtype}": drawn(dtype, (extent,), seed)
            for seed, (side, dtype) in enumerate(names)}  # fmt: skip


def assert_bits(expected: dict[str, Array], actual: dict[str, Array]) -> None:
    wrong = [name for name, want in expected.items() if want.tobytes() != actual[name].tobytes()]

    assert wrong == []


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("extent", FIXED)
@pytest.mark.sampled(3)
def test_each_extent_is_computed_to_its_end(extent: int, target: ag.Target) -> None:
    g, given = graph(extent), feeds(extent)
    expected = ag.compile(g, target="interpreter").run(given)

    assert_bits(expected, ag.compile(g, target=target, threads=1).run(given))


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.sampled(1)
def test_code_for_open_extents_serves_each(target: ag.Target) -> None:
    exe = ag.compile(graph("n"), target=target, threads=1)
    peer = ag.compile(graph("n"), target="interpreter")
    for extent in EXTENTS:
        given = feeds(extent)
        assert_bits(peer.run(given), exe.run(given))
