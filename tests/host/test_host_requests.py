"""Requests to a host: order, deadlines, ends, mistakes, and what is said of them."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError, wait
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import (
    BusyError,
    FeedError,
    OptionError,
    TimeLimitError,
    UnsupportedError,
)
from alpenglow.host.network import Network
from alpenglow.ops.elementwise.arithmetic import Neg
from host_toys import HERE, PATIENT, Gate, Toy, chain, workers

pytestmark = pytest.mark.usefixtures("no_cache", "many_cpus")


def same(x: Any) -> Any:
    return x


@pytest.fixture
def host() -> Iterator[ag.Host]:
    with ag.Host(workers("a"), waiting=10_001) as host:
        yield host


@pytest.fixture
def gate(host: ag.Host) -> Iterator[Gate]:
    """The only worker is busy until it opens."""
    gate = Gate()
    host.add(chain(["a"], [gate], "gate"))
    host.submit("gate", {"x": 0})
    gate.wait()
    yield gate
    gate.opened.set()


def test_a_host_runs_what_it_is_given(host: ag.Host) -> None:
    host.add(chain(["a"], [lambda x: x + 1]))

    assert host.run("chain", {"x": 1}) == {"y": 2}
    assert host.submit("chain", {"x": 2}).result(PATIENT) == {"y": 3}
    assert repr(host) == "Host(host; chain:1 on a)"


def test_an_executable_is_a_network_of_one_step(host: ag.Host) -> None:
    g = ag.Graph("negated")
    g.output("y", g(Neg(), g.input("x", "f32[4]")))
    network = host.add(ag.compile(g, HERE, threads=1))
    x = np.ones(4, np.float32)

    np.testing.assert_array_equal(host.run("negated", {"x": x})["y"], -x)
    assert network.steps[0].workers == ("a",)
    with pytest.raises(FeedError, match="shape"):
        host.run("negated", {"x": x[1:]})
    np.testing.assert_array_equal(host.run("negated", {"x": x})["y"], -x)


def test_of_two_versions_the_newest_is_run_unless_one_is_named(host: ag.Host) -> None:
    for version in (2, 10):
        network = chain(["a"], [lambda x, version=version: version])
        host.add(Network("n", version, network.steps))

    assert host.run("n", {"x": 0}) == {"y": 10}
    assert host.run("n", {"x": 0}, version=2) == {"y": 2}
    host.remove("n", 10)
    assert host.run("n", {"x": 0}) == {"y": 2}


def test_a_manager_takes_the_highest_priority_first_and_equals_as_they_came(
    host: ag.Host, gate: Gate
) -> None:
    taken: list[tuple[int, int, int]] = []
    futures: list[Any] = []
    host.add(chain(["a"], [taken.append]))

    def submit(thread: int) -> None:
        draw = random.Random(thread)
        for number in range(313 if thread < 16 else 312):
            key = draw.randrange(4), thread, number
            futures.append(host.submit("chain", {"x": key}, key[0]))

    threads = [threading.Thread(target=submit, args=(k,)) for k in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gate.opened.set()
    assert not wait(futures, PATIENT).not_done

    assert len(taken) == 10_000
    assert [p for p, _, _ in taken] == sorted((p for p, _, _ in taken), reverse=True)
    for thread in range(32):
        numbers = [(-p, n) for p, t, n in taken if t == thread]
        assert numbers == sorted(numbers)


def test_what_is_late_fails_as_such_and_never_runs(host: ag.Host, gate: Gate) -> None:
    ran: list[int] = []
    host.add(chain(["a"], [ran.append]))
    late = [
        host.submit("chain", {"x": k}, deadline=time.monotonic() + 0.2, priority=k % 4)
        for k in range(200)
    ]
    others = [host.submit("chain", {"x": -k}) for k in range(200)]
    errors = [future.exception(PATIENT) for future in late]
    gate.opened.set()

    assert [type(error) for error in errors] == [TimeLimitError] * 200
    assert not wait(others, PATIENT).not_done
    assert sorted(ran) == sorted(-k for k in range(200))


def test_who_comes_when_the_queue_is_full_is_told_so() -> None:
    gate = Gate()
    with ag.Host(workers("a"), waiting=2) as host:
        host.add(chain(["a"], [gate]))
        host.submit("chain", {"x": 0})
        gate.wait()
        waiting = [host.submit("chain", {"x": k}) for k in range(2)]
        with pytest.raises(BusyError, match="2 requests wait"):
            host.submit("chain", {"x": 2})
        assert host.statistics().waiting == 2
        assert waiting[0].cancel()
        last = host.submit("chain", {"x": 3})
        gate.opened.set()

        assert [f.result(PATIENT) for f in (waiting[1], last)] == [{"y": 1}, {"y": 3}]


def test_requests_are_cancelled_before_they_run_and_meanwhile_and_not_after(
    host: ag.Host, gate: Gate
) -> None:
    inner = Gate()
    host.add(chain(["a"], [same]))
    host.add(chain(["a"], [inner], "long"))
    done = host.submit("chain", {"x": 1})
    during, before = host.submit("long", {"x": 2}), host.submit("long", {"x": 3})
    assert before.cancel() and before.done()
    gate.opened.set()
    assert done.result(PATIENT) == {"y": 1}
    inner.wait()

    assert not done.cancel()
    assert during.running() and during.cancel() and not during.done()
    inner.opened.set()
    for future in (during, before):
        with pytest.raises(CancelledError):
            future.result(PATIENT)
    assert host.run("chain", {"x": 4}) == {"y": 4}


def test_a_task_awaits_a_request(host: ag.Host) -> None:
    host.add(chain(["a"], [same]))

    async def main() -> Any:
        return await asyncio.wrap_future(host.submit("chain", {"x": 5}))

    assert asyncio.run(main()) == {"y": 5}


def test_mistakes_are_told_at_once(host: ag.Host) -> None:
    host.add(chain(["a"], [same]))
    with pytest.raises(OptionError, match=r"network is .*other.*, expected one of chain:1"):
        host.submit("other", {"x": 0})
    with pytest.raises(OptionError, match=r"network is .*chain:3.*, expected one of chain:1"):
        host.submit("chain", {"x": 0}, version=3)
    with pytest.raises(FeedError, match="lack x"):
        host.submit("chain", {"z": 0})
    with pytest.raises(TimeLimitError, match="had passed"):
        host.submit("chain", {"x": 0}, deadline=time.monotonic())
    with pytest.raises(OptionError, match=r"worker is .*b.*, expected one of a"):
        host.add(Toy(same), ["b"])
    with pytest.raises(OptionError, match="network is "):
        host.remove("other")
    with pytest.raises(OptionError, match="already"):
        host.add(chain(["a"], [same]))


def test_what_a_step_raises_is_its_request_s() -> None:
    def divide(x: int) -> float:
        return 1 / x

    def lack(x: int) -> float:
        raise MemoryError("requests after close")

    with ag.Host(workers("a")) as host:
        host.add(chain(["a"], [divide]))
        host.add(chain(["a"], [lack], "lack"))
        with pytest.raises(ZeroDivisionError):
            host.run("chain", {"x": 0})
        with pytest.raises(MemoryError):
            host.run("lack", {"x": 0})
        assert host.run("chain", {"x": 2}) == {"y": 0.5}

        found = host.statistics().workers["a"]
        assert (found.requests, found.failures, found.lost) == (3, 2, "")


def test_statistics_count_what_was_run(host: ag.Host) -> None:
    host.add(chain(["a"], [same]))
    for k in range(10):
        host.run("chain", {"x": k})
    found = host.statistics()
    times = found.networks["chain", 1]

    assert found.workers["a"].requests == times.queue.count == times.run.count == 10
    assert 0 < times.run.p50 <= times.run.p99
    assert times.queue.mean > 0 and 0 < found.workers["a"].busy <= 1


def test_a_host_that_is_closed_has_done_what_it_was_asked() -> None:
    with ag.Host(workers("a", "b")) as host:
        host.add(chain(["a", "b"], [same, same]))
        futures = [host.submit("chain", {"x": k}) for k in range(50)]
    host.close()

    assert [f.result(0)["y"] for f in futures] == list(range(50))
    assert not any(t.is_alive() for t in host._threads)
    for use in (lambda: host.submit("chain", {"x": 0}), lambda: host.add(Toy(same))):
        with pytest.raises(UnsupportedError, match="closed"):
            use()


def test_a_host_that_is_left_by_an_error_ends_what_waits() -> None:
    gate = Gate()
    with pytest.raises(KeyError), ag.Host(workers("a")) as host:
        host.add(chain(["a"], [gate]))
        futures = [host.submit("chain", {"x": k}) for k in range(3)]
        gate.wait()
        futures[1].add_done_callback(lambda _: gate.opened.set())
        raise KeyError

    assert all(f.cancelled() for f in futures)


def test_a_host_that_is_forgotten_does_what_it_was_asked_and_is_gone() -> None:
    gate = Gate()
    host = ag.Host(workers("a", "b"))
    host.add(chain(["a", "b"], [gate, same]))
    futures = [host.submit("chain", {"x": k}) for k in range(3)]
    threads, reference = host._threads, weakref.ref(host)
    del host
    gc.collect()
    gate.opened.set()

    assert [f.result(PATIENT)["y"] for f in futures] == [0, 1, 2]
    assert reference() is None
    for thread in threads:
        thread.join(PATIENT)
        assert not thread.is_alive()


def test_what_a_future_calls_may_remove_and_close() -> None:
    closed = threading.Event()
    host = ag.Host(workers("a"))
    host.add(chain(["a"], [same]))

    def end(_: Any) -> None:
        host.remove("chain")
        host.close()
        closed.set()

    host.submit("chain", {"x": 0}).add_done_callback(end)

    assert closed.wait(PATIENT)
