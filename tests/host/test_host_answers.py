"""What a host answers that servers act on: classes of errors, relative times, numbers as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import ClosedError, OptionError, TimeLimitError, UnknownNetworkError
from alpenglow.measure import others
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.runtime.executables.executor import PUBLIC
from host_toys import Gate, chain, workers

pytestmark = pytest.mark.usefixtures("no_cache", "many_cpus")


def test_an_unknown_network_and_a_closed_host_are_two_errors() -> None:
    with ag.Host(workers("a")) as host:
        for ask in (lambda: host.run("nope", {}), lambda: host.remove("nope")):
            with pytest.raises(UnknownNetworkError, match="network is nope, expected one of"):
                ask()
    for ask in (lambda: host.run("nope", {}), lambda: host.remove("nope"),
                lambda: host.add(chain(["a"], [lambda x: x]))):  # fmt: skip
        with pytest.raises(ClosedError, match="the host is closed"):
            ask()


def test_a_timeout_is_a_deadline_from_now() -> None:
    with ag.Host(workers("a")) as host:
        gate = Gate()
        host.add(chain(["a"], [gate], "gate"))
        host.add(chain(["a"], [lambda x: x + 1]))
        first = host.submit("gate", {"x": 0})
        gate.wait()
        late = host.submit("chain", {"x": 1}, timeout=0.01)
        with pytest.raises(TimeLimitError):
            late.result(10)
        gate.opened.set()
        first.result(10)
        assert host.run("chain", {"x": 1}, timeout=60) == {"y": 2}
        with pytest.raises(OptionError, match="deadline and timeout are both given"):
            host.submit("chain", {"x": 1}, deadline=time.monotonic() + 1, timeout=1)
        with pytest.raises(OptionError, match="timeout is 0"):
            host.submit("chain", {"x": 1}, timeout=0)


def relu() -> ag.Executable:
    g = ag.Graph("g")
    g.output("y", g(Relu(), g.input("x", "f32[2]")))
    return ag.compile(g, threads=1)


def test_an_executable_takes_a_timeout() -> None:
    feeds = {"x": np.ones(2, np.float32)}
    exe = relu()
    assert exe.submit(feeds, timeout=60).result(60)["y"].tolist() == [1, 1]
    with pytest.raises(OptionError, match="deadline and timeout are both given"):
        exe.submit(feeds, deadline=time.monotonic() + 1, timeout=1)


def test_statistics_are_json() -> None:
    with ag.Host(workers("a")) as host:
        host.add(chain(["a"], [lambda x: x + 1]))
        host.run("chain", {"x": 1})
        seen = json.loads(json.dumps(host.statistics().as_dict()))
    assert seen["networks"]["chain:1"]["run"]["count"] == 1
    assert seen["workers"]["a"]["requests"] == 1
    assert seen["waiting"] == 0


def test_dir_lists_what_callers_need() -> None:
    exe = relu()
    listed = {name for name in dir(exe) if not name.startswith("_")}
    assert listed == PUBLIC
    assert all(hasattr(exe, name) for name in listed)


def test_a_busy_machine_is_told(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu 100 0 100 5000 0 0 0 0 0 0\n")
    seen = others.Others(stat)
    assert others.warning(seen.cpus()) == ""
    stat.write_text("cpu 9000000 0 100 5000 0 0 0 0 0 0\n")
    assert "during the measurement" in others.warning(seen.cpus())
    assert others.Others(tmp_path / "none").cpus() is None
