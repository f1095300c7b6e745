"""Workers that fail: nothing is lost, nothing hangs, and who is told what."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import wait
from typing import Any

import numpy as np
import pytest
from test_host_pipelines import X, on, same

import alpenglow as ag
from alpenglow.base.errors import DeviceError
from alpenglow.host.network import Network, Step
from alpenglow.ops.elementwise.arithmetic import Add, Neg
from devices import Chip
from host_toys import PATIENT, Gate, Toy, chain, workers

pytestmark = pytest.mark.usefixtures("no_cache", "many_cpus")


class Broken:
    """A work that fails after so many calls."""

    def __init__(self, after: int, error: type[BaseException] = DeviceError) -> None:
        self.left, self.error = after, error

    def __call__(self, x: Any) -> Any:
        if not self.left:
            raise self.error("it is gone")
        self.left -= 1
        return x


@pytest.mark.parametrize("error", [DeviceError, SystemExit])
def test_what_a_lost_worker_ran_is_run_by_another(error: type[BaseException]) -> None:
    answers: Counter[Any] = Counter()
    with ag.Host(workers("a", "b"), waiting=2000) as host:
        host.add(Network("net", 1, (Step({"a": Toy(Broken(50, error)), "b": Toy(same)}),)))

        def ask(thread: int) -> None:
            futures = [host.submit("net", {"x": (thread, k)}) for k in range(125)]
            answers.update(f.result(PATIENT)["y"] for f in futures)

        threads = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Which worker takes how many is not told; together they keep both at work until one fails.
        while not host.statistics().workers["a"].lost:
            futures = [host.submit("net", {"x": 0}) for _ in range(200)]
            assert not wait(futures, PATIENT).not_done
        assert host.run("net", {"x": 1}) == {"y": 1}
        found = host.statistics().workers

    assert answers == {(thread, k): 1 for thread in range(8) for k in range(125)}
    assert (found["a"].lost, found["b"].lost) == ("it is gone", "")
    assert found["a"].failures == 1


def test_where_no_other_holds_the_step_requests_fail_with_the_reason() -> None:
    gate = Gate()

    def fail(x: Any) -> Any:
        gate(x)
        raise DeviceError("the cable is loose")

    with ag.Host(workers("a", "b")) as host:
        host.add(chain(["a"], [fail]))
        host.add(chain(["b"], [same], "other"))
        futures = [host.submit("chain", {"x": k}) for k in range(10)]
        gate.wait()
        gate.opened.set()
        for future in futures:
            with pytest.raises(DeviceError, match=r"step 0 of .*chain:1.*'a': the cable is loose"):
                future.result(PATIENT)
        with pytest.raises(DeviceError, match="the cable is loose"):
            host.submit("chain", {"x": 0})
        assert host.run("other", {"x": 1}) == {"y": 1}


def test_requests_that_wait_for_a_step_before_the_lost_one_fail_too() -> None:
    gate = Gate()
    with ag.Host(workers("a", "b", "c")) as host:
        host.add(chain(["a", "b", "c"], [same, Broken(0), same]))
        host.add(chain(["a"], [gate], "gate"))
        host.submit("gate", {"x": 0})
        gate.wait()
        futures = [host.submit("chain", {"x": k}) for k in range(20)]
        gate.opened.set()
        errors = [future.exception(PATIENT) for future in futures]

    assert {type(error) for error in errors} == {DeviceError}


def test_when_all_workers_are_lost_all_is_told() -> None:
    with ag.Host(workers("a", "b", "c")) as host:
        host.add(Toy(Broken(0)), ["a", "b", "c"])
        with pytest.raises(DeviceError, match="'a': it is gone; 'b': it is gone; 'c': it is gone"):
            host.run("toy", {"x": 0})


def test_a_request_that_is_cancelled_as_its_worker_is_lost_is_cancelled() -> None:
    gate = Gate()

    def fail(x: Any) -> Any:
        gate(x)
        raise DeviceError("gone")

    with ag.Host(workers("a", "b")) as host:
        host.add(Network("net", 1, (Step({"a": Toy(fail), "b": Toy(fail)}),)))
        future = host.submit("net", {"x": 0})
        gate.wait()
        assert future.cancel()
        gate.opened.set()

    assert future.cancelled()


def test_a_device_that_fails_while_it_computes_is_lost_with_what_it_had_begun() -> None:
    chip, gate = Chip(), Gate()
    wait = chip.wait

    def fails(event: Any) -> None:
        if threading.current_thread().name == "alpenglow-a" and gate.opened.is_set():
            raise DeviceError("lost in mid-run")
        wait(event)

    with ag.Host(workers("a", "b")) as host:
        host.add(chain(["a"], [gate], "gate"))
        host.submit("gate", {"x": 0})
        gate.wait()
        blocker = Gate()
        host.add(chain(["b"], [blocker], "blocker"))
        host.submit("blocker", {"x": 0})
        blocker.wait()
        host.add(Network("net", 1, (Step({"a": on(chip), "b": on(Chip())}),)))
        chip.wait = fails  # type: ignore[method-assign]
        futures = [host.submit("net", {"x": k * X}) for k in range(4)]
        gate.opened.set()
        while not host.statistics().workers["a"].lost:
            time.sleep(0.001)
        blocker.opened.set()
        for k, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(PATIENT)["y"], -k * X)


def test_what_was_computed_on_a_lost_device_is_computed_anew() -> None:
    chip, gate = Chip(), Gate()
    first, broken = on(chip, Neg, "x", "p"), on(chip, Add, "p", "y")
    begin, began = first.begin, []

    def noted(*given: Any) -> Any:
        began.append(1)
        return begin(*given)

    def fail(*given: Any) -> Any:
        raise DeviceError("gone")

    first.begin, broken.begin = noted, fail  # type: ignore[method-assign]
    second = {"c": broken, "b": on(chip, Add, "p", "y")}
    with ag.Host(workers("a", "b", "c")) as host:
        host.add(chain(["b"], [gate], "gate"))
        host.submit("gate", {"x": 0})
        gate.wait()
        host.add(Network("net", 1, (Step({"a": first}), Step(second))))
        future = host.submit("net", {"x": X})
        while not host.statistics().workers["c"].lost:
            time.sleep(0.001)
        gate.opened.set()
        np.testing.assert_array_equal(future.result(PATIENT)["y"], -2 * X)

    assert len(began) == 2
