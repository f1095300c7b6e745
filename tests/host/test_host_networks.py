"""Networks that come and go, workers' cores and memory, and models that are compiled for them."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
import staged_cases
from alpenglow.base import cpus
from alpenglow.base.errors import MemoryLimitError, OptionError
from alpenglow.host import provision
from alpenglow.host.cores import allot
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.softmax import Softmax
from host_toys import HERE, PATIENT, Gate, Toy, chain, workers

pytestmark = pytest.mark.usefixtures("no_cache", "many_cpus")
CPU = ag.Target.parse("cpu")


def product(extent: int | str = 64) -> ag.Graph:
    g = ag.Graph("product")
    w = g.constant(np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 7)
    g.output("y", g(MatMul(), g.input("x", f"f32[{extent},64]"), w))
    return g


def test_a_network_that_is_removed_comes_to_its_end_before() -> None:
    gate = Gate()
    with ag.Host(workers("a")) as host:
        network = host.add(chain(["a"], [gate]))
        exe = weakref.ref(network.steps[0].executables["a"])
        del network
        futures = [host.submit("chain", {"x": k}) for k in range(3)]
        gate.wait()
        remover = threading.Thread(target=host.remove, args=("chain",))
        remover.start()
        while host.networks:
            time.sleep(0.001)
        with pytest.raises(OptionError, match="network is "):
            host.submit("chain", {"x": 3})
        assert not any(f.done() for f in futures)
        gate.opened.set()
        remover.join(PATIENT)

        assert not remover.is_alive()
        assert [f.result(0)["y"] for f in futures] == [0, 1, 2]
        del futures
        gc.collect()
        assert exe() is None and host.statistics().networks == {}


@pytest.mark.parametrize("extent", [8, "N"])
def test_a_model_is_compiled_once_and_run_by_all(
    extent: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []
    compile = provision.compile
    monkeypatch.setattr(
        provision, "compile", lambda *a, **k: compiled.append(a) or compile(*a, **k)
    )
    x = np.ones((8, 64), np.float32)
    with ag.Host([ag.Worker("a", CPU), ag.Worker("b", CPU, 2), ag.Worker("i", HERE)]) as host:
        network = host.add_model("net", product(extent), ["a", "b"])
        host.add_model("all", product(extent), version=3, options=ag.Options(check=False))
        futures = [host.submit("net", {"x": x * k}) for k in range(20)]
        expected = x @ (np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 7)
        for k, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(PATIENT)["y"], k * expected)
        np.testing.assert_array_equal(host.run("all", {"x": x})["y"], expected)

        assert [str(n) for n in host.networks] == ["net:1", "all:3"]
        assert network.steps[0].workers == ("a", "b")
    assert len(compiled) == 3


def test_workers_share_no_cpu_and_have_no_more_threads_than_cpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpus, "granted_cpus", lambda: [3, 4, 5])

    assert allot([ag.Worker("a", CPU, 2), ag.Worker("b", HERE)]) == {"a": (3, 4), "b": (5,)}
    message = r"workers want 4 CPUs \('a' 2, 'b' 2\), but this process may use 3"
    with pytest.raises(OptionError, match=message):
        ag.Host([ag.Worker("a", CPU, 2), ag.Worker("b", CPU, 2)])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux binds threads")
def test_a_worker_keeps_to_its_cores() -> None:
    here = cpus.allowed_cpus()[-1]
    before = os.sched_getaffinity(0)
    with ag.Host(workers("a")) as host:
        host.add(Toy(lambda x: (os.sched_getaffinity(0), threading.current_thread().name)))
        found = host.run("toy", {"x": 0})["y"]

    assert found == ({here}, "alpenglow-a")
    assert os.sched_getaffinity(0) == before


def test_what_wants_more_than_a_worker_has_is_refused() -> None:
    exe = ag.compile(product(), threads=2)
    with ag.Host([ag.Worker("a", CPU), ag.Worker("i", HERE, memory=1000)]) as host:
        with pytest.raises(OptionError, match="wants 2 threads, but worker 'a' has 1"):
            host.add(exe)
        with pytest.raises(
            OptionError, match=r"has code for 'cpu.*expected 'interpreter'.*worker 'i'"
        ):
            host.add(exe, ["i"])
        with pytest.raises(OptionError, match="'i' has 1,000 bytes, and with this network needs"):
            host.add_model("net", product(), ["i"])
        with pytest.raises(OptionError, match="workers is given for a Network"):
            host.add(chain(["a"], [abs]), ["a"])


def test_requests_of_open_extents_count_in_the_memory_of_a_worker() -> None:
    g = ag.Graph("open")
    x = g.input("x", "f32[n,64]")
    y = g(MatMul(), x, g.constant(np.ones((64, 64), np.float32)))
    g.output("y", g(Softmax(1), y))
    exe, weights = ag.compile(g, threads=1), 64 * 64 * 4
    each = 2 * 64 * 4  # of what is read and left, for a row
    staged = ag.compile(staged_cases.CASES["branches"].model(), threads=1)

    with ag.Host([ag.Worker("a", CPU, memory=weights + 20 * each)]) as host:
        host.add(exe)
        feeds = [{"x": np.ones((n, 64), np.float32)} for n in (1, 10, 100)]
        for fed in feeds[:2]:
            assert host.run("open", fed)["y"].shape == fed["x"].shape
        with pytest.raises(MemoryLimitError, match=r"'a' has 26,624 bytes, and with this call"):
            host.run("open", feeds[2])
        assert host.run("open", feeds[0])["y"].shape == (1, 64)
        with pytest.raises(OptionError, match="depends on its data"):
            host.add(staged)
    with (
        ag.Host([ag.Worker("a", CPU, memory=weights - 1)]) as host,
        pytest.raises(OptionError, match="with this network needs 16,384"),
    ):
        host.add(exe)


def test_a_host_is_refused_that_cannot_be() -> None:
    cases: list[tuple[list[ag.Worker], dict[str, Any], str]] = [
        ([], {}, "workers is empty"),
        (workers("a", "a"), {}, "two workers are called 'a'"),
        (workers("a"), {"waiting": 0}, "waiting is 0"),
        (workers("a"), {"window": 1.5}, "window is 1.5"),
    ]
    for some, more, message in cases:
        with pytest.raises(OptionError, match=message):
            ag.Host(some, **more)


@pytest.mark.parametrize("name", ["", "a b", 3, CPU])
def test_a_worker_is_refused_whose_name_is_no_word(name: Any) -> None:
    with pytest.raises(OptionError, match="a worker is called"):
        ag.Worker(name, CPU)
