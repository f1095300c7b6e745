"""Requests: their order, their deadlines, their ends, and what is left of them."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base import errors
from alpenglow.base.errors import BusyError, FeedError, OptionError, TimeLimitError
from alpenglow.ops.elementwise.arithmetic import Neg
from alpenglow.runtime.call.calls import Call
from alpenglow.runtime.call.requests import Manager
from test_calls import MODELS, PATIENT, X

pytestmark = pytest.mark.usefixtures("no_cache")


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy, which would validate passes of long models, needs minutes."""
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")


class Gate:
    """Work that begins, and goes on when it is let."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self, call: Call) -> dict[str, Any]:
        self.begun.set()
        assert self.open.wait(PATIENT)
        call.check()
        return {"gate": self}


@pytest.fixture
def manager() -> Iterator[Manager]:
    manager = Manager("toy", 10_001)
    yield manager
    manager.close()


@pytest.fixture
def gate(manager: Manager) -> Iterator[Gate]:
    """The manager is busy until it opens."""
    gate = Gate()
    manager.submit(gate)
    assert gate.begun.wait(PATIENT)
    yield gate
    gate.open.set()


def negated(threads: int = 1) -> ag.Executable:
    g = ag.Graph("negated")
    g.output("y", g(Neg(), g.input("x", "f32[4]")))
    return ag.compile(g, threads=threads)


def in_threads(count: int, work: Any) -> None:
    threads = [threading.Thread(target=work, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENT)
        assert not thread.is_alive()


def test_the_highest_priority_runs_first_and_equals_in_the_order_in_which_they_came(
    manager: Manager, gate: Gate
) -> None:
    taken: list[tuple[int, int, int]] = []
    futures: list[Future[Any]] = []

    def record(key: tuple[int, int, int], call: Call) -> dict[str, Any]:
        taken.append(key)
        return {}

    def submit(thread: int) -> None:
        draw = random.Random(thread)
        for number in range(313 if thread < 16 else 312):
            key = draw.randrange(4), thread, number
            futures.append(manager.submit(partial(record, key), key[0]))

    in_threads(32, submit)
    gate.open.set()
    done, late = wait(futures, PATIENT)
    of_each = Counter((priority, thread) for priority, thread, _ in taken)

    assert (len(taken), len(done), len(late)) == (10_000, 10_000, 0)
    assert [p for p, _, _ in taken] == sorted((p for p, _, _ in taken), reverse=True)
    for key in of_each:
        numbers = [n for *k, n in taken if tuple(k) == key]
        assert numbers == sorted(numbers)


def test_all_that_threads_submit_is_answered_with_what_is_its_own() -> None:
    exe = negated()
    answers: Counter[bool] = Counter()

    def submit(thread: int) -> None:
        futures = [
            (k, exe.submit({"x": np.full(4, k, np.float32)}, priority=k % 4))
            for k in range(100 * thread, 100 * thread + 100)
        ]
        for k, future in futures:
            answers[bool((future.result(PATIENT)["y"] == -k).all())] += 1

    in_threads(8, submit)

    assert answers == {True: 800}


def test_what_is_late_fails_as_such_and_never_runs(manager: Manager, gate: Gate) -> None:
    ran: list[int] = []
    late, others = [], []
    for k in range(200):
        deadline = time.monotonic() + 0.05 + 0.0001 * k
        late.append(manager.submit(lambda _: ran.append(1) or {}, k % 4, deadline))
        others.append(manager.submit(lambda _: {}, k % 4, time.monotonic() + PATIENT))
    errors_ = [future.exception(PATIENT) for future in late]  # while the gate is closed
    gate.open.set()

    assert [type(e) for e in errors_] == [TimeLimitError] * 200
    assert "waited" in str(errors_[0])
    assert [future.result(PATIENT) for future in others] == [{}] * 200
    assert ran == []


def test_a_call_that_runs_is_ended_at_its_deadline() -> None:
    exe = ag.compile(MODELS["sum"](), threads=1)
    future = exe.submit({"x": X}, deadline=time.monotonic() + 0.2)

    with pytest.raises(TimeLimitError, match="while the request ran"):
        future.result(PATIENT)


def test_what_waits_is_cancelled_at_once_and_makes_room(manager: Manager, gate: Gate) -> None:
    ran: list[int] = []
    futures = [manager.submit(lambda _: ran.append(1) or {}) for _ in range(1000)]

    assert all(f.cancel() for f in futures)
    assert all(f.cancelled() and f.done() and f.cancel() for f in futures)
    assert wait(futures, PATIENT).not_done == set()
    assert len(manager._waiting) == 0 and len(manager._waiting._heap) < 100
    gate.open.set()
    assert manager.submit(lambda _: {"y": 1}).result(PATIENT) == {"y": 1}
    assert ran == []


@pytest.mark.parametrize("model", ["sum", "loop"])
def test_cancelling_ends_the_call(model: str) -> None:
    exe = ag.compile(MODELS[model](), threads=1)
    future = exe.submit({"x": X})
    while not exe.running and not future.done():
        time.sleep(0.001)

    assert future.running()
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(PATIENT)
    assert future.cancelled() and not future.running()


def test_what_was_cancelled_is_so_even_if_its_code_got_to_the_end(manager: Manager) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work(call: Call) -> dict[str, Any]:
        begun.set()
        assert go_on.wait(PATIENT)
        return {}

    future = manager.submit(work)
    assert begun.wait(PATIENT)
    assert future.cancel() and not future.done()
    go_on.set()

    with pytest.raises(CancelledError):
        future.result(PATIENT)


def test_what_is_over_is_not_cancelled() -> None:
    future = negated().submit({"x": X})
    future.result(PATIENT)

    assert not future.cancel() and not future.cancelled()


def test_cancel_of_the_executable_ends_what_runs_and_not_what_waits() -> None:
    exe = ag.compile(MODELS["sum"](), threads=1)
    first, second = exe.submit({"x": X}), exe.submit({"x": X})
    while not exe.running:
        time.sleep(0.001)
    exe.cancel()
    with pytest.raises(errors.CancelledError):
        first.result(PATIENT)

    assert not second.done()
    assert second.cancel()


def test_who_comes_when_the_queue_is_full_is_told_so() -> None:
    manager, gate = Manager("toy", 2), Gate()
    manager.submit(gate)
    assert gate.begun.wait(PATIENT)
    waiting = [manager.submit(lambda _: {}) for _ in range(2)]

    with pytest.raises(BusyError, match="2 requests wait") as caught:
        manager.submit(lambda _: {})
    assert "submit again" in str(caught.value)
    waiting[0].cancel()
    manager.submit(lambda _: {})
    gate.open.set()
    assert waiting[1].result(PATIENT) == {}
    manager.close()


def test_mistakes_are_told_at_once_or_by_the_future() -> None:
    exe = negated()
    with pytest.raises(FeedError, match="lack x"):
        exe.submit({"z": X})
    with pytest.raises(FeedError, match="outputs names z"):
        exe.submit({"x": X}, outputs=["z"])
    with pytest.raises(OptionError, match="priority is 'high'"):
        exe.submit({"x": X}, priority="high")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="deadline is 'soon'"):
        exe.submit({"x": X}, deadline="soon")  # type: ignore[arg-type]
    with pytest.raises(TimeLimitError, match="had passed when the request came"):
        exe.submit({"x": X}, deadline=time.monotonic() - 1)
    for far in (time.time() + 1, float("inf"), float("nan")):
        with pytest.raises(OptionError, match=r"expected a time of time.monotonic\(\), which is"):
            exe.submit({"x": X}, deadline=far)

    with pytest.raises(FeedError, match="shape"):
        exe.submit({"x": np.ones(3, np.float32)}).result(PATIENT)
    assert list(exe.submit({"x": X}, outputs=["y"]).result(PATIENT)) == ["y"]


def test_who_waits_for_the_first_request_runs_it_while_nothing_else_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Manager, "_begin", lambda manager: None)  # its thread never comes first
    manager, ran = Manager("toy", 2), []

    def note(name: str, call: Call) -> dict[str, Any]:
        ran.append((name, threading.get_ident()))
        return {}

    first, second = (manager.submit(partial(note, name)) for name in ("first", "second"))
    manager.run_here(second)
    with manager._turn:
        manager.run_here(first)
    assert ran == []
    assert (first.result(), second.result()) == ({}, {})

    assert ran == [(name, threading.get_ident()) for name in ("first", "second")]


def test_a_task_awaits_a_request() -> None:
    exe = negated()

    async def main() -> Any:
        return await asyncio.wrap_future(exe.submit({"x": X}))

    np.testing.assert_array_equal(-X, asyncio.run(main())["y"])


def test_neither_an_executable_nor_arrays_are_kept_by_what_has_run() -> None:
    exe = negated()
    x = np.ones(4, np.float32)
    future = exe.submit({"x": x})
    future.result(PATIENT)
    assert exe.manager is not None
    manager, thread = exe.manager, exe.manager._thread
    assert thread is not None
    references = weakref.ref(exe), weakref.ref(x)
    manager.submit(lambda _: {}).result(PATIENT)
    del exe, x
    gc.collect()
    thread.join(PATIENT)

    assert [r() for r in references] == [None, None]
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_has_a_manager_of_its_own_and_an_end_waits_for_nobody() -> None:
    source = """
import os, threading, time
import numpy as np
from test_requests import negated, X
exe = negated()
exe.submit({"x": X}).result()
child = os.fork()
if not child:
    future = exe.submit({"x": X}, deadline=time.monotonic() + 30)
    os._exit(0 if (future.result(30)["y"] == -X).all() else 1)
assert os.waitpid(child, 0)[1] == 0
begun = threading.Event()
exe.manager.submit(lambda call: begun.set() or threading.Event().wait())
assert begun.wait(30)
"""
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", source], check=True, env=environment, timeout=60)


def test_who_submits_nothing_pays_for_nothing() -> None:
    source = """
import sys
from test_api_async import negated, X
negated().run({"x": X})
late = {"alpenglow.runtime.call.requests", "alpenglow.runtime.call.deadlines"}
assert not late & set(sys.modules)
"""
    path = os.pathsep.join(p for p in sys.path if p)
    subprocess.run([sys.executable, "-c", source], check=True, timeout=60,
                   env={**os.environ, "PYTHONPATH": path})  # fmt: skip
