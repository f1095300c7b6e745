"""Calls that tasks await."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import (
    CancelledError,
    FeedError,
    OptionError,
    TimeLimitError,
    UnsupportedError,
)
from alpenglow.ops.elementwise.arithmetic import Neg
from staged_cases import CASES
from test_calls import MODELS, PATIENT, X

FOREIGN = "x86-64" if ag.Target.parse("cpu").architecture == "aarch64" else "aarch64"

pytestmark = pytest.mark.usefixtures("no_cache")


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy, which would validate passes, needs memory, and minutes."""
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")


def negated(target: str = "cpu") -> ag.Executable:
    g = ag.Graph("negated")
    g.output("y", g(Neg(), g.input("x", "f32[4]")))
    return ag.compile(g, target, threads=1)


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_tasks_have_their_results(target: str) -> None:
    exe = negated(target)
    y = np.zeros(4, np.float32)

    async def main() -> None:
        many = await asyncio.gather(*(exe.arun({"x": k * X}) for k in range(20)))
        for k, found in enumerate(many):
            np.testing.assert_array_equal(-k * X, found["y"])
        found = await exe.arun({"x": X}, y, timeout=PATIENT, outputs=["y"])
        assert found["y"] is y
        np.testing.assert_array_equal(-X, y)

    asyncio.run(main())


def test_staged_models_are_awaited() -> None:
    case = CASES["nonzero"]
    exe, feeds = ag.compile(case.model()), case.calls()[0]

    assert list(asyncio.run(exe.arun(feeds))) == list(exe.run(feeds))


@pytest.mark.parametrize("model", MODELS)
def test_a_cancelled_task_ends_its_call(model: str) -> None:
    exe = ag.compile(MODELS[model](), threads=1)

    async def main() -> float:
        task = asyncio.ensure_future(exe.arun({"x": X}))
        while not exe._running and not task.done():
            await asyncio.sleep(0.01)
        begin = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - begin

    assert asyncio.run(main()) < PATIENT
    assert not exe._running


def test_the_event_loop_goes_on_and_times_are_kept() -> None:
    exe = ag.compile(MODELS["sum"](), threads=1)

    async def main() -> int:
        turns = 0
        task = asyncio.ensure_future(exe.arun({"x": X}, timeout=0.5))
        while not task.done():
            await asyncio.sleep(0.01)
            turns += 1
        with pytest.raises(TimeLimitError):
            await task
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(exe.arun({"x": X}), 0.2)
        return turns

    assert asyncio.run(main()) > 5


def test_cancel_ends_what_is_awaited() -> None:
    exe = ag.compile(MODELS["sum"](), threads=1)

    async def main() -> None:
        task = asyncio.ensure_future(exe.arun({"x": X}))
        while not exe._running and not task.done():
            await asyncio.sleep(0.01)
        exe.cancel()
        with pytest.raises(CancelledError):
            await task

    asyncio.run(main())


def test_a_call_that_waits_for_a_thread_is_cancelled_before_it_runs() -> None:
    exe = negated()
    entered: list[int] = []
    exe.run_some = lambda *given: entered.append(1)  # type: ignore[method-assign, assignment]

    async def main() -> None:
        from_pool = [asyncio.to_thread(time.sleep, 0.3) for _ in range(64)]
        busy = asyncio.gather(*from_pool)
        await asyncio.sleep(0.05)
        task = asyncio.ensure_future(exe.arun({"x": X}))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await busy

    asyncio.run(main())

    assert entered == []


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda exe: exe.arun({"z": X}), FeedError),
        (lambda exe: exe.arun({"x": X}, outputs=["z"]), FeedError),
        (lambda exe: exe.arun({"x": X}, timeout=-1), OptionError),
        (lambda _: negated(FOREIGN).arun({"x": X}), UnsupportedError),
    ],
)
def test_mistakes_are_raised_where_it_is_awaited(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        asyncio.run(call(negated()))


def test_the_package_lists_what_it_offers_and_imports_no_asyncio() -> None:
    source = """
import sys, alpenglow as ag
assert "asyncio" not in sys.modules
names = {n for n in dir(ag) if not n.startswith("__")}
assert names == {n for n in ag.__all__ if not n.startswith("__")}, names
assert {"Profile", "quantize"} <= names and "__version__" in dir(ag)
"""
    path = ":".join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": path, "ALPENGLOW_CACHE": "off"}
    subprocess.run([sys.executable, "-c", source], check=True, env=environment)
