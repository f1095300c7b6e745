"""The team: threads that run a table of kernels together.

Python threads enter a compiled loop (ctypes lets go of the interpreter lock) and wait there for
work, spinning for about 50 µs before they come back to sleep.  One team serves a process.  It is
started by the first run that wants more than one thread, and grows to the most ever wanted; its
threads are daemons.  A caller that finds it busy runs its table alone: nobody ever waits for
somebody else's run.  After a fork the child's team is empty and starts anew.

Threads that spin do not sleep, and it is when they wake that a system places threads.  Two that
were pushed onto one CPU may so stay there for seconds, each waiting for the other: a third of the
speed.  A run that finds that moves them apart.

A thread that owns some cores has a team of its own there (`own_team`): new threads may run where
the one may that starts them.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue

import llvmlite.binding as llvm

from alpenglow.base.cpus import most_workers
from alpenglow.base.knobs import cache_folder
from alpenglow.base.store import Store
from alpenglow.ir.target import Target
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.machines.cpu.crowd import Crowd
from alpenglow.machines.cpu.jit import Code
from alpenglow.machines.cpu.together import (
    CROWDED,
    LATE,
    LEADER,
    LIMIT,
    LINE,
    OPENINGS,
    STOLEN,
    WAKING,
    mailbox_nbytes,
    walk_ir,
)

PATIENCE = 50e-6  # seconds that a helper spins before it sleeps
LATE_AFTER = 200e-6  # seconds after which a leader asks whether those whom it waits for are late
_never = ctypes.c_int64()
NEVER = ctypes.addressof(_never)
"""The address of a stop word that stays 0."""

FEW_ENTRIES = 8  # a run of fewer entries says little of who takes part in it

CALM = 2e-3  # seconds for which threads that have been moved are left alone


class Team:
    """Threads that run tables together; see `Team.shared`."""

    def __init__(self, most: int | None = None) -> None:
        """Run tables on at most so many threads: of None, as many as are asked for."""
        self._most = most
        self._calm_until = 0.0
        self.crowd = Crowd()
        self._reset()
        _teams.add(self)

    @staticmethod
    def shared() -> Team:
        """Return the team of this process."""
        return _shared

    def run(self, table_address: int, count: int, threads: int, stop_address: int = NEVER) -> None:
        """Run the `count` entries of a table on at most `threads` threads, this one included.

        However many are asked for, there are no more than `most_workers`.

        Returns when all is done, or when what had begun has ended once the stop word, an i64 at
        `stop_address`, is not 0.  The table, the kernels and their operands must outlive that.
        """
        own = getattr(_own, "team", self) if threads > 1 else self
        if own is not self:
            own.run(table_address, count, threads, stop_address)
            return
        if threads <= 1 or self._busy.locked():
            walker = _walker()
            walker.alone(table_address, count, stop_address)
            return
        with self._busy:
            try:
                self._run_together(table_address, count, threads, stop_address)
            finally:
                # An interrupt can come before the other call of `_complete` has begun.
                self._complete()

    def run_with_jumps(
        self, table_address: int, count: int, threads: int, stop_address: int = NEVER
    ) -> None:
        """Run a table with jumps among its entries (`machines.api.JUMPS`), else as `run` does."""
        own = getattr(_own, "team", self) if threads > 1 else self
        if own is not self:
            own.run_with_jumps(table_address, count, threads, stop_address)
            return
        walker = _walker()
        if threads <= 1 or self._busy.locked():
            walker.drive(None, table_address, count, 1, stop_address, 0)
            return
        with self._busy:
            workers, at = self._workers(threads, walker), 0
            try:
                while at < count:
                    at = walker.drive(
                        self._mailbox, table_address, count, workers, stop_address, at
                    )
                    self._complete()
            finally:
                self._complete()

    def stop(self) -> None:
        """End the threads; a later run starts them anew.

        A run in progress is waited for, but not for ever: the interpreter may be on its way out.
        """
        if not self._busy.acquire(timeout=5):
            return
        try:
            self._openings.value = -1
            for _ in self._threads:
                self._permits.put(None)
            for thread in self._threads:
                thread.join()
            self._clear()
        finally:
            self._busy.release()

    def _run_together(
        self, table_address: int, count: int, threads: int, stop_address: int
    ) -> None:
        walker = _walker()
        workers = self._workers(threads, walker)
        if workers <= 1:
            walker.alone(table_address, count, stop_address)
            return
        # What must be woken is left in the mailbox, not in a result that an interrupt could lose.
        slept = 0
        try:
            walker.lead(self._mailbox, table_address, count, workers, stop_address)
            slept = self._waking.value
        finally:
            self._complete()
        if self._crowded.value:
            self._crowded.value = 0
            self._spread()
        late, stolen = self._late.value, self._stolen.value
        if late or stolen:
            # Who has to be woken is late on any machine.
            absent = not slept and count >= FEW_ENTRIES and stolen >= count // 4
            if late or absent:
                self.crowd.saw_late(workers, late or 1)
            self._late.value = self._stolen.value = 0

    def _workers(self, threads: int, walker: Walker) -> int:
        """Return how many threads take part where so many are asked for, this one included."""
        threads = self.crowd.fit(min(threads, self._most or most_workers()))
        return threads if threads <= 1 else min(threads, self._grown(threads - 1, walker) + 1)

    def _spread(self) -> None:
        """Move helpers to CPUs where the caller is not; where they may run does not change."""
        now = time.monotonic()
        if now < self._calm_until:
            return
        self._calm_until = now + CALM
        leader = self._leader.value.bit_length() - 1
        for number, thread in enumerate(self._threads):
            assert thread.native_id is not None, "helpers have been started"
            try:
                allowed = os.sched_getaffinity(thread.native_id)
                if others := sorted(allowed - {leader}):
                    os.sched_setaffinity(thread.native_id, {others[number % len(others)]})
                    os.sched_setaffinity(thread.native_id, allowed)
            except OSError:  # a system may forbid it: then they stay
                return

    def _complete(self) -> None:
        """Wake who is needed and wait until all are done, however often that is interrupted.

        Helpers work on memory that is the caller's: it must not be left before they are done.  One
        permit too many wakes a helper that finds nothing to do.
        """
        interrupt: KeyboardInterrupt | None = None
        while self._waking.value:
            try:
                for _ in range(self._waking.value):
                    self._permits.put(None)
                _walker().finish(self._mailbox)
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _grown(self, wanted: int, walker: Walker) -> int:
        """Start threads until there are `wanted`; return how many there are.

        Where the system allows no more threads, there are fewer.
        """
        self._limit.value = walker.limit
        while len(self._threads) < wanted:
            thread = threading.Thread(
                target=_help,
                args=(walker, self._mailbox, self._memory, self._permits),
                name=f"alpenglow-{len(self._threads) + 1}",
                daemon=True,
            )
            try:
                thread.start()
            except RuntimeError:
                break
            self._threads.append(thread)
        return len(self._threads)

    def _reset(self) -> None:
        """Begin with no threads and nothing held: at first, and in the child of a fork."""
        self._busy = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        """Begin with no threads and an empty mailbox of one's own."""
        self._threads: list[threading.Thread] = []
        self._permits: SimpleQueue[None] = SimpleQueue()
        self._memory = ctypes.create_string_buffer(mailbox_nbytes(most_workers()) + LINE)
        self._mailbox = -(-ctypes.addressof(self._memory) // LINE) * LINE
        self._openings = ctypes.c_int64.from_address(self._mailbox + OPENINGS)
        self._waking = ctypes.c_int64.from_address(self._mailbox + WAKING)
        self._crowded = ctypes.c_int64.from_address(self._mailbox + CROWDED)
        self._leader = ctypes.c_uint64.from_address(self._mailbox + LEADER)
        self._late = ctypes.c_int64.from_address(self._mailbox + LATE)
        self._stolen = ctypes.c_int64.from_address(self._mailbox + STOLEN)
        self._limit = ctypes.c_int64.from_address(self._mailbox + LIMIT)


def _help(
    walker: Walker, mailbox: int, memory: ctypes.Array[ctypes.c_char], permits: SimpleQueue[None]
) -> None:
    """Serve a team until it stops; `memory` is held because the mailbox lies in it."""
    assert ctypes.addressof(memory) <= mailbox, "the mailbox lies outside its memory"
    while walker.serve(mailbox, walker.budget) == 0:
        permits.get()


@dataclass(frozen=True)
class Walker:
    """The compiled walker (see `walk_ir`) and how many rounds of `serve` last for `PATIENCE`."""

    code: Code
    alone: Callable[[int, int, int], None]
    lead: Callable[[int, int, int, int, int], None]
    finish: Callable[[int], None]
    drive: Callable[[int | None, int, int, int, int, int], int]
    serve: Callable[[int, int], int]
    budget: int

    @property
    def limit(self) -> int:
        """How many rounds a leader waits for others before that is worth a thought."""
        return -(-int(self.budget * LATE_AFTER / PATIENCE) // 64) * 64


@functools.cache
def _walker() -> Walker:
    """Return the walker for this machine, compiled on first use and kept with compiled kernels.

    A process that runs what was compiled elsewhere then needs nothing of LLVM but its linker.
    """
    host = Target.parse("cpu")
    names = ("alone", "lead", "finish", "drive", "serve")
    text = walk_ir(host)
    key = f"walker {text} {host!r} llvm{llvm.llvm_version_info}"
    image = Store(cache_folder()).get_or_make(key, lambda: assemble(text, host))
    code = Code.install([image], names)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    serve = ctypes.CFUNCTYPE(number, pointer, number)(code.address("serve"))
    return Walker(
        code=code,
        alone=ctypes.CFUNCTYPE(None, pointer, number, pointer)(code.address("alone")),
        lead=ctypes.CFUNCTYPE(None, pointer, pointer, number, number, pointer)(
            code.address("lead")
        ),
        finish=ctypes.CFUNCTYPE(None, pointer)(code.address("finish")),
        drive=ctypes.CFUNCTYPE(number, pointer, pointer, number, number, pointer, number)(
            code.address("drive")
        ),
        serve=serve,
        budget=_calibrated(serve),
    )


def _calibrated(serve: Callable[[int, int], int]) -> int:
    """Return how many rounds of `serve` take `PATIENCE`: a pause is 10 to 140 cycles long."""
    memory = ctypes.create_string_buffer(mailbox_nbytes(1) + LINE)
    mailbox = -(-ctypes.addressof(memory) // LINE) * LINE
    rounds, times = 1000, []
    for _ in range(3):
        start = time.perf_counter()
        serve(mailbox, rounds)
        times.append(time.perf_counter() - start)
    return max(rounds // 10, int(rounds * PATIENCE / max(min(times), 1e-9)))


@contextmanager
def own_team(threads: int) -> Iterator[None]:
    """Let runs of this thread in a block have at most so many threads, and those to themselves."""
    team = _own.team = Team(min(threads, most_workers()))
    try:
        yield
    finally:
        del _own.team
        team.stop()


_own = threading.local()
"""The team of a thread that has one of its own."""

_teams: weakref.WeakSet[Team] = weakref.WeakSet()


_shared = Team()
atexit.register(_shared.stop)


def _empty_teams() -> None:
    for team in list(_teams):
        team._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_empty_teams)
