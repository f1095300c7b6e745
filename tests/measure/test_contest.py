"""Contests between runtimes: processes that answer, stop and go on; ratios by rounds.

Those of the benchmark are served in `bench/`, where each has an environment of its own; here it is
Alpenglow and ONNX Runtime.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from alpenglow.base.errors import UnsupportedError
from alpenglow.measure.contest import Here, Length, Process, TimeRatio, compete, middles
from alpenglow.measure.server import FEW, ONNX_RUNTIME, SLOW, Server, times

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from peers import PEERS, Running
from rivals import RUNTIMES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stops processes by signals")

SHORT = Length(rounds=2, calls=3, seconds=0.0)


@pytest.fixture
def doubling(tmp_path: Path) -> Path:
    """A folder with a model that doubles, and an array for it."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y/z"])],
        "doubling",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y/z", TensorProto.FLOAT, ["n"])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    np.savez(tmp_path / "feeds.npz", x=np.arange(5, dtype=np.float32))
    return tmp_path


@pytest.fixture
def process(doubling: Path) -> Iterator[Running]:
    """Alpenglow in a process of its own, with the model loaded."""
    with Running("alpenglow", 1, {min(_cpus())}) as one:
        one.load(doubling / "m.onnx", doubling / "feeds.npz", doubling / "scratch")
        yield one


def _cpus() -> set[int]:
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("Cpus_allowed_list"))
    first = line.split(":")[1].strip().split(",")[0].split("-")[0]
    return {int(first)}


@pytest.mark.rest
def test_a_process_runs_its_model(process: Running, doubling: Path) -> None:
    (y,) = process.results(doubling / "results.npz")

    assert np.array_equal(y, [0, 2, 4, 6, 8])
    assert len(process.burst(SHORT)) == SHORT.calls
    assert process.ask("memory")["peak"] > 1 << 20


def test_a_process_is_stopped_when_it_is_not_asked(process: Process) -> None:
    pid = process._process.pid
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)  # signals take a moment to arrive
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    assert state == "T"


def test_what_cannot_be_loaded_is_told(doubling: Path) -> None:
    with Process("onnxruntime", 1, _cpus()) as one:
        with pytest.raises(UnsupportedError, match="cannot run this model: NoSuchFile"):
            one.load(doubling / "none.onnx", doubling / "feeds.npz", doubling)
        with pytest.raises(UnsupportedError, match="no model is loaded"):
            one.burst(SHORT)


@pytest.mark.rest
def test_a_process_that_dies_is_told(process: Process) -> None:
    process._process.kill()

    with pytest.raises(UnsupportedError, match="alpenglow ended with exit status -9"):
        process.burst(SHORT)


def test_a_process_that_takes_too_long_is_ended(process: Process) -> None:
    with pytest.raises(UnsupportedError, match="too slow: burst took longer than"):
        process.ask("burst", 0.05, warm=0, calls=1, seconds=60.0)
    process._process.wait(10)


@pytest.mark.rest
def test_alpenglow_tells_the_limit_of_its_kernels(process: Process) -> None:
    assert process.ask("limit")["seconds"] == 0  # nothing is multiplied


def test_everybody_makes_a_burst_in_each_round(process: Process) -> None:
    found = compete({"there": process, "here": Here(lambda: None)}, SHORT)

    assert {name: [len(b) for b in bursts] for name, bursts in found.items()} == {
        "there": [3, 3], "here": [3, 3],
    }  # fmt: skip


def test_a_ratio_is_taken_round_by_round() -> None:
    slow, fast = [2.0, 40.0, 6.0], [1.0, 10.0, 2.0]

    assert TimeRatio.of(slow, fast).median == 3.0
    assert 2.0 <= TimeRatio.of(slow, fast).low <= 3.0 <= TimeRatio.of(slow, fast).high <= 4.0
    assert middles([[1.0, 5.0, 2.0], [3.0]]) == [2.0, 3.0]


def test_bursts_last_as_long_as_wanted() -> None:
    calls: list[int] = []
    found = times(lambda: calls.append(1), 3, 4)

    assert len(found) == 4 and len(calls) == 7
    assert len(times(lambda: None, 0, 1, seconds=0.01)) > 1


@pytest.mark.rest
def test_slow_calls_are_made_fewer_times() -> None:
    calls: list[int] = []
    found = times(lambda: (calls.append(1), time.sleep(SLOW * 1.1)), 3, FEW + 1)

    assert len(found) == FEW and len(calls) == FEW + 1


def test_the_benchmark_serves_onnx_runtime_as_the_package_does(doubling: Path) -> None:
    with Running("onnxruntime", 1, _cpus()) as one:
        one.load(doubling / "m.onnx", doubling / "feeds.npz", doubling / "scratch")
        (y,) = one.results(doubling / "results.npz")
        with pytest.raises(UnsupportedError, match="its kernels are unknown"):
            one.ask("limit")

    assert np.array_equal(y, [0, 2, 4, 6, 8])


def test_an_unknown_request_is_refused() -> None:
    with pytest.raises(ValueError, match="expected to load or burst"):
        Server(ONNX_RUNTIME, 1).answer({"do": "dance"})


def test_every_runtime_can_be_installed_and_says_how_it_is_set() -> None:
    assert RUNTIMES.keys() == {"alpenglow", *PEERS}
    assert all(r.settings and r.package and r.module for r in RUNTIMES.values())
