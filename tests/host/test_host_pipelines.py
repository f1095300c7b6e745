"""Networks cut into steps: what runs at the same time, what waits for whom, and what is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import OptionError
from alpenglow.host.network import Network, Step
from alpenglow.ops.elementwise.arithmetic import Add, Neg
from alpenglow.runtime.executables.executor import Executable
from devices import Chip, on_chip
from host_toys import PATIENT, Gate, Toy, chain, workers

pytestmark = pytest.mark.usefixtures("no_cache", "many_cpus")
X = np.arange(4, dtype=np.float32)


def same(x: Any) -> Any:
    return x


def on(chip: Chip, op: type = Neg, x: str = "x", y: str = "y") -> Executable:
    """Return a network of one operator on a chip."""
    g = ag.Graph(y)
    value = g.input(x, "f32[4]")
    g.output(y, g(op(), *[value] * (2 if op is Add else 1)))
    return on_chip(g, chip, op)


def test_two_steps_of_two_requests_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=PATIENT)
    last = 20

    def first(k: int) -> int:
        if k:
            both.wait()
        return k

    def second(k: int) -> int:
        if k < last:
            both.wait()
        return k

    with ag.Host(workers("a", "b")) as host:
        host.add(chain(["a", "b"], [first, second]))
        futures = [host.submit("chain", {"x": k}) for k in range(last + 1)]

        assert [f.result(PATIENT)["y"] for f in futures] == list(range(last + 1))


@pytest.mark.parametrize("window", [1, 2, 5])
def test_who_is_fast_waits_for_who_is_slow(window: int) -> None:
    lock, gate = threading.Lock(), Gate()
    began, most = [0, 0], [0]

    def counted(step: int) -> Callable[[Any], Any]:
        def work(x: Any) -> Any:
            with lock:
                began[step] += 1
                most[0] = max(most[0], began[0] - began[1])
            return gate(x) if step else x

        return work

    with ag.Host(workers("a", "b"), waiting=200, window=window) as host:
        host.add(chain(["a", "b"], [counted(0), counted(1)]))
        futures = [host.submit("chain", {"x": k}) for k in range(200)]
        gate.wait()
        gate.opened.set()
        assert [f.result(PATIENT)["y"] for f in futures] == list(range(200))

    # One that the second worker has taken may not have begun yet.
    assert most[0] <= window + 1
    assert began == [200, 200]


def test_what_is_further_along_goes_first_among_equals_and_priority_before_all() -> None:
    gate, ran = Gate(), []

    def work(step: str) -> Callable[[str], str]:
        def noted(x: str) -> str:
            ran.append(x + step)
            return x

        return noted

    with ag.Host(workers("a")) as host:
        host.add(chain(["a"], [gate], "gate"))
        host.submit("gate", {"x": 0})
        gate.wait()
        host.add(chain(["a"] * 3, [work("0"), work("1"), work("2")]))
        futures = [host.submit("chain", {"x": x}, priority) for x, priority in (("m", 0), ("n", 0))]
        futures.append(host.submit("chain", {"x": "h"}, 1))
        gate.opened.set()
        for future in futures:
            future.result(PATIENT)

    assert ran == ["h0", "h1", "h2", "m0", "m1", "m2", "n0", "n1", "n2"]


def test_replicas_share_what_waits() -> None:
    together = threading.Barrier(3, timeout=PATIENT)

    def work(x: int) -> int:
        together.wait()
        return x

    with ag.Host(workers("a", "b", "c")) as host:
        host.add(Toy(work), ["a", "b", "c"])
        futures = [host.submit("toy", {"x": k}) for k in range(30)]

        assert [f.result(PATIENT)["y"] for f in futures] == list(range(30))
        assert [w.requests for w in host.statistics().workers.values()] == [10, 10, 10]


def test_values_pass_by_name_and_are_kept_no_longer_than_they_are_read() -> None:
    seen: list[list[str]] = []

    def noted(work: Callable[..., int]) -> Callable[..., int]:
        def run(*values: int) -> int:
            seen.append(sorted(token().values))
            return work(*values)

        return run

    def token() -> Any:
        [token] = host._dispatch.pipelines[0].tokens
        return token

    steps = [
        Step({"a": Toy(noted(lambda x: x + 1), "x", "p")}),
        Step({"b": Toy(noted(lambda p: 2 * p), "p", "q")}),
        Step({"a": Toy(noted(lambda p, z: p * z), ["p", "z"], "r")}),
        Step({"b": Toy(noted(lambda r: -r), "r", "s")}),
    ]
    with ag.Host(workers("a", "b")) as host:
        network = host.add(Network("net", 1, tuple(steps), ("q", "s")))
        results = host.run("net", {"x": 2, "z": 5})

    assert list(network.inputs) == ["x", "z"]
    assert results == {"q": 6, "s": -15}
    assert seen == [["x", "z"], ["p", "z"], ["p", "q", "z"], ["q", "r"]]


def test_values_stay_on_a_device_between_its_steps() -> None:
    chip = Chip()
    steps = (Step({"a": on(chip, Neg, "x", "p")}), Step({"a": on(chip, Add, "p", "y")}))
    with ag.Host(workers("a")) as host:
        host.add(Network("net", 1, steps))
        chip.copied.clear()
        for k in range(3):
            np.testing.assert_array_equal(host.run("net", {"x": k * X})["y"], -2 * k * X)

    assert chip.copied == [("up", 16), ("down", 16)] * 3


def test_values_go_by_the_host_to_another_device_and_back() -> None:
    chips = Chip(), Chip()
    steps = (
        Step({"a": on(chips[0], Neg, "x", "p")}),
        Step({"b": on(chips[1], Add, "p", "q")}),
        Step({"c": Toy(lambda q: q + 1, "q", "r")}),
        Step({"a": on(chips[0], Neg, "r", "y")}),
    )
    steps[2].inputs["q"] = steps[2].outputs["r"] = ag.TensorType("f32", (4,))
    with ag.Host(workers("a", "b", "c")) as host:
        host.add(Network("net", 1, steps, ("p", "y")))
        futures = [host.submit("net", {"x": k * X}) for k in range(20)]
        for k, future in enumerate(futures):
            results = future.result(PATIENT)
            np.testing.assert_array_equal(results["p"], -k * X)
            np.testing.assert_array_equal(results["y"], 2 * k * X - 1)


def test_the_inputs_of_one_request_are_copied_before_the_results_of_another() -> None:
    chip, gate = Chip(), Gate()
    with ag.Host(workers("a")) as host:
        host.add(chain(["a"], [gate], "gate"))
        host.submit("gate", {"x": 0})
        gate.wait()
        host.add(on(chip))
        chip.copied.clear()
        futures = [host.submit("y", {"x": k * X}) for k in range(4)]
        gate.opened.set()
        for k, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(PATIENT)["y"], -k * X)

    assert [way for way, _ in chip.copied] == [
        "up",
        "up",
        "down",
        "up",
        "down",
        "up",
        "down",
        "down",
    ]


def test_a_request_is_cancelled_between_steps() -> None:
    gate, second = Gate(), Gate()
    with ag.Host(workers("a", "b")) as host:
        host.add(chain(["a", "b"], [same, second]))
        host.add(chain(["b"], [gate], "gate"))
        host.submit("gate", {"x": 0})
        gate.wait()
        futures = [host.submit("chain", {"x": k}) for k in range(2)]
        last = host.submit("chain", {"x": 2})
        while not host._dispatch.pipelines[0].waiting[1]:
            time.sleep(0.001)
        assert futures[0].cancel() and futures[1].cancel()
        gate.opened.set()
        second.opened.set()

        assert last.result(PATIENT) == {"y": 2}
        assert all(f.cancelled() for f in futures)


def test_a_network_is_refused_where_values_do_not_meet() -> None:
    one, two = Step({"a": Toy(same, "x", "p")}), Step({"a": Toy(same, "p", "y")})
    long = Toy(same, "p", "y")
    long.inputs["p"] = ag.TensorType("f32", (2,))
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: Step({}), "no executables"),
        (
            lambda: Step({"a": Toy(same), "b": Toy(same, "z")}),
            "z -> y on worker .*b.* expected .*a",
        ),
        (lambda: Network("n", 1, ()), "no steps"),
        (lambda: Network("", 1, (one,)), "expected a name"),
        (lambda: Network("n", "1", (one,)), "expected a number"),  # type: ignore[arg-type]
        (lambda: Network("n", 1, (one, one)), "computed by two steps"),
        (lambda: Network("n", 1, (two, one)), "fed and computed"),
        (lambda: Network("n", 1, (one,), ("z",)), "outputs names .*z"),
        (lambda: Network("n", 1, (one, Step({"a": long}))), "value .*p.* is read as"),
    ]
    for make, message in cases:
        with pytest.raises(OptionError, match=message):
            make()
    assert Network("n", 1, (one, two)).outputs == ("y",)
