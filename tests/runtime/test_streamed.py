"""Weights that are read from the archive as a call goes on: the same bits, in less memory."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import (
    CancelledError,
    MemoryLimitError,
    OptionError,
    UnsupportedError,
)
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.gather import Gather
from alpenglow.runtime.executables.installed import Streamed
from alpenglow.runtime.memory.streamed import StreamedLayout
from command import alpenglow

SIDE = 192
WEIGHT = SIDE * SIDE * 4


def layers(count: int = 7) -> ag.Graph:
    """Return products by weights of their own, but that the third is the first's again; a table of
    rows comes before, and small weights are added in between."""
    rng = np.random.default_rng(0)
    g = ag.Graph("layers")
    rows = g.constant(rng.standard_normal((400, SIDE), np.float32))
    x = g(Gather(0), rows, g.input("i", "i64[9]"))
    weights = [g.constant(rng.standard_normal((SIDE, SIDE), np.float32) / 14) for _ in range(count)]
    for k in range(count):
        x = g(MatMul(), x, weights[0 if k == 2 else k])
        x = g(Relu(), g(Add(), x, g.constant(rng.standard_normal((9, SIDE), np.float32))))
    g.output("y", x)
    return g


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("archive") / "layers.ago"
    ag.compile(layers()).save(to)
    return to


def feeds(seed: int = 0) -> dict[str, Array]:
    return {"i": np.random.default_rng(seed).integers(0, 400, 9)}


def layout(exe: ag.Executable) -> StreamedLayout:
    assert isinstance(exe, Streamed)
    found = exe.layout({})
    assert isinstance(found, StreamedLayout)
    return found


@pytest.mark.parametrize("weights", [2 * WEIGHT, 3 * WEIGHT, 5 * WEIGHT, 100 * WEIGHT])
@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_those_of_weights_in_memory(path: Path, weights: int, threads: int) -> None:
    exe = ag.open(path, threads, weights=weights)
    whole = ag.open(path, threads)

    assert layout(exe)._ahead._memory.nbytes <= weights
    for seed in range(3):
        np.testing.assert_array_equal(exe.run(feeds(seed))["y"], whole.run(feeds(seed))["y"])


def test_calls_from_many_threads_take_turns(path: Path) -> None:
    exe, whole = ag.open(path, 1, weights=2 * WEIGHT), ag.open(path, 1)
    results: dict[int, Array] = {}

    def run(seed: int) -> None:
        results[seed] = exe.run(feeds(seed))["y"]

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

    for seed, y in results.items():
        np.testing.assert_array_equal(y, whole.run(feeds(seed))["y"])
    assert len(results) == 6


def test_a_call_that_is_ended_does_not_disturb_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe, whole = ag.open(path, 1, weights=2 * WEIGHT), ag.open(path, 1)
    enter = StreamedLayout.enter

    def ended(self: StreamedLayout, span: int) -> None:
        enter(self, span)
        exe.cancel()

    with monkeypatch.context() as patch:
        patch.setattr(StreamedLayout, "enter", ended)
        with pytest.raises(CancelledError):
            exe.run(feeds())

    np.testing.assert_array_equal(exe.run(feeds())["y"], whole.run(feeds())["y"])


def test_too_little_memory_says_what_is_the_least(path: Path) -> None:
    with pytest.raises(MemoryLimitError, match=f"{2 * WEIGHT:,} are the least"):
        ag.open(path, weights=2 * WEIGHT - 1)


def test_what_cannot_be_streamed_is_told(path: Path, tmp_path: Path) -> None:
    g = ag.Graph("open")
    g.output("y", g(Relu(), g.input("x", "f32[n]")))
    to = tmp_path / "open.ago"
    ag.compile(g).save(to)

    with pytest.raises(UnsupportedError, match="dynamic dimensions"):
        ag.open(to, weights="1MB")
    with pytest.raises(OptionError, match="weights is '0'"):
        ag.open(path, weights="0")
    with pytest.raises(OptionError, match="mmap is False"):
        ag.open(path, weights="1MB", mmap=False)
    with pytest.raises(OptionError, match="the archive is bytes"):
        ag.open(path.read_bytes(), weights="1MB")
    with pytest.raises(UnsupportedError, match="not supported"):
        ag.open(path, weights="1MB").timings(feeds())


def test_the_command_line_runs_an_archive_so(path: Path) -> None:
    assert "y" in alpenglow(f"run {path} --weights {2 * WEIGHT}").stdout
    refused = alpenglow(f"run {path} --weights {WEIGHT}", 2)

    assert f"--weights {2 * WEIGHT}" in refused.stderr
