"""Calls that end before they are done: by a time, by `cancel`, by a signal."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import alpenglow as ag
from alpenglow.base.cpus import default_threads
from alpenglow.base.errors import CancelledError, OptionError, TimeLimitError
from alpenglow.ops.elementwise.arithmetic import Neg
from alpenglow.runtime.call import calls

Array = NDArray[Any]
X = np.ones(4, np.float32)

PATIENT = 30.0
"""Seconds: what does not end is found, and no busy machine is taken for it."""


def long_model(kind: str) -> onnx.ModelProto:
    """Return a model of a few hundred bytes that needs no memory, and minutes."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    size = {"sum": [2**36], "rows": [2**12, 2**24], "expand": [2**34, 4]}[kind]
    s = helper.make_tensor("s", TensorProto.INT64, [len(size)], size)
    one = helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [0 if kind == "expand" else -1])
    if kind == "expand":
        nodes = [helper.make_node("Expand", ["x", "s"], ["big"])]
    else:
        nodes = [helper.make_node("ConstantOfShape", ["s"], ["ones"], value=one),
                 helper.make_node("Gather", ["x", "zero"], ["first"]),
                 helper.make_node("Add", ["ones", "first"], ["big"])]  # fmt: skip
    nodes.append(helper.make_node("ReduceSum", ["big", "axes"], ["y"], keepdims=0))
    zero = helper.make_tensor("zero", TensorProto.INT64, [], [0])
    g = helper.make_graph(nodes, "long", [x], [y], [s, axes, zero])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def looping_model() -> onnx.ModelProto:
    """Return a loop of 2^60 turns; what one carries on decides nothing, but nobody knows."""
    f = TensorProto.FLOAT
    body = helper.make_graph(
        [helper.make_node("Sin", ["a"], ["b"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("c", TensorProto.BOOL, []),
         helper.make_tensor_value_info("a", f, [4])],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []),
         helper.make_tensor_value_info("b", f, [4])],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)]
    g = helper.make_graph(
        nodes, "looping",
        [helper.make_tensor_value_info("x", f, [4])], [helper.make_tensor_value_info("y", f, [4])],
        [helper.make_tensor("n", TensorProto.INT64, [], [2**60])],
    )  # fmt: skip
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy, which would validate passes, does need the memory, and the minutes."""
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "sum": lambda: long_model("sum"),
    "rows": lambda: long_model("rows"),
    "expand": lambda: long_model("expand"),
    "loop": looping_model,
}


@contextmanager
def later(action: Callable[[], object], seconds: float = 0.2) -> Iterator[None]:
    """Do something meanwhile."""
    timer = threading.Timer(seconds, action)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.sampled(4)
def test_a_call_ends_when_its_time_is_up(model: str, threads: int) -> None:
    exe = ag.compile(MODELS[model](), threads=threads)
    begin = time.monotonic()
    for _ in range(2):
        with pytest.raises(TimeLimitError, match="longer than its timeout"):
            exe.run({"x": X}, timeout=0.2)

    assert 0.4 <= time.monotonic() - begin < PATIENT


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.sampled(4)
def test_a_call_is_cancelled_from_another_thread(model: str, threads: int) -> None:
    exe = ag.compile(MODELS[model](), threads=threads)
    begin = time.monotonic()
    with later(exe.cancel), pytest.raises(CancelledError):
        exe.run({"x": X}, timeout=PATIENT)

    assert time.monotonic() - begin < PATIENT


def test_all_calls_that_run_are_cancelled_and_later_ones_are_not() -> None:
    exe = ag.compile(MODELS["sum"](), threads=1)
    ended: list[str] = []

    def call() -> None:
        try:
            exe(X)
        except CancelledError:
            ended.append("cancelled")

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    while len(exe._running) < 3:
        time.sleep(0.01)
    exe.cancel()
    for caller in callers:
        caller.join()
    with pytest.raises(TimeLimitError):
        exe.run({"x": X}, timeout=0.1)

    assert ended == ["cancelled"] * 3


@pytest.mark.skipif(os.name == "nt", reason="signals go to processes otherwise")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.sampled(4)
def test_an_interrupt_ends_compiled_code(model: str, threads: int) -> None:
    exe = ag.compile(MODELS[model](), threads=threads)
    at: list[float] = []

    def interrupt() -> None:
        at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    with later(interrupt), pytest.raises(KeyboardInterrupt):
        exe(X)
    took = time.monotonic() - at[0]

    assert took < 1.0


@pytest.mark.skipif(os.name == "nt", reason="signals go to processes otherwise")
def test_what_a_signal_s_handler_raises_ends_compiled_code() -> None:
    exe = ag.compile(MODELS["sum"](), threads=1)

    def refuse(*_: object) -> None:
        raise LookupError("a signal has come")

    before = signal.signal(signal.SIGUSR1, refuse)
    try:
        with later(partial(os.kill, os.getpid(), signal.SIGUSR1)), pytest.raises(LookupError):
            exe(X)
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert not exe._running


@pytest.mark.skipif(os.name == "nt", reason="signals go to processes otherwise")
@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.sampled(0, "2")
def test_the_command_line_is_interrupted(tmp_path: Path, threads: str) -> None:
    path = tmp_path / "sum.onnx"
    onnx.save(MODELS["sum"](), path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    source = """
import sys
from alpenglow.cli import main
from alpenglow.runtime.call import calls
def told(*given, original=calls.run_apart):
    print("running", file=sys.stderr, flush=True)
    original(*given)
calls.run_apart = told
main()
"""
    command = [sys.executable, "-c", source, "run", str(path), "--threads", threads]
    timed = subprocess.run(
        [*command, "--timeout", "0.1"], env=environment, capture_output=True, text=True, timeout=120
    )
    running = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    while running.stderr.readline() not in ("running\n", ""):
        continue
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=PATIENT)

    assert (timed.returncode, running.returncode) == (2, 130)
    assert "longer than its timeout" in timed.stderr and "interrupted" in told


@pytest.mark.parametrize("timeout", [0, -1.0, math.inf, math.nan, "1", True])
def test_a_timeout_is_a_time(timeout: Any) -> None:
    exe = negated()
    with pytest.raises(OptionError, match="timeout is"):
        exe.run({"x": X}, timeout=timeout)


def test_a_call_that_ends_in_time_has_its_result(threads: int = 2) -> None:
    exe = negated(threads)
    out = np.empty(4, np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(exe.run({"x": X}, timeout=PATIENT)["y"], -X)
        exe.run({"x": X}, out={"y": out}, timeout=PATIENT)
        exe.cancel()
        np.testing.assert_array_equal(exe(X), -X)

    np.testing.assert_array_equal(out, -X)


def test_short_calls_run_in_their_caller_after_the_first() -> None:
    exe = negated()
    exe(X)
    before = calls._Runner.idle[:]
    calls._Runner.idle.clear()
    try:
        exe(X)
        exe.run({"x": X})

        assert calls._Runner.idle == []
        exe.run({"x": X}, timeout=1)
        assert len(calls._Runner.idle) == 1
    finally:
        calls._Runner.idle[:] = before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_has_threads_of_its_own() -> None:
    exe = negated()
    exe.run({"x": X}, timeout=PATIENT)
    child = os.fork()
    if child == 0:
        right = (exe.run({"x": X}, timeout=PATIENT)["y"] == -X).all()
        os._exit(0 if right else 1)
    _, status = os.waitpid(child, 0)

    assert status == 0


def test_where_no_thread_can_be_started_the_caller_runs_the_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(calls._Runner, "idle", [])
    monkeypatch.setattr(threading.Thread, "start", refuse)

    np.testing.assert_array_equal(negated(1)(X), -X)


def test_an_error_of_the_code_is_raised_where_it_is_waited_for() -> None:
    def fail() -> None:
        raise LookupError("here")

    with pytest.raises(LookupError, match="here"):
        calls.run_apart(fail, calls.StopWord())


def negated(threads: int | None = None) -> ag.Executable:
    g = ag.Graph("negated")
    g.output("y", g(Neg(), g.input("x", "f32[4]")))
    return ag.compile(g, threads=threads or default_threads())
