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
    """Serve networks to concurrent requests on workers, each with a thread and cores of its own.

    Requests start in order of priority; among equals the one that is further along starts first,
    then the one that came first.  If the device of a worker fails, the worker is removed: its
    requests move to other workers that run the same step, or fail with the reason.  A `with` block
    closes the host.

    Args:
        workers: the workers; all CPU workers together use at most the CPUs of this process.
        waiting: the number of requests that may wait to be started.
        window: the number of results of a step that may wait for the next step.
        name: the name of the host in messages.

    Raises:
        OptionError: if two workers have the same name, or CPU workers use too many CPUs.

    Example:
        >>> worker = ag.Worker("left", ag.Target.parse("cpu"))
        >>> with ag.Host([worker]) as host:
        ...     _ = host.add_model("tiny", "model.onnx", shapes={"x": (1, 8)})
        ...     host.run("tiny", {"x": np.zeros((1, 8), np.float32)})
        {'y': array([[0., 0., 0., 0.]], dtype=float32)}
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
        """Add a network or an Executable, which is a network of one step.

        Args:
            network: the network.
            workers: the names of the workers that run an Executable; None: all with its target.

        Returns:
            The network, whose name and version requests use.

        Raises:
            OptionError: if a name or a worker is wrong, or the memory of a worker is too small.
            ClosedError: if the host is closed.
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
        """Compile a model once for each target, and run copies of it on workers.

        Args:
            name: the name of the network.
            model: a model that `compile` takes.
            workers: the names of the workers; None: all.
            version: the version of the network.
            options: further arguments of `compile`.

        Returns:
            The network.

        Raises:
            OptionError: if a name or a worker is wrong, or the memory of a worker is too small.
        """
        chosen = [self._worker(w) for w in (self.workers if workers is None else workers)]
        return self.add(provision.provisioned(name, version, model, chosen, options))

    def remove(self, name: str, version: int | None = None) -> None:
        """Stop taking requests for a network, and return when its last request is done.

        In a callback of a future, which runs on a thread of the host, it does not wait.

        Args:
            name: the name of the network.
            version: the version; None: all versions.

        Raises:
            UnknownNetworkError: if there is no such network.
            ClosedError: if the host is closed.
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
        """Queue a request to a network and return a future of its outputs.

        The `cancel` of the future also ends code that runs.  The caller must not change the arrays
        before the future is done.

        Args:
            name: the name of the network.
            feeds: an array for each input by name.
            priority: requests of higher priority start first.
            deadline: a time of `time.monotonic()`; None: no deadline.  A request that is not done
                by then fails with TimeLimitError, and never starts if it still waits.
            version: the version of the network; None: the newest.
            timeout: the deadline in seconds from now.

        Returns:
            A future of the outputs by name; it also holds all errors not listed here.

        Raises:
            UnknownNetworkError: if there is no such network.
            ClosedError: if the host is closed.
            FeedError: if the names do not fit.
            BusyError: if too many requests wait.
            TimeLimitError: if the deadline has passed.
            DeviceError: if no worker is left.
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
        """Submit a request, wait, and return its outputs; an interrupt cancels it.

        Args:
            name: the name of the network.
            feeds: an array for each input by name.
            priority: requests of higher priority start first.
            deadline: a time of `time.monotonic()`; None: no deadline.
            version: the version of the network; None: the newest.
            timeout: the deadline in seconds from now.

        Returns:
            The outputs by name.

        Raises:
            TimeLimitError: if the request is not done at its deadline.
            AlpenglowError: the other errors of `submit`, and of the call.
        """
        future = self.submit(name, feeds, priority, deadline, version, timeout)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def statistics(self) -> statistics.Statistics:
        """Return the load of each worker, and the latencies of each network.

        Returns:
            The statistics since the host was created; `as_dict` returns them for JSON.
        """
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
        """Stop taking requests, wait until all are done, and end all threads.

        Args:
            cancel: True ends the requests instead of waiting for them.
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
    """Cancel all requests of all hosts at process exit; wait up to 1 s for each worker thread."""
    for host in list(_hosts):
        host._dispatch.cancel()
        host._dispatch.end()
        for thread in host._threads:
            thread.join(requests.LAST_SECONDS)


def _check_number(what: str, number: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise OptionError(f"{what} is {number!r}, expected a number, at least 1")
