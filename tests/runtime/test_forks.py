"""Children of forks: they go on, whatever other threads of the parent were about to do."""

from __future__ import annotations

import gc
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
import growing_cases
import open_cases
import staged_cases
from alpenglow.base import locks
from alpenglow.base.errors import SessionError, UnsupportedError
from alpenglow.base.memory import uncollected
from alpenglow.runtime.executables.open_extents import OpenExecutable
from alpenglow.runtime.staged.runner import Runner
from host_toys import chain, workers

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here"),
    pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning"),
    pytest.mark.usefixtures("no_cache"),
]

PATIENCE = 30.0


def same(x: Any) -> Any:
    return x


def in_child(action: Callable[[], None]) -> None:
    """Run an action in the child of a fork; fail if it raises there, or does not end."""
    child = os.fork()
    if not child:
        try:
            action()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


@contextmanager
def meanwhile(work: Callable[[threading.Event, threading.Event], None]) -> Iterator[None]:
    """Let another thread `work` until it is there, and wait there as long as the block takes."""
    there, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=work, args=(there, go))
    thread.start()
    assert there.wait(PATIENCE)
    try:
        yield
    finally:
        go.set()
        thread.join()


def holding(lock: Any) -> Callable[[threading.Event, threading.Event], None]:
    def work(there: threading.Event, go: threading.Event) -> None:
        with lock:
            there.set()
            go.wait(PATIENCE)

    return work


def test_a_child_finds_locks_free_that_others_held() -> None:
    plain, again = locks.new_lock(), locks.new_rlock()

    def use() -> None:
        for lock in (plain, again):
            assert lock.acquire(timeout=1)

    with meanwhile(holding(plain)), meanwhile(holding(again)):
        in_child(use)


@pytest.mark.parametrize("kind", ["open", "staged"])
def test_a_child_compiles_what_another_thread_was_compiling(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of what is compiled as it is called is held as the process forks."""
    if kind == "open":
        g = ag.Graph("open")
        x = g.input("x", "f32[n,4]")
        g.output("y", g(growing_cases.MatMul(), x, g.constant(np.eye(4, dtype=np.float32))))
        exe, feeds = ag.compile(g, threads=1), {"x": np.ones((3, 4), np.float32)}
        assert isinstance(exe, OpenExecutable)
        lock = exe._compiling
    else:
        case = staged_cases.CASES["branches"]
        exe, feeds = ag.compile(case.model(), threads=1), case.calls()[0]
        runner = exe._runner  # type: ignore[attr-defined]
        assert isinstance(runner, Runner)
        lock = runner._lock

    def called() -> None:
        exe.run(feeds)

    with meanwhile(holding(lock)):
        in_child(called)
    called()


def test_a_child_finds_a_session_that_was_in_a_call_lost_and_others_as_they_were() -> None:
    g = ag.Graph("sum")
    x, total = g.input("x", "f32[4]"), g.variable("total", np.zeros(4, np.float32))
    after = g(growing_cases.Add(), total, x)
    g.assign("total", after)
    g.output("y", after)
    exe, one = ag.compile(g, threads=1), np.ones(4, np.float32)
    busy, idle = exe.session(), exe.session()
    busy(one)
    idle(one)

    def used() -> None:
        assert idle(one)[0] == 2
        with pytest.raises(SessionError, match="forked while a call ran"):
            busy(one)
        busy.reset()
        assert busy(one)[0] == 1

    with meanwhile(holding(busy._lock)):
        in_child(used)
    assert busy(one)[0] == idle(one)[0] == 2


@pytest.mark.parametrize("on", ["executable", "host"])
def test_requests_that_a_fork_finds_undone_fail_in_the_child_alone(on: str) -> None:
    g = ag.Graph("net")
    x = g.input("x", "f32[4]")
    g.output("y", g(growing_cases.Add(), x, x))
    exe, feeds = ag.compile(g, threads=1), {"x": np.ones(4, np.float32)}
    begun, go, told = threading.Event(), threading.Event(), threading.Semaphore(0)

    def hold(_: Any) -> dict[str, Any]:
        begun.set()
        go.wait(PATIENCE)
        return {}

    def submitted(host: ag.Host) -> list[Future[Any]]:
        if on == "host":
            host.add(chain(["a"], [same]))
            host.add(chain(["a"], [hold], "held"))
            done = host.submit("chain", {"x": 1})
            done.result(PATIENCE)
            return [done, host.submit("held", {"x": 1}), host.submit("chain", {"x": 2})]
        done = exe.submit(feeds)
        done.result(PATIENCE)
        assert exe.manager is not None
        return [done, exe.manager.submit(hold), exe.submit(feeds)]

    with ag.Host(workers("a")) as host:
        done, *undone = submitted(host)
        assert begun.wait(PATIENCE)
        for future in undone:
            future.add_done_callback(lambda _: told.release())

        def lost() -> None:
            assert not wait([done, *undone], PATIENCE).not_done
            assert done.result(0)
            for future in undone:
                with pytest.raises(UnsupportedError, match="forked before the request was done"):
                    future.result(0)
            assert not told.acquire(blocking=False)
            assert (exe.submit(feeds).result(PATIENCE)["y"] == 2).all()

        with undone[0]._condition, undone[1]._condition:  # as if other threads held them
            in_child(lost)
        go.set()
        assert not wait(undone, PATIENCE).not_done
        assert not any(future.exception(0) for future in undone)
    assert all(told.acquire(timeout=PATIENCE) for _ in undone)


def test_the_collector_of_a_child_rests_for_no_other_thread() -> None:
    def collected() -> None:
        assert gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled()

    with meanwhile(holding(uncollected())):
        in_child(collected)
    collected()


def test_a_child_reads_weights_while_it_runs(tmp_path: Path) -> None:
    g = ag.Graph("streamed")
    x = g.input("x", "f32[2,256]")
    for seed in (1, 2, 3):
        x = g(growing_cases.MatMul(), x, g.constant(open_cases.weights(256, 256, seed=seed)))
    g.output("y", x)
    ag.compile(g, threads=1).save(tmp_path / "m.ago")
    exe, feeds = ag.open(tmp_path / "m.ago", weights="1MB"), np.ones((2, 256), np.float32)
    expected = exe(feeds)

    def called() -> None:
        np.testing.assert_array_equal(exe(feeds), expected)

    with meanwhile(holding(exe._place[0].turn)):  # type: ignore[attr-defined]
        in_child(called)
    called()
