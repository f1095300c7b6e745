"""Batches in parts: the same bits, in less memory, and only where it pays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array
from alpenglow.machines.vector.operators.winograd import WinogradInput
from alpenglow.machines.vector.passes import tile_batch, tile_rows
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Abs, Add
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.reduction.reduction import ReduceMean
from alpenglow.ops.window.pooling import MaxPool

SAMPLES = 6


def with_cache(nbytes: int) -> ag.Target:
    """Return this machine with another cache."""
    host = ag.Target.parse("cpu")
    return replace(host, facts=replace(host.facts, cache=nbytes))


SMALL = with_cache(100_000)
"""A machine for whose cache graphs that are quick to run are too large."""


@pytest.fixture(autouse=True)
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPENGLOW_CACHE", "off")
    monkeypatch.setattr(tile_rows, "READS", 0)  # of one sample there would be bands


def integers(*shape: int) -> Array:
    """Return small numbers, so that every order of summation gives the same bits."""
    return np.random.default_rng(len(shape)).integers(-2, 3, shape).astype(np.float32)


def network(samples: int | str = SAMPLES, extent: int = 24) -> ag.Graph:
    """A residual block on large images, a pool, and a layer of many weights on small ones."""
    g = ag.Graph("f")
    x = g.input("x", f"f32[{samples},16,{extent},{extent}]")

    def conv(v: Value, channels: int, taps: int = 3) -> Value:
        given = v.type.shape[1]
        assert isinstance(given, int)
        w = integers(channels, given, taps, taps)
        y = g(Conv((1, 1), (taps // 2,) * 4), v, g.constant(w), g.constant(integers(channels)))
        return g(Relu(), y)

    y = g(Add(), conv(conv(x, 48, 5), 16), x)
    y = g(MaxPool((3, 3), (3, 3), (0, 0, 0, 0), (1, 1)), y)
    y = conv(conv(y, 160, 1), 160)
    g.output("y", g(ReduceMean((2, 3)), y))
    return g


def programs(g: ag.Graph) -> tuple[ag.Executable, ag.Executable]:
    """Compile with the pass and without."""
    split = ag.compile(g, SMALL, threads=1)
    return split, ag.compile(g, with_cache(1 << 40), threads=1)


@cache
def both() -> tuple[ag.Executable, ag.Executable]:
    """The network of six samples, with the pass and without, for all who look at it."""
    return programs(network())


def counts(exe: ag.Executable) -> Counter[str]:
    (artifact,) = exe.artifacts
    instrs = artifact.program.instrs()
    return Counter(n.op.name for i in instrs for n in (i.body.nodes if i.body is not None else [i]))


@pytest.mark.rest
def test_parts_give_the_same_bits() -> None:
    split, whole = both()
    x = integers(SAMPLES, 16, 24, 24)

    assert counts(split) != counts(whole)
    np.testing.assert_array_equal(split(x), whole(x))


@pytest.mark.rest
def test_parts_need_less_memory_and_no_more_kernels() -> None:
    split, whole = both()

    assert split.artifact.program.arena < whole.artifact.program.arena
    assert len(split.artifact.objects) <= len(whole.artifact.objects) + 1


@pytest.mark.rest
def test_layers_of_many_weights_keep_the_batch() -> None:
    split, whole = (counts(exe) for exe in both())

    # Rows are pooled in the parts, columns of what is left in all samples at once.
    assert split["max_pool"] == SAMPLES + 1 and whole["max_pool"] == 2
    assert split["reduce_mean"] == whole["reduce_mean"] == 1


@pytest.mark.parametrize(("samples", "extent"), [(1, 24), (SAMPLES, 6), ("N", 24)])
@pytest.mark.sampled(0, "6-6")
def test_what_fits_is_one_sample_or_is_open_stays_whole(samples: int | str, extent: int) -> None:
    g = network(samples, extent)
    split, whole = programs(g)
    x = integers(2 if samples == "N" else int(samples), 16, extent, extent)
    np.testing.assert_array_equal(split(x), whole(x))

    assert counts(split) == counts(whole)


def test_what_winograd_transforms_may_be_an_output() -> None:
    g = ag.Graph("f")
    g.output("y", g(WinogradInput(), g.input("x", f"f32[{SAMPLES},16/16,66,66,16]")))

    assert [n.op for n in tile_batch.split_batches(g, SMALL).nodes] == [WinogradInput()]


@pytest.mark.parametrize(("samples", "nbytes", "part"), [
    (8, 400_000, 2), (8, 100_000_000, 1), (7, 400_000, 1), (6, 110_000, 3), (64, 10**9, 4),
])  # fmt: skip
def test_parts_divide_the_batch_and_are_not_many(samples: int, nbytes: int, part: int) -> None:
    assert tile_batch._part(samples, nbytes, SMALL.facts.cache) == part


def test_layers_that_follow_each_other_are_split_and_others_not() -> None:
    g = ag.Graph("f")
    x = g.input("x", "f32[6,16,60,60]")
    pool = MaxPool((2, 2), (2, 2), (0, 0, 0, 0), (1, 1))
    alone, first = g(Abs(), g(pool, x)), g(pool, x)
    g.output("alone", alone)
    g.output("last", g(pool, g(Abs(), g(pool, g(Abs(), first)))))
    nodes = tile_batch.split_batches(g, SMALL).nodes

    assert Counter(n.op.name for n in nodes)["max_pool"] == 1 + 3 * SAMPLES
    assert alone.producer in nodes
