"""Conversions to and from element types of a byte or less, in compiled code and in NumPy.

ml_dtypes is the measure: every code of every type to f32, every f16 and a sample of f32 that holds
all ties, borders and neighbours of both into every type.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import (
    ALL,
    COMPLEX,
    DTYPES,
    NARROW,
    NARROW_FLOATS,
    NARROW_INTS,
    TensorType,
    type_of,
    width,
)
from alpenglow.kernel.narrow import ROUNDINGS
from alpenglow.ops.elementwise.select import BitCast, Cast
from alpenglow.ops.tensor.movement import Concat, Pad, Slice, Transpose

Array = NDArray[Any]

EIGHT_BITS = sorted(t for t in NARROW_FLOATS - {"f8e8m0"} if width(t) == 8)

every_narrow = pytest.mark.parametrize("dtype", sorted(NARROW))


def codes(dtype: str) -> Array:
    return np.arange(1 << width(dtype), dtype=np.uint8).view(DTYPES[dtype])


@cache
def singles() -> Array:
    """Return f32 of all exponents with few bits set, their neighbours, and random ones."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    random = np.random.default_rng(0).integers(0, 1 << 32, 1 << 17, dtype=np.uint32)
    ties = (np.arange(1 << 16, dtype=np.uint32) << 16) | 0x8000
    every = [upper, upper + np.uint32(1), upper - np.uint32(1), ties, ties + np.uint32(1), random]
    return np.concatenate(every).view(np.float32)


def halves() -> Array:
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def compiled(x: Array, *ops: Cast | BitCast) -> Array:
    """Return what compiled code makes of x."""
    g = Graph("conversion")
    v = g.input("x", type_of(x))
    for op in ops:
        v = g(op, v)
    g.output("y", v)
    exe = ag.compile(g, target="cpu", threads=1)
    assert all(entry.kernel for entry in exe.artifact.table)
    return exe.run({"x": x})["y"]


def assert_identical(expected: Array, actual: Array) -> None:
    """Assert equal bits; of NaN the sign only."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    word = f"u{expected.dtype.itemsize}"
    with np.errstate(all="ignore"):
        a, b = expected.astype(np.float64), actual.astype(np.float64)
    nan = np.isnan(a) & np.isnan(b) & (np.signbit(a) == np.signbit(b))
    same = (expected.view(word) == actual.view(word)) | nan
    assert same.all(), f"{expected[~same][:5]} and {actual[~same][:5]}"


@every_narrow
@pytest.mark.parametrize("target", sorted(ALL))
@pytest.mark.sampled(30)
def test_every_code_becomes_the_same_number(dtype: str, target: str) -> None:
    x = codes(dtype)
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64)
        fits = np.isfinite(exact) & (np.abs(exact) < 2.0**31)
        if target[0] == "u":
            fits &= exact >= 0
        if target in ("i8", "u8", "i16", "u16"):
            fits &= np.abs(exact) < 100
        x = x if target[0] in "fb" else x[fits]
        expected = x.astype(np.float32).astype(DTYPES[target])

    assert_identical(expected, compiled(x, Cast(target)))


@pytest.mark.parametrize("dtype", sorted(NARROW_FLOATS - {"f8e8m0"}))
@pytest.mark.parametrize("source", ["f16", "f32"])
@pytest.mark.sampled(7)
def test_every_number_becomes_the_code_that_ml_dtypes_gives_it(dtype: str, source: str) -> None:
    x = halves() if source == "f16" else singles()
    with np.errstate(all="ignore"):
        expected = x.astype(DTYPES[dtype])

    assert_identical(expected, compiled(x, Cast(dtype, saturate=False)))


@pytest.mark.parametrize("dtype", EIGHT_BITS)
@pytest.mark.parametrize("source", ["f16", "f32"])
def test_saturated_numbers_stop_at_the_largest(dtype: str, source: str) -> None:
    x = halves() if source == "f16" else singles()
    every = codes(dtype).astype(np.float32)
    most = every[np.isfinite(every)].max()
    with np.errstate(all="ignore"):
        expected = np.clip(x.astype(np.float32), -most, most).astype(DTYPES[dtype])

    assert_identical(expected, compiled(x, Cast(dtype)))


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_powers_of_two_are_rounded_as_asked(rounding: str, saturate: bool) -> None:
    x = singles()
    with np.errstate(all="ignore"):
        exponent = np.log2(np.abs(x.astype(np.float64)))
        down = np.floor(exponent)
        near = down + (np.abs(x.astype(np.float64)) >= 1.5 * 2.0**down)
        power = {"up": np.ceil(exponent), "down": down, "nearest": near}[rounding]
        none = np.isnan(x) | (x < 0)
        small, large = np.abs(x.astype(np.float64)) < 2.0**-127, power > 127
        ends = (0, 254) if saturate else (255, 255)
        code = np.where(small, ends[0], np.where(large, ends[1], np.clip(power, -127, 127) + 127))
        expected = np.where(none, 255, code).astype(np.uint8).view(DTYPES["f8e8m0"])

    assert_identical(expected, compiled(x, Cast("f8e8m0", saturate, rounding)))


@pytest.mark.parametrize("dtype", sorted(NARROW_INTS))
@pytest.mark.parametrize("source", ["i8", "u8", "i32", "i64", "u64", "f16", "f32", "f64", "bool"])
@pytest.mark.sampled(18)
def test_small_integers_keep_the_low_bits(dtype: str, source: str) -> None:
    x = np.arange(-128, 128).astype(DTYPES[source])
    expected = (x.astype(np.int64) & ((1 << width(dtype)) - 1)).astype(np.uint8)

    actual = compiled(x, Cast(dtype))

    assert_identical(expected.view(DTYPES[dtype]), actual)


@pytest.mark.parametrize("source", sorted(NARROW))
@pytest.mark.parametrize("target", sorted(NARROW))
@pytest.mark.sampled(24)
def test_narrow_types_become_each_other_as_the_interpreter_has_it(source: str, target: str) -> None:
    x = codes(source)
    if target in NARROW_INTS:
        with np.errstate(all="ignore"):
            exact = x.astype(np.float64)
        x = x[np.abs(exact) < 2.0**31]
    g = Graph("conversion")
    g.output("y", g(Cast(target), g.input("x", type_of(x))))
    with np.errstate(all="ignore"):
        expected = evaluate(g, {"x": x})["y"]

    assert_identical(expected, compiled(x, Cast(target)))


@pytest.mark.parametrize("dtype", sorted(NARROW | COMPLEX))
@pytest.mark.sampled(7)
def test_moves_keep_every_bit(dtype: str) -> None:
    random = np.random.default_rng(0)
    size = 35 * DTYPES[dtype].itemsize
    most = 1 << width(dtype) if dtype in NARROW else 64  # no NaN, which NumPy may make another
    x = random.integers(0, most, size, dtype=np.uint8).view(DTYPES[dtype]).reshape(5, 7)
    g = Graph("moves")
    v = g.input("x", TensorType(dtype, (5, 7)))
    v = g(Concat(0), g(Transpose((1, 0)), v), g(Transpose((1, 0)), v))
    v = g(Pad((1, 2), (0, 3)), g(Slice((1, 0), (6, 5), (2, 1)), v))
    g.output("y", v)
    expected = evaluate(g, {"x": x})["y"]
    exe = ag.compile(g, target="cpu", threads=1)

    actual = exe.run({"x": x})["y"]

    assert all(entry.kernel for entry in exe.artifact.table)
    assert actual.tobytes() == expected.tobytes()
    assert expected[1:, 2:-3].tobytes() == np.concatenate([x.T, x.T])[1:13:2].tobytes()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_bits_of_halves_are_kept_even_of_signalling_nan(dtype: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16)

    actual = compiled(x, BitCast(dtype), BitCast("i16"))

    assert actual.view(np.uint16).tobytes() == x.tobytes()
