"""A limit on the memory of a call: met, or refused with the least that is possible."""

from __future__ import annotations

import re

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.sizes import parse_nbytes
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir.target import Target
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.product.contraction import Conv
from alpenglow.program import Program

CPU = Target.parse("cpu")


def convolutions() -> ag.Graph:
    """Return a graph of two convolutions."""
    g = ag.Graph("convolutions")
    rng = np.random.default_rng(1)
    x = g.input("x", "f32[1,4,16,16]")
    for _ in range(2):
        w = g.constant(rng.standard_normal((4, 4, 3, 3)).astype(np.float32))
        x = g(Relu(), g(Conv(pads=(1, 1, 1, 1)), x, w))
    g.output("y", x)
    return g


def program(g: ag.Graph, options: ag.Options) -> Program:
    """Return the planned program of a graph."""
    *_, (_, planned) = run_stages(g.copy(), CPU, options)
    assert isinstance(planned, Program)
    return planned


@pytest.mark.parametrize(
    ("size", "nbytes"),
    [(1, 1), (200_000, 200_000), ("200000", 200_000), ("200KB", 200_000), ("200 kB", 200_000),
     ("192KiB", 196_608), ("1.5MB", 1_500_000), ("0.5GiB", 1 << 29), ("7B", 7), ("1mib", 1 << 20)],
)  # fmt: skip
def test_sizes_are_numbers_and_texts(size: int | str, nbytes: int) -> None:
    assert parse_nbytes(size, "memory") == nbytes


@pytest.mark.parametrize(
    "size",
    [0, -1, "0", "-5", "0KB", "", "KB", "1e6", "200TB", "1.2B", True, 2.5, "nan", [1], "٣KB",
     "2KB KB", "0x10"],
)  # fmt: skip
def test_what_is_no_size_is_refused(size: object) -> None:
    with pytest.raises(ag.errors.OptionError, match="expected a whole number of bytes above 0"):
        ag.Options(memory=size)  # type: ignore[arg-type]


def test_a_limit_that_is_met_changes_nothing() -> None:
    g = convolutions()
    free = program(g, ag.Options())

    limited = program(g, ag.Options(memory=free.arena))

    assert limited.arena <= free.arena


def test_a_limit_too_low_is_refused_with_the_least_which_is_met() -> None:
    g = convolutions()

    with pytest.raises(ag.errors.MemoryLimitError, match="has alive: %") as caught:
        ag.compile(g, memory=64)
    least = int(re.findall(r"a limit of (\d+) or more", str(caught.value))[0])

    assert program(g, ag.Options(memory=least)).arena == least
    with pytest.raises(ag.errors.MemoryLimitError, match=f"needs at least {least:,} "):
        ag.compile(g, memory=least - 1)


def test_open_extents_and_devices_refuse_a_limit() -> None:
    g = ag.Graph("open")
    g.output("y", g(Relu(), g.input("x", "f32[n,3]")))

    with pytest.raises(ag.errors.UnsupportedError, match="dimensions are dynamic"):
        ag.compile(g, memory="1MB")
    with pytest.raises(ag.errors.UnsupportedError, match="the driver of the device allocates more"):
        list(run_stages(convolutions(), Target.parse("opencl-gpu"), ag.Options(memory="1MB")))
