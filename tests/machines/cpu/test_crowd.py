"""A team whose threads are late becomes smaller, and grows once nobody else wants the CPUs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from alpenglow.machines.cpu import crowd
from alpenglow.machines.cpu.crowd import FIRST_PAUSE, LONGEST_PAUSE, TWICE, Crowd


class Machine:
    """A clock, two CPUs, and how many threads want to run."""

    def __init__(self, running: int | None) -> None:
        self.now, self.running = 100.0, running
        self.crowd = Crowd(lambda: self.now, lambda: self.running, cpus=2)

    def shrink(self, workers: int) -> None:
        self.crowd.saw_late(workers, 2)

    def fits(self, threads: int, after: float) -> int:
        """Return how many of so many threads run when this is asked every 10 ms for so long."""
        for _ in range(round(after / 0.01)):
            self.now += 0.01
            found = self.crowd.fit(threads)
        return found


def test_without_trouble_as_many_run_as_are_asked_for() -> None:
    assert [Crowd().fit(n) for n in (1, 2, 64)] == [1, 2, 64]


def test_one_accident_changes_nothing_and_two_in_a_row_do() -> None:
    machine = Machine(running=5)
    machine.crowd.saw_late(4, 1)
    assert machine.crowd.fit(4) == 4
    machine.now += TWICE * 2
    machine.crowd.saw_late(4, 1)
    assert machine.crowd.fit(4) == 4
    machine.now += TWICE / 2
    machine.crowd.saw_late(4, 1)

    assert [machine.crowd.fit(n) for n in (1, 2, 4)] == [1, 2, 3]


def test_it_shrinks_to_one_and_not_below() -> None:
    machine = Machine(running=5)
    for workers in (3, 2, 1, 1):
        machine.shrink(workers)

    assert machine.crowd.fit(8) == 1


def test_the_log_tells_how_many_threads_there_are(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "alpenglow")
    machine = Machine(running=3)
    machine.shrink(2)
    machine.running = 1
    machine.fits(2, FIRST_PAUSE * 2)

    assert [r.getMessage() for r in caplog.records] == [
        "other processes use the CPUs: calls use 1 of 2 threads",
        "calls use 2 threads again, as a trial",
    ]


def test_it_grows_as_soon_as_there_is_a_cpu_free() -> None:
    machine = Machine(running=3)
    machine.shrink(2)
    machine.running = 2  # the caller and somebody else: its helper sleeps
    assert machine.fits(2, FIRST_PAUSE * 4) == 1
    machine.running = 1

    assert machine.fits(2, FIRST_PAUSE * 2) == 2
    assert not machine.crowd.workers


@pytest.mark.parametrize("known", [True, False])
def test_attempts_that_fail_become_rare(known: bool) -> None:
    """Somebody else runs whenever there are two of ours, or the system says nothing of that."""
    machine, attempts = Machine(3 if known else None), 0
    machine.shrink(2)
    for _ in range(6000):
        machine.now += 0.01
        machine.running = 1 if known else None
        if machine.crowd.fit(2) == 2:
            attempts += 1
            machine.running = 3 if known else None
            machine.shrink(2)

    assert 60 / LONGEST_PAUSE <= attempts < 60 / LONGEST_PAUSE + 10


def test_where_all_cpus_seem_taken_it_is_tried_once_in_a_while() -> None:
    machine = Machine(running=60)  # on a host that has many CPUs, of which two are for us
    machine.shrink(2)

    assert machine.fits(2, LONGEST_PAUSE - 0.1) == 1
    assert machine.fits(2, 0.2) == 2


def test_it_does_not_shrink_where_nobody_else_runs() -> None:
    machine = Machine(running=2)
    for _ in range(3):
        machine.shrink(2)

    assert machine.crowd.fit(2) == 2


@pytest.mark.parametrize("text", ["", "0.1 0.2 0.3 x/y 1", "0.1 0.2"])
def test_a_load_that_cannot_be_read_is_not_known(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "LOAD", tmp_path / "loadavg")
    assert crowd._running() is None
    (tmp_path / "loadavg").write_text(text)
    assert crowd._running() is None


def test_the_load_tells_how_many_threads_want_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "LOAD", tmp_path / "loadavg")
    (tmp_path / "loadavg").write_text("0.10 0.20 0.30 2/81 16662\n")

    assert crowd._running() == 2
