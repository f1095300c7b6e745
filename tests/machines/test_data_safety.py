"""No data makes compiled code crash, or write where it must not; what it computes is defined.

Indices are clamped (ops/tensor/gather.py), integers divided by zero give zero, shifts by too much
give what is left, floats that do not fit an integer give the least one (kernel/scalar.py): the same
in the interpreter and in compiled code.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base import knobs
from alpenglow.evaluate import evaluate
from alpenglow.ir.op import Op
from alpenglow.ir.types import DTYPES, NAMES
from alpenglow.machines.cpu import emit
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.ops.elementwise.arithmetic import Div, Fmod, Mod, Pow
from alpenglow.ops.elementwise.logic import ShiftLeft, ShiftRight
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.tensor.gather import (
    Gather,
    GatherElements,
    GatherNd,
    OneHot,
    ScatterElements,
    ScatterNd,
)
from alpenglow.ops.tensor.order import TopK
from fuzz import guard

Array = NDArray[Any]
MODES: tuple[Literal["strict", "fast"], ...] = ("strict", "fast")
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


def extremes(dtype: np.dtype[Any]) -> Array:
    """Return the numbers of an integer type at which something may go wrong."""
    limits = np.iinfo(dtype)
    near = [
        limits.min,
        limits.min + 1,
        -1,
        0,
        1,
        2,
        7,
        8,
        31,
        32,
        63,
        64,
        limits.max - 1,
        limits.max,
    ]
    return np.array([n for n in near if limits.min <= n <= limits.max], dtype)


def agree(*cases: tuple[Op, *tuple[Array, ...]]) -> None:
    """Assert that operators on operands give the same everywhere and write their results only."""
    g = ag.Graph("cases")
    feeds: dict[str, Array] = {}
    for i, (op, *operands) in enumerate(cases):
        names = [f"x{i}_{k}" for k in range(len(operands))]
        feeds |= dict(zip(names, operands, strict=True))
        values = [g.input(n, ag.TensorType(NAMES[feeds[n].dtype], feeds[n].shape)) for n in names]
        for k, v in enumerate(g.add(op, values).results):
            g.output(f"y{i}_{k}", v)
    with np.errstate(all="ignore"):
        expected = evaluate(g, feeds)
    for numerics in MODES:
        exe = ag.compile(g, threads=1, options=ag.Options(numerics=numerics))
        assert all(entry.kernel for entry in exe.artifact.table), "something is interpreted"
        for name, y in guard.run(exe, feeds).items():
            op = cases[int(name[1:].partition("_")[0])][0]
            np.testing.assert_array_equal(y, expected[name], f"{op} {numerics}")


BAD = np.array([-(2**63), 2**63 - 1, -(2**31), 2**31, -9, 9, -4, 3, 0], np.int64)
"""Indices, most of which are outside of every axis below."""


def indices(dtype: type, *shape: int) -> Array:
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    return np.resize(np.clip(BAD, least, most), shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_indices_out_of_range_are_clamped(dtype: type) -> None:
    x = np.arange(60, dtype=np.float32).reshape(4, 3, 5)

    agree(
        (Gather(1), x, indices(dtype, 9)),
        (Gather(2), x, indices(dtype, 3, 3)),
        (GatherElements(0), x, indices(dtype, 7, 3, 5)),
        (GatherNd(), x, indices(dtype, 6, 3)),
        (GatherNd(1), x, indices(dtype, 4, 2)),
        (OneHot(5, -1), indices(dtype, 9), np.array([2, 7], np.float32)),
    )


def test_nothing_is_scattered_outside() -> None:
    x = np.arange(60, dtype=np.float32).reshape(4, 3, 5)
    updates = np.arange(36, dtype=np.float32)
    elements, points, rows = indices(np.int64, 4, 3, 3), indices(np.int64, 12, 3), indices(
        np.int64, 2, 1)  # fmt: skip

    for how in ("none", "add", "max"):
        agree(
            (ScatterElements(1, how), x, elements, updates.reshape(4, 3, 3)),
            (ScatterNd(how), x, points, updates[:12]),
            (ScatterNd(how), x, rows, np.resize(updates, (2, 3, 5))),
        )


def test_nothing_is_sorted_outside() -> None:
    x = np.array([[np.nan, np.inf, -np.inf, np.nan, -0.0, 0.0, 1.0, np.nan, 2.0]], np.float32)

    agree((TopK(k=9, axis=1), x), (TopK(k=3, axis=0, largest=False), np.repeat(x.T, 2, 1)))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.sampled(3)
def test_division_by_zero_overflow_and_any_shift_are_defined(dtype: str) -> None:
    numbers = extremes(DTYPES[dtype])
    x, y = (a.reshape(-1) for a in np.meshgrid(numbers, numbers))

    agree(*((op, x, y) for op in (Div(), Mod(), Fmod(), Pow(), ShiftLeft(), ShiftRight())))


@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_floats_that_fit_no_integer_are_defined(source: str) -> None:
    numbers = [np.nan, np.inf, -np.inf, -0.0, 0.9, -0.9, 1e30, -1e30, 2.0**31, -(2.0**31), 2.0**63,
               -1.0, 4294967295.0, 255.9, -128.9, 65536.0]  # fmt: skip
    with np.errstate(all="ignore"):
        x = np.array(numbers).astype(DTYPES[source])

    agree(*((Cast(dtype), x) for dtype in INTEGERS))


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("source", ["i16", "i32", "i64", "f32", "f64"])
@pytest.mark.sampled(3)
def test_the_last_element_is_stored_alone(
    source: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM 22 stored the wide integer there, at whatever level: see machines/cpu/onelane.py."""
    monkeypatch.setattr(emit, "assemble", partial(assemble, opt=level))
    monkeypatch.setattr(knobs, "cache_folder", lambda: None)
    arrays = [(np.arange(size) % 7).astype(DTYPES[source]) for size in (5, 9, 17, 33)]
    targets = [t for t in ("bool", "i8", "i16", "i32", "u8", "u32", "bf16") if t != source]

    agree(*((Cast(dtype), x) for dtype in targets for x in arrays))
