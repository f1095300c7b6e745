"""Streams of calls: who calls at the same time, which calls count, and how times are told."""

from __future__ import annotations

import threading
import time

import pytest

from alpenglow.cli.output import durations
from alpenglow.measure.streams import Streams, Times, measure


def test_percentiles_are_times_of_calls_that_were_made() -> None:
    found = Times([float(s) for s in range(200, 0, -1)], elapsed=50.0)

    assert found.percentiles() == {"p50": 100, "p90": 180, "p99": 198, "best": 1, "worst": 200}
    assert found.rate == 4


@pytest.mark.parametrize("number", [1, 3])
def test_streams_share_the_calls_and_each_warms_up(number: int) -> None:
    calls: list[int] = []
    found = measure(lambda: calls.append(threading.get_ident()), Streams(number, 2, calls=50))

    assert len(found.calls) == 50
    assert len(calls) == 50 + 2 * number
    assert len(set(calls)) == number


def test_streams_call_at_the_same_time() -> None:
    together = threading.Barrier(3)
    found = measure(lambda: together.wait(30), Streams(3, warmup=1, calls=3))

    assert len(found.calls) == 3


def test_elapsed_is_less_than_the_time_of_calls_that_overlap() -> None:
    together = threading.Barrier(2)

    def call() -> None:
        together.wait(30)
        time.sleep(0.02)

    found = measure(call, Streams(2, warmup=0, calls=4))
    assert found.elapsed < sum(found.calls)


@pytest.mark.parametrize("number", [1, 2])
def test_calls_go_on_until_the_time_is_over(number: int) -> None:
    found = measure(lambda: None, Streams(number, 0, calls=1, seconds=0.02))

    assert found.elapsed >= 0.02 and len(found.calls) > 2


@pytest.mark.parametrize("number", [1, 3])
def test_an_error_ends_all_streams(number: int) -> None:
    count, cancelled = threading.Semaphore(5), []

    def call() -> None:
        if not count.acquire(blocking=False):
            raise ValueError("enough")

    # Without an end the streams would go on for an hour.
    with pytest.raises(ValueError, match="enough"):
        measure(call, Streams(number, 1, calls=1, seconds=3600), lambda: cancelled.append(True))
    assert cancelled == [True] * (number > 1)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([8.011e-6, 8.014e-6], ["8.011 µs", "8.014 µs"]),
        ([8.0e-6, 8.0e-6], ["8.00 µs", "8.00 µs"]),
        ([99.9e-6, 0.1e-3, 12.3456], ["99.9 µs", "0.100 ms", "12346 ms"]),
        ([4.3504e-6, 16.09071e-3], ["4.35 µs", "16.1 ms"]),
        ([1.0e-6, 1.0e-6 + 1e-12], ["1.00 µs", "1.00 µs"]),
        ([0.0], ["0.00 µs"]),
    ],
)
def test_times_that_differ_look_different(seconds: list[float], expected: list[str]) -> None:
    assert durations(seconds) == expected
