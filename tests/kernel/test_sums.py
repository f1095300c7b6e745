"""Sums of many elements: how far they are from the exact ones, beside NumPy's.

NumPy adds a contiguous row up in blocks, and those in pairs.  The error here is at most four times
that, or a unit in the last place, as the root of the mean square over several sums.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ir.graph import infer
from alpenglow.ir.op import Op
from alpenglow.ir.target import Facts
from alpenglow.ir.types import Array, TensorType, type_of
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.text import print_kernel
from alpenglow.loops import build
from alpenglow.machines.vector.operators.layout import Blocked
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.reduction.layer_norm import LayerNorm
from alpenglow.ops.reduction.reduction import ReduceL2, ReduceLogSumExp, ReduceMean, ReduceSum
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.window.pooling import AveragePool
from alpenglow.program.instr import Instr, whole
from alpenglow.render.c.render import Unit
from c_library import call, shared_library
from loop_forms import results, run

TIMES = 4
"""An error may be so many times NumPy's."""

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
LARGEST = 10_000_000
LANES = (16, 8, 1)
TARGETS = [n for n in ("x86-64-v4", "x86-64-v3") if ag.Target.parse(n).is_host_compatible()]


def uniform(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return random.uniform(0, 1, shape)


def shifted(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return random.normal(100, 1, shape)


def alternating(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """One number above zero, one below, and so on: most of each cancels."""
    sign = 1 - 2 * (np.arange(shape[-1]) % 2)
    return random.uniform(0, 1, shape) * sign


DATA = (uniform, shifted, alternating)


@lru_cache(16)
def sequences(kind: Any, n: int, dtype: str = "f32", count: int = 0) -> Array:
    """Return `count` contiguous rows of n elements, each from a seed of its own."""
    count = count or (64 if n <= 10_000 else 32 if n <= 100_000 else 8 if n <= 1_000_000 else 3)
    wide = np.stack([kind(np.random.default_rng(seed), (n,)) for seed in range(count)])
    return wide.astype({"f32": np.float32, "f64": np.float64, "f16": np.float16}[dtype])


def exact(s: Array) -> Array:
    return s.astype(np.longdouble).sum(axis=-1)


def by_numpy(s: Array) -> Array:
    return np.array([row.sum() for row in s])


@lru_cache(16)
def sums(kind: Any, n: int, dtype: str) -> tuple[Array, Array]:
    """Return what NumPy makes of sequences, and what is exact."""
    s = sequences(kind, n, dtype)
    return by_numpy(s), exact(s)


def rms(x: Array) -> float:
    return float(np.sqrt(np.mean(np.square(x.astype(np.longdouble)))))


def assert_as_good(y: Array, numpy: Array, wanted: Array, scale: Array | None = None) -> None:
    """Assert that y is as near to what is wanted as NumPy, up to a factor and a unit."""
    y, numpy, wanted = (np.asarray(a).reshape(-1) for a in (y, numpy, wanted))
    unit = float(np.finfo(y.dtype).eps) * rms(wanted if scale is None else scale)
    error, best = rms(y - wanted), rms(numpy - wanted)

    assert error <= max(TIMES * best, unit), f"{error:.2e}, NumPy {best:.2e}, a unit {unit:.2e}"


class Way(NamedTuple):
    """An operator that sums, how sequences become its operand, and what it makes of a sum."""

    name: str
    op: Op
    operand: Callable[[Array], Array]
    result: Callable[[Array, int], Array] = lambda total, n: total


def split(s: Array, short: int) -> Array:
    """Return sequences [R, n] as [R, n / short, short]."""
    return s.reshape(len(s), -1, short)


def pooling(n: int, short: int) -> AveragePool:
    return AveragePool((n // short, short), (1, 1), (0,) * 4, (1, 1))


def mean(total: Array, n: int) -> Array:
    return total / total.dtype.type(n)


def ways(n: int) -> list[Way]:
    return [
        Way("rows", ReduceSum((1,)), lambda s: s),
        Way("mean of rows", ReduceMean((1,)), lambda s: s, mean),
        Way("columns", ReduceSum((0,)), lambda s: s.T),
        Way("short rows", ReduceSum((1, 2)), lambda s: split(s, 10)),
        Way("long rows", ReduceSum((1, 2)), lambda s: split(s, n // 10)),
        Way("rows apart", ReduceSum((0, 2)), lambda s: split(s, 50).transpose(1, 0, 2)),
        Way("columns of short rows", ReduceSum((0, 1)), lambda s: split(s, 5).transpose(1, 2, 0)),
        Way("columns of long rows", ReduceMean((0, 1)),
            lambda s: split(s, n // 5).transpose(1, 2, 0), mean),
        Way("window", pooling(n, n // 10), lambda s: split(s, n // 10)[None], mean),
        Way("blocked window", pooling(n, n // 10),
            lambda s: split(s[:8], n // 10).transpose(1, 2, 0)[None, None], mean),
    ]  # fmt: skip


WAYS = [w.name for w in ways(100)]


def made(op: Op, operand: Array, lanes: int, how: Any = run) -> Array:
    """Return what the loops of an operator make of an operand."""
    operand = np.ascontiguousarray(operand)
    t = type_of(operand)
    if operand.ndim == 5:
        t = TensorType(t.dtype, t.shape, Blocked(operand.shape[-1]))
    instr = Instr(op, (whole("y0", infer(op, [t])[0]),), (whole("x0", t),))
    (y,) = results(instr, [operand], lanes, how)
    return y


def check(name: str, kind: Any, n: int, lanes: int, dtype: str = "f32", how: Any = run) -> None:
    way = next(w for w in ways(n) if w.name == name)
    operand = way.operand(sequences(kind, n, dtype))
    numpy, wanted = (way.result(x[: operand.size // n], n) for x in sums(kind, n, dtype))

    assert_as_good(made(way.op, operand, lanes, how), numpy, wanted)


@pytest.mark.parametrize("kind", DATA, ids=lambda f: f.__name__)
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.sampled(3)
def test_sums_are_as_exact_as_numpy(name: str, lanes: int, kind: Any) -> None:
    for n in SIZES:
        check(name, kind, n, lanes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATA, ids=lambda f: f.__name__)
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", WAYS)
def test_long_sums_are_as_exact_as_numpy(name: str, lanes: int, kind: Any) -> None:
    check(name, kind, LARGEST, lanes)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.sampled(3)
def test_sums_of_f64_are_as_exact_as_numpy(name: str, lanes: int) -> None:
    for n in (1_000, 100_000):
        for kind in DATA:
            check(name, kind, n, lanes, "f64")


def in_c(folder: Path) -> Callable[[Kernel, dict[str, Array]], None]:
    """Return what runs a kernel as C without vector extensions."""

    def how(kernel: Kernel, operands: dict[str, Array]) -> None:
        unit = Unit(portable=True, fast=False)
        unit.add(kernel, exported=True)
        loop = kernel.parallel
        part = (0, loop.extent.value) if loop is not None else None
        call(shared_library(unit.text(), folder, "-O2"), kernel, operands, {}, part)

    return how


@pytest.mark.cross
@pytest.mark.parametrize("name", WAYS)
def test_sums_in_c_are_as_exact_as_numpy(name: str, tmp_path: Path) -> None:
    for n in (1_000, 100_000):
        folder = tmp_path / str(n)
        folder.mkdir()
        check(name, uniform, n, 1, how=in_c(folder))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.sampled(2)
def test_the_denominators_of_softmax_are_as_exact_as_numpy(axis: int, lanes: int) -> None:
    for n in SIZES:
        s = sequences(uniform, n)
        y = made(Softmax(axis), s if axis else s.T, lanes)
        e = np.exp(s - s.max(axis=1, keepdims=True))
        shares = e / by_numpy(e)[:, None]

        # What is left of 1 is the error of the denominator: those of the exponentials average out.
        whole = exact(y if axis else y.T).astype(np.float32)
        assert_as_good(whole, exact(shares), np.ones(len(s)))


def normalized(s: Array, total: Callable[[Array], Array]) -> Array:
    """Return rows less their mean, over the root of their variance."""
    n = s.dtype.type(s.shape[1])
    centred = s - (total(s) / n)[:, None]
    return centred / np.sqrt(total(centred * centred) / n)[:, None]


@pytest.mark.parametrize("kind", [uniform, shifted], ids=lambda f: f.__name__)
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.sampled(3)
def test_layer_normalization_is_as_exact_as_numpy(lanes: int, kind: Any) -> None:
    for n in SIZES[:-1]:
        s = sequences(kind, n)
        y = made(LayerNorm(-1, 0), s, lanes)
        numpy = normalized(s, by_numpy)
        # An element is rounded, and divided by the deviation: a unit of either is this.
        scale = np.abs(s).max() / s.std(axis=1, dtype=np.float64)

        assert_as_good(y, numpy, normalized(s.astype(np.longdouble), exact), scale)


def graph_of(op: Op, shape: str, through: bool = False) -> ag.Graph:
    """Return a graph of an operator, behind a convolution that changes nothing if `through`."""
    g = ag.Graph("g")
    x = v = g.input("x", shape)
    if through:
        channels = x.type.extents[1]
        w = np.eye(channels, dtype=np.float32)[..., None, None]
        v = g(Conv((1, 1), (0,) * 4), x, g.constant(w))
    g.output("y", g(op, v))
    return g


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", DATA, ids=lambda f: f.__name__)
@pytest.mark.sampled(2)
def test_means_of_blocked_images_are_as_exact_as_numpy(target: str, kind: Any) -> None:
    for side in (10, 30, 100, 300):
        s = sequences(kind, side * side, count=32)
        exe = ag.compile(graph_of(ReduceMean((2, 3)), f"f32[1,32,{side},{side}]", True), target)
        y = exe(s.reshape(1, 32, side, side))
        n = np.float32(side * side)

        assert any(not r.type.is_plain for i in exe.artifact.program.instrs() for r in i.reads())
        assert_as_good(y, by_numpy(s) / n, exact(s) / n)


@pytest.mark.parametrize("target", TARGETS)
def test_norms_are_as_exact_as_numpy(target: str) -> None:
    for n in SIZES[:-1]:
        s = sequences(shifted, n)
        y = ag.compile(graph_of(ReduceL2((1,)), f"f32[{len(s)},{n}]"), target)(s)
        wide = s.astype(np.longdouble)

        assert_as_good(y, np.sqrt(by_numpy(s * s)), np.sqrt(exact(wide * wide)))


@pytest.mark.parametrize("target", TARGETS)
def test_logarithms_of_sums_are_as_exact_as_numpy(target: str) -> None:
    for n in SIZES[:-1]:
        s = sequences(uniform, n)
        y = ag.compile(graph_of(ReduceLogSumExp((1,)), f"f32[{len(s)},{n}]"), target)(s)
        numpy = np.log(by_numpy(np.exp(s)))

        assert_as_good(y, numpy, np.log(exact(np.exp(s.astype(np.longdouble)))))


@pytest.mark.parametrize("first", [1, 40, 3_000])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), (1, 2), (0, 2)], ids=str)
@pytest.mark.sampled(4)
def test_sums_of_open_extents_are_as_exact_however_small_the_first(
    axes: tuple[int, ...], first: int
) -> None:
    """Code is made for the first call, and serves longer ones or is made again."""
    exe = ag.compile(graph_of(ReduceSum(axes), "f32[A,B,C]"))
    kept = next(a for a in range(3) if a not in axes)
    for n in (first, 1_000, 100_000):
        count = 16 if len(axes) == 2 else 4
        s = sequences(uniform, n, count=count)
        place = s.reshape(count, *((n // 5 or 1, -1) if len(axes) == 2 else (n, 1)))
        order = {0: (0, 1, 2), 1: (1, 0, 2), 2: (1, 2, 0)}[kept]
        y = exe(np.ascontiguousarray(place.transpose(order)))

        assert_as_good(y, by_numpy(s), exact(s))


def test_bits_do_not_depend_on_threads_nor_on_whether_extents_are_known() -> None:
    s = sequences(uniform, 64 * 100)
    for axis in (0, 1):
        g = graph_of(ReduceSum((axis,)), "f32[A,B]")
        x = np.ascontiguousarray(s if axis else s.T)
        expected = ag.compile(g, shapes={"x": x.shape}, threads=1)(x)
        for threads in (1, 2, 3):
            np.testing.assert_array_equal(expected, ag.compile(g, threads=threads)(x))


def test_short_sums_have_one_tier() -> None:
    def loops(n: int) -> int:
        t = TensorType("f32", (2, n))
        op = ReduceSum((1,))
        instr = Instr(op, (whole("y0", infer(op, [t])[0]),), (whole("x0", t),))
        return print_kernel(build("kernel", instr, Facts(lanes=16)).done()).count("for ")

    assert loops(2048) == loops(1024) < loops(100_000)


def test_long_sums_of_open_extents_have_code_of_their_own() -> None:
    exe = ag.compile(graph_of(ReduceSum((1,)), "f32[A,B]"))
    counts = []
    for n in (100, 300, 100_000, 1_000_000, 200):
        exe(np.ones((2, n), np.float32))
        counts.append(len(exe.artifacts))

    assert counts == [1, 1, 2, 2, 2]
