"""Calls of Executables on OpenCL devices: memory, threads, sessions, archives."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import FeedError
from alpenglow.machines.opencl.device import device_of
from alpenglow.machines.opencl.devices import find
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.in_range import InRange

pytestmark = pytest.mark.opencl

WAYS, RUNTIMES = ("opencl-cpu", "opencl-gpu"), ("intel", "pocl")
TARGETS = [f"{way}:{runtime}" for way in WAYS for runtime in RUNTIMES]


def network() -> ag.Graph:
    g = ag.Graph("network")
    weights = np.random.default_rng(0).integers(-3, 4, (16, 8)).astype(np.float32)
    product = g(MatMul(), g.input("x", "f32[4,16]"), g.constant(weights))
    g.output("y", product)
    g.output("shares", g(Softmax(axis=1), product))
    return g


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 9, (4, 16)).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
def test_ten_thousand_calls_leave_memory_as_it_was(target: str) -> None:
    device = device_of(find(target.partition(":")[2]))
    exe = ag.compile(network(), target)
    x = drawn(0)
    expected = exe.run({"x": x})["y"]
    exe.run({"x": x})  # inputs have memory by turns
    before = device.in_use_nbytes
    for _ in range(10_000):
        exe.run({"x": x})
    after = device.in_use_nbytes
    for _ in range(100):
        results = exe.run({"x": x}, device=True)
    np.testing.assert_array_equal(results["y"].numpy(), expected)
    del results
    gc.collect()

    assert after == before
    assert device.in_use_nbytes == before


@pytest.mark.parametrize("target", TARGETS)
def test_calls_from_several_threads_do_not_mix(target: str) -> None:
    exe, reference = ag.compile(network(), target), ag.compile(network(), "interpreter")
    wrong: list[int] = []

    def call(seed: int) -> None:
        x = drawn(seed)
        expected = reference.run({"x": x})["y"]
        wrong.extend(seed for _ in range(50) if (exe.run({"x": x})["y"] != expected).any())

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

    assert not wrong


@pytest.mark.parametrize("target", TARGETS)
def test_an_archive_opens_and_runs(target: str, tmp_path: Path) -> None:
    exe = ag.compile(network(), target)
    exe.save(tmp_path / "network.ago")
    opened = ag.open(tmp_path / "network.ago")

    for name, array in exe.run({"x": drawn(1)}).items():
        np.testing.assert_array_equal(opened.run({"x": drawn(1)})[name], array)


@pytest.mark.parametrize("target", TARGETS)
def test_a_session_keeps_its_variables(target: str) -> None:
    g = ag.Graph("sum")
    total = g.variable("total", np.zeros((2, 3), np.float32))
    new = g(Add(), total, g.input("x", "f32[2,3]"))
    g.assign("total", new)
    g.output("y", new)
    session = ag.compile(g, target).session()
    results = [session.run({"x": np.full((2, 3), i, np.float32)})["y"] for i in range(4)]

    assert [y[0, 0] for y in results] == [0, 1, 3, 6]


@pytest.mark.parametrize("target", TARGETS)
def test_open_extents_are_compiled_once(target: str) -> None:
    g = ag.Graph("open")
    g.output("y", g(Softmax(axis=1), g.input("x", "f32[N,16]")))
    exe, reference = ag.compile(g, target), ag.compile(g, "interpreter")
    for rows in (5, 11, 23):
        x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
        np.testing.assert_allclose(exe.run({"x": x})["y"], reference.run({"x": x})["y"], 1e-5)

    assert len(exe.artifacts) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_an_index_out_of_range_is_told(target: str) -> None:
    g = ag.Graph("rows")
    table = g.constant(np.arange(12, dtype=np.float32).reshape(4, 3))
    g.output("y", g(Gather(0), table, g(InRange(0, 3), g.input("i", "i64[2]"))))
    exe = ag.compile(g, target)
    with pytest.raises(FeedError, match="7"):
        exe.run({"i": np.array([1, 7])})

    np.testing.assert_array_equal(exe.run({"i": np.array([3, 0])})["y"], [[9, 10, 11], [0, 1, 2]])
