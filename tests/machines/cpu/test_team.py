"""The walker and the team: every part runs once, in order, on any number of threads."""

import ctypes
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from alpenglow.base.cpus import default_threads
from alpenglow.ir.target import Target
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.machines.cpu.crowd import Crowd
from alpenglow.machines.cpu.jit import Code
from alpenglow.machines.cpu.team import Team, _teams, own_team

# out[i] = 3 * in[n - 1 - i] + 1: each entry reads what other threads wrote in the one before.
MIRROR = """
define void @mirror(ptr %args, i64 %begin, i64 %end) nounwind {
entry:
  %in = load ptr, ptr %args
  %out.at = getelementptr ptr, ptr %args, i64 1
  %out = load ptr, ptr %out.at
  %n.at = getelementptr i64, ptr %args, i64 2
  %n = load i64, ptr %n.at
  br label %each
each:
  %i = phi i64 [%begin, %entry], [%i.next, %each]
  %j.after = sub i64 %n, %i
  %j = sub i64 %j.after, 1
  %from = getelementptr i64, ptr %in, i64 %j
  %x = load i64, ptr %from
  %x3 = mul i64 %x, 3
  %y = add i64 %x3, 1
  %to = getelementptr i64, ptr %out, i64 %i
  store i64 %y, ptr %to
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %end
  br i1 %more, label %each, label %done
done:
  ret void
}

define void @grow(ptr %args, i64 %begin, i64 %end) nounwind {
entry:
  %at = load ptr, ptr %args
  %x = load i64, ptr %at
  %part = sub i64 %end, %begin
  %y = add i64 %x, %part
  store i64 %y, ptr %at
  ret void
}
"""

# Counts to a number in memory, but for the first part of its loop: that takes no time.
LINGER = """
define void @linger(ptr %args, i64 %begin, i64 %end) nounwind {
entry:
  %at = load ptr, ptr %args
  %first = icmp eq i64 %begin, 0
  br i1 %first, label %done, label %each
each:
  %i = phi i64 [0, %entry], [%i.next, %each]
  %i.next = add i64 %i, 1
  %limit = load volatile i64, ptr %at
  %more = icmp slt i64 %i.next, %limit
  br i1 %more, label %each, label %done
done:
  ret void
}
"""

HOST = Target.parse("cpu")
CODE = Code.install([assemble(MIRROR + LINGER, HOST)], ["mirror", "grow", "linger"])


class Table:
    """Entries that pass a row of numbers to and fro; with a serial entry after every third."""

    def __init__(self, steps: int, extent: int) -> None:
        self.steps, self.extent = steps, extent
        self.rows = [(ctypes.c_int64 * extent)() for _ in range(2)]
        self.serial = ctypes.c_int64()
        here, there = (ctypes.addressof(row) for row in self.rows)
        self.args = [
            (ctypes.c_int64 * 3)(here, there, extent),
            (ctypes.c_int64 * 3)(there, here, extent),
            (ctypes.c_int64 * 1)(ctypes.addressof(self.serial)),
        ]
        mirror, grow = CODE.address("mirror"), CODE.address("grow")
        fields: list[int] = []
        for step in range(steps):
            fields += [mirror, ctypes.addressof(self.args[step % 2]), extent]
            if step % 3 == 0:
                fields += [grow, ctypes.addressof(self.args[2]), 1] * 2
        self.count = len(fields) // 3
        self.entries = (ctypes.c_int64 * len(fields))(*fields)
        self.address = ctypes.addressof(self.entries)

    def start(self) -> None:
        self.rows[0][:] = list(range(self.extent))
        self.serial.value = 0

    def is_right(self) -> bool:
        row = list(range(self.extent))
        for _ in range(self.steps):
            row = [3 * x + 1 for x in reversed(row)]
        wrapped = [(x + 2**63) % 2**64 - 2**63 for x in row]
        serial = 2 * len(range(0, self.steps, 3))
        return list(self.rows[self.steps % 2]) == wrapped and self.serial.value == serial


@pytest.fixture
def team() -> Iterator[Team]:
    team = Team()
    yield team
    team.stop()


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("extent", [2, 3, 64, 1000])
def test_every_part_runs_once_and_in_order(team: Team, threads: int, extent: int) -> None:
    table = Table(steps=7, extent=extent)
    table.start()
    team.run(table.address, table.count, threads)

    assert table.is_right()


def test_an_empty_table_and_an_empty_extent_run_nothing(team: Team) -> None:
    table = Table(steps=3, extent=4)
    table.start()
    table.entries[2::3] = [0] * table.count
    for threads in (1, 2):
        team.run(table.address, 0, threads)
        team.run(table.address, table.count, threads)

    assert list(table.rows[1]) == [0, 0, 0, 0] and table.serial.value == 0


def test_two_threads_are_right_twenty_thousand_times(team: Team) -> None:
    table = Table(steps=4, extent=6)
    wrong = 0
    for _ in range(20_000):
        table.start()
        team.run(table.address, table.count, 2)
        wrong += table.rows[0][0] != 81 * 0 + 40 or table.serial.value != 4

    assert wrong == 0 and table.is_right()


def test_helpers_that_sleep_are_woken(team: Team) -> None:
    """Between the runs the caller is idle for a span near the helpers' patience, on either side."""
    table = Table(steps=2, extent=6)
    idle = threading.Event()
    wrong = 0
    for turn in range(2_000):
        table.start()
        team.run(table.address, table.count, 2 + turn % 2)
        wrong += not table.is_right()
        idle.wait((turn % 20) * 1e-5)

    assert wrong == 0


def test_a_team_that_waits_long_becomes_smaller(team: Team) -> None:
    """Of so many entries a helper does some; for a single one it may be late in every run."""
    limit = ctypes.c_int64(1_000_000)  # half a millisecond
    args = (ctypes.c_int64 * 1)(ctypes.addressof(limit))
    entries = [CODE.address("linger"), ctypes.addressof(args), 2] * 16
    table = (ctypes.c_int64 * len(entries))(*entries)
    team.crowd = Crowd(running=lambda: None)
    until = time.monotonic() + 60
    while not team.crowd.workers and time.monotonic() < until:
        team.run(ctypes.addressof(table), 16, 2)

    assert team.crowd.workers == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a thread where it is")
def test_helpers_on_the_caller_s_cpu_are_moved(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    here = min(before)
    moves: list[set[int]] = []
    table = Table(steps=4, extent=6)
    table.start()
    os.sched_setaffinity(0, {here})  # helpers inherit it
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "sched_getaffinity", lambda thread: {here, here + 1})
            patch.setattr(os, "sched_setaffinity", lambda thread, cpus: moves.append(cpus))
            until = time.monotonic() + 60
            while not moves and time.monotonic() < until:
                team.run(table.address, table.count, 2)
                time.sleep(1e-4)  # here the helper sees that there was nothing left for it
    finally:
        os.sched_setaffinity(0, before)

    assert moves[:2] == [{here + 1}, {here, here + 1}]


def test_tables_may_be_gone_as_soon_as_they_have_run(team: Team) -> None:
    """A helper that comes late finds a hole in memory where the table of the job was."""
    table = Table(steps=4, extent=6)
    wrong = 0
    for turn in range(2_000):
        table.start()
        place = mmap.mmap(-1, mmap.PAGESIZE)
        place[: ctypes.sizeof(table.entries)] = bytes(table.entries)
        view = ctypes.c_char.from_buffer(place)
        team.run(ctypes.addressof(view), table.count, 2 + turn % 4)
        del view
        place.close()
        wrong += not table.is_right()

    assert wrong == 0


def test_callers_at_the_same_time_do_not_wait_for_each_other(team: Team) -> None:
    tables = [Table(steps=5, extent=50) for _ in range(3)]
    wrong = []

    def call(table: Table) -> None:
        for _ in range(1_000):
            table.start()
            team.run(table.address, table.count, 2)
            if not table.is_right():
                wrong.append(table)

    callers = [threading.Thread(target=call, args=(table,)) for table in tables]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert wrong == []


def test_a_stopped_team_starts_anew(team: Team) -> None:
    table = Table(steps=3, extent=10)
    before = threading.active_count()
    for _ in range(3):
        table.start()
        team.run(table.address, table.count, 3)
        team.stop()

    assert table.is_right() and threading.active_count() == before


def test_a_run_in_a_forked_child_has_a_team_of_its_own(team: Team) -> None:
    if not hasattr(os, "fork"):
        return
    table = Table(steps=5, extent=40)
    team.run(table.address, table.count, 2)
    child = os.fork()
    if child == 0:
        table.start()
        team.run(table.address, table.count, 2)
        os._exit(0 if table.is_right() else 1)
    _, status = os.waitpid(child, 0)
    table.start()
    team.run(table.address, table.count, 2)

    assert status == 0 and table.is_right()


@pytest.mark.parametrize("way", ["at rest", "running"])
def test_the_interpreter_ends_while_there_is_a_team(way: str) -> None:
    source = "import sys, threading\nfrom alpenglow.machines.cpu.team import Team\n"
    source += "def call():\n  while True: Team.shared().run(0, 0, 2)\n"
    source += "Team.shared().run(0, 0, 2)\n"
    source += "if sys.argv[1] == 'running': threading.Thread(target=call, daemon=True).start()\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", source, way]

    assert subprocess.run(command, env=environment, timeout=60, check=True).returncode == 0


def test_a_team_of_a_thread_s_own_runs_where_that_thread_may(team: Team) -> None:
    cpu = min(os.sched_getaffinity(0))
    seen: list[object] = []

    def serve() -> None:
        os.sched_setaffinity(0, {cpu})
        with own_team(2):
            table = Table(steps=7, extent=64)
            table.start()
            team.run(table.address, table.count, 5)
            own = next(t for t in _teams if t._threads and t is not team and t is not Team.shared())
            threads = [t.native_id for t in own._threads if t.native_id]
            seen.extend([table.is_right(), *(os.sched_getaffinity(t) for t in threads)])
        seen.append(own._threads)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()

    assert seen == [True, {cpu}, []]
    assert team._threads == []


def test_the_process_has_one_team_and_as_many_threads_as_it_may_use() -> None:
    assert Team.shared() is Team.shared()
    assert 1 <= default_threads() <= (os.cpu_count() or 1)
