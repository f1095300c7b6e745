"""A host: networks by name and version on workers, one queue for all, and a manager for each."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from alpenglow.base.errors import (
    ClosedError,
    OptionError,
    UnknownNetworkError,
    UnsupportedError,
)
from alpenglow.base.words import shown
from alpenglow.driver.compile import Model
from alpenglow.host import provision, statistics
from alpenglow.host.cores import allot
from alpenglow.host.dispatch import Dispatch, Pipeline, Post
from alpenglow.host.managers import Manager
from alpenglow.host.network import Network
from alpenglow.host.worker import Worker, check_workers
from alpenglow.runtime.call import calls, deadlines, requests
from alpenglow.runtime.call import feeds as fed
from alpenglow.runtime.executables.executor import Executable

H = TypeVar("H", bound="Host")


class Host:
    """Runs networks on workers, each of which has a manager, a thread, and cores of its own.

    At most `waiting` requests wait until they are begun, and at most `window` results of a step for
    the next one.  Of the requests that wait, that of the highest priority comes first, of equals
    the one that is further along, and then the one that came first.  A worker whose device fails is
    taken out; what it ran goes to others that hold the step, or fails with the reason.

    Raises OptionError where two workers have one name, or those of this process want more CPUs than
    it may use.  It is closed at the end of a `with` block, or by `close`.
    """

    def __init__(
        self, workers: Sequence[Worker], waiting: int = 100, window: int = 2, name: str = "host"
    ) -> None:
        check_workers(workers)
        _check_number("waiting", waiting)
        _check_number("window", window)
        groups = allot(workers)
        self.name = name
        self.workers = {worker.name: worker for worker in workers}
        self._networks: dict[str, dict[int, Pipeline]] = {}
        self._lock = threading.Lock()  # of what there is
        self._closed = False
        self._process, self._began = os.getpid(), time.perf_counter()
        self._dispatch = dispatch = Dispatch(name, waiting, window)
        dispatch.posts = {name: Post(name) for name in self.workers}
        self._threads: list[threading.Thread] = []
        weakref.finalize(self, dispatch.end).atexit = False
        _hosts.add(self)
        for post in dispatch.posts.values():
            worker = self.workers[post.name]
            manager = Manager(worker, post, dispatch, groups.get(post.name, ()), window)
            manager.thread.start()
            self._threads.append(manager.thread)

    def __enter__(self: H) -> H:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self.close(cancel=kind is not None)

    def __repr__(self) -> str:
        networks = ", ".join(map(str, self.networks)) or "no networks"
        return f"Host({self.name}; {networks} on {', '.join(self.workers)})"

    # ── networks ──

    @property
    def networks(self) -> list[Network]:
        """The networks that take requests."""
        with self._lock:
            return [p.network for versions in self._networks.values() for p in versions.values()]

    def add(self, network: Network | Executable, workers: Sequence[str] | None = None) -> Network:
        """Let a network take requests, and return it.

        An Executable is one of a single step, which `workers` run, by default all that run its
        target.  Raises OptionError where a name or a worker is wrong, or a worker lacks memory.
        """
        if isinstance(network, Executable):
            network = Network.whole(network, self._fitting(network, workers))
        elif workers is not None:
            raise OptionError("workers is given for a Network, expected only for an Executable")
        for step in network.steps:
            for name, exe in step.executables.items():
                self._check_fit(network, name, exe)
        with self._lock:
            self._check_open()
            self._check_memory(network)
            versions = self._networks.setdefault(network.name, {})
            if network.version in versions:
                raise OptionError(
                    f"there is a network {shown(str(network))} already",
                    hint="another version, or remove that one before",
                )
            pipeline = Pipeline(network, self._dispatch.lock)
            self._dispatch.add(pipeline)
            versions[network.version] = pipeline
        return network

    def add_model(
        self, name: str, model: Model, workers: Sequence[str] | None = None, version: int = 1,
        **options: Any,
    ) -> Network:  # fmt: skip
        """Compile a model once for each target, and let workers, by default all, run replicas.

        `options` are those of `compile`.
        """
        chosen = [self._worker(w) for w in (self.workers if workers is None else workers)]
        return self.add(provision.provisioned(name, version, model, chosen, options))

    def remove(self, name: str, version: int | None = None) -> None:
        """Take no more requests for a network, of all versions or one, and return when it is idle.

        Requests that wait or run come to their ends.  Called by a manager, as what is done when a
        future is, it does not wait.  Raises UnknownNetworkError where there is no such network,
        ClosedError if the host is closed.
        """
        with self._lock:
            self._check_open()
            versions = self._networks.get(name, {})
            gone = [p for v, p in versions.items() if version in (None, v)]
            if not gone:
                raise self._unknown(name, version)
            for pipeline in gone:
                del versions[pipeline.network.version]
            if not versions:
                del self._networks[name]
        self._dispatch.remove(gone, wait=not self._is_manager())

    # ── requests ──

    def submit(
        self,
        name: str,
        feeds: Mapping[str, Any],
        priority: int = 0,
        deadline: float | None = None,
        version: int | None = None,
        timeout: float | None = None,
    ) -> Future[dict[str, Any]]:
        """Return a future of the outputs of a network, of its newest version unless it is named.

        One that is not done at its deadline, a time of `time.monotonic()`, fails with
        TimeLimitError; if it waits till then it never runs.  `timeout` is the same in seconds from
        now.  `cancel` ends what runs, too.  Arrays stay as they are meanwhile.

        Raises UnknownNetworkError where there is no such network, ClosedError if the host is
        closed, FeedError where names do not fit, BusyError if too many requests wait,
        TimeLimitError if the deadline has passed, DeviceError where no worker is left; the future
        has what else comes up.
        """
        if self._process != os.getpid():
            raise UnsupportedError(
                "requests of a forked process are not supported: make a new Host"
            )
        deadline = calls.end_of(deadline, timeout)
        requests.check(priority, deadline)
        pipeline = self._pipeline(name, version)
        fed.named(feeds, pipeline.inputs)
        token = self._dispatch.submit(pipeline, feeds, priority, deadline)
        if deadline is not None:
            deadlines.watch(token)
        return token

    def run(
        self,
        name: str,
        feeds: Mapping[str, Any],
        priority: int = 0,
        deadline: float | None = None,
        version: int | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Return what `submit` promises, when that is done; an interrupt cancels it."""
        future = self.submit(name, feeds, priority, deadline, version, timeout)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def statistics(self) -> statistics.Statistics:
        """Return what has been seen so far."""
        passed = time.perf_counter() - self._began
        with self._dispatch.lock:
            workers = {
                p.name: statistics.WorkerStatistics(
                    min(1.0, p.seconds / passed), p.requests, p.failures, p.lost
                )
                for p in self._dispatch.posts.values()
            }
            networks = {
                (p.network.name, p.network.version): statistics.NetworkStatistics(
                    p.queue.seconds(), p.run.seconds()
                )
                for p in self._dispatch.pipelines
            }
            return statistics.Statistics(workers, networks, self._dispatch.waiting())

    def close(self, cancel: bool = False) -> None:
        """Take no more requests, let those that there are come to their ends, and end all threads.

        With `cancel` they are ended.
        """
        if self._process != os.getpid():
            return
        with self._lock:
            gone = [p for versions in self._networks.values() for p in versions.values()]
            self._networks, self._closed = {}, True
        if cancel:
            self._dispatch.cancel()
        inside = self._is_manager()
        self._dispatch.remove(gone, wait=not inside)
        self._dispatch.end()
        for thread in [] if inside else self._threads:
            thread.join()

    # ── what is right ──

    def _is_manager(self) -> bool:
        return threading.current_thread() in self._threads

    def _pipeline(self, name: str, version: int | None) -> Pipeline:
        with self._lock:
            versions = self._networks.get(name, {})
            self._check_open()
            newest = max(versions, default=0) if version is None else version
            if newest not in versions:
                raise self._unknown(name, version)
            return versions[newest]

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the host is closed", hint="a new Host")

    def _unknown(self, name: str, version: int | None) -> UnknownNetworkError:
        known = ", ".join(f"{n}:{v}" for n, versions in self._networks.items() for v in versions)
        wanted = name if version is None else f"{name}:{version}"
        return UnknownNetworkError(
            f"network is {shown(wanted)}, expected one of {known or 'none'}"
        )

    def _worker(self, name: str) -> Worker:
        if name not in self.workers:
            known = ", ".join(self.workers)
            raise OptionError(f"worker is {shown(str(name))}, expected one of {known}")
        return self.workers[name]

    def _fitting(self, exe: Executable, workers: Sequence[str] | None) -> list[str]:
        """Return the workers that are named, or all that run the target of an Executable."""
        if workers is not None:
            return list(workers)
        return [w.name for w in self.workers.values() if w.target == exe.target]

    def _check_fit(self, network: Network, name: str, exe: Executable) -> None:
        """Raise OptionError unless a worker can run an Executable as it is."""
        worker = self._worker(name)
        if exe.target.machine != worker.target.machine:
            raise OptionError(
                f"network {shown(str(network))} has code for '{exe.target}', expected "
                f"'{worker.target}', which worker '{name}' runs"
            )
        if exe.threads is not None and exe.threads > worker.threads and exe.device is None:
            raise OptionError(
                f"network {shown(str(network))} wants {exe.threads} threads, but worker '{name}' "
                f"has {worker.threads}",
                hint=f"compile(…, threads={worker.threads})",
            )

    def _check_memory(self, network: Network) -> None:
        there = [p.network for versions in self._networks.values() for p in versions.values()]
        for worker in self.workers.values():
            steps = [step for n in (*there, network) for step in n.steps]
            mine = [s.executables[worker.name] for s in steps if worker.name in s.executables]
            provision.check_memory(worker, mine)


_hosts: weakref.WeakSet[Host] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Let no code run while the process ends, unless it does not look."""
    for host in list(_hosts):
        host._dispatch.cancel()
        host._dispatch.end()
        for thread in host._threads:
            thread.join(requests.LAST_SECONDS)


def _check_number(what: str, number: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise OptionError(f"{what} is {number!r}, expected a number, at least 1")
