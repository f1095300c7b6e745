"""Dispatch: the requests of a host, where each of them is, and who takes which.

A request is a token that goes through the steps of its network.  At each step those that are ready
wait in their order; a worker that is free looks at all steps that it holds and takes the first
token of the one that ranks first: by priority, then by how far along it is, then by arrival.
Nothing is anybody's before it is taken, so what waits need not be moved when a worker is lost.

A step is not begun while as many of its results as the window allows wait for the next one, those
that are being computed included: who is fast waits for who is slow, and memory is bounded.  The
last step can always be begun, so this cannot come to a stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from itertools import count
from queue import SimpleQueue
from typing import Any

from alpenglow.base.errors import DeviceError, UnsupportedError
from alpenglow.base.words import shown
from alpenglow.host.network import Network
from alpenglow.host.statistics import Times
from alpenglow.machines.api import Device
from alpenglow.runtime.call.requests import Request, Waiting, full
from alpenglow.runtime.device.array import DeviceArray

MOST_TRIES = 3
"""How often a request is begun anew since values of it lay on a device that was lost."""


class Post:
    """Where a worker waits for work: its bell, what it has done, and why it is lost, if it is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bell: SimpleQueue[None] = SimpleQueue()
        self.lost = ""
        self.seconds, self.requests, self.failures = 0.0, 0, 0
        self.steps: list[tuple[Pipeline, int]] = []
        """What it runs."""


class Pipeline:
    """A network that is run: the tokens that wait at each step, how many run it, and all."""

    def __init__(self, network: Network, lock: threading.Lock) -> None:
        self.network, self.steps = network, network.steps
        self.inputs, self.lasts = network.inputs, network.lasts()
        self.waiting: list[Waiting[Token]] = [Waiting(lock) for _ in network.steps]
        self.running = [0] * len(network.steps)
        self.tokens: set[Token] = set()
        self.is_open = True
        self.queue, self.run = Times(), Times()

    def rank(self, step: int, window: int) -> tuple[int, int, int] | None:
        """Return what the first token that may begin a step is ordered by; None if none may."""
        entry = self.waiting[step].first()
        if entry is None:
            return None
        after = step + 1
        if after < len(self.steps) and self.running[step] + len(self.waiting[after]) >= window:
            return None
        return entry[0], -step, entry[1]


class Token(Request):
    """A request on its way through the steps of a network, with the values that it still needs."""

    def __init__(
        self, dispatch: Dispatch, pipeline: Pipeline, feeds: Mapping[str, Any], priority: int,
        deadline: float | None, arrival: int,
    ) -> None:  # fmt: skip
        super().__init__(None, priority, deadline)
        self.pipeline, self.arrival = pipeline, arrival
        self.step, self.tries = 0, 0
        self.feeds, self.values = feeds, dict(feeds)
        self.came, self.began = time.perf_counter(), 0.0
        self._dispatch = dispatch

    def leave(self) -> None:
        self.feeds, self.values = {}, {}
        self._dispatch.left(self)

    def lies_on(self, device: Device | None) -> bool:
        """True if values that it needs are in the memory of a device."""
        arrays = [v for v in self.values.values() if isinstance(v, DeviceArray)]
        return any(array.device is device for array in arrays)

    def restart(self) -> None:
        """Go back to the first step: what was computed is gone."""
        self.step, self.values = 0, dict(self.feeds)


class Dispatch:
    """What the managers of a host's workers share; `most` requests may wait to be begun."""

    def __init__(self, name: str, most: int, window: int) -> None:
        self._name, self._most, self._window = name, most, window
        self.lock = threading.Lock()
        self.posts: dict[str, Post] = {}
        self.pipelines: list[Pipeline] = []
        self._arrivals = count()
        self._asleep: list[Post] = []
        self._ended = False
        self._drained = threading.Condition(self.lock)

    # ── of those who ask ──

    def submit(
        self, pipeline: Pipeline, feeds: Mapping[str, Any], priority: int, deadline: float | None
    ) -> Token:
        """Return a token that waits for the first step; raise BusyError if too many requests do.

        Raises DeviceError where a step has lost all its workers.
        """
        token = Token(self, pipeline, feeds, priority, deadline, next(self._arrivals))
        with self.lock:
            if self._ended or not pipeline.is_open:
                name = shown(str(pipeline.network))
                raise UnsupportedError(f"requests for network {name} are not supported: removed")
            for step in range(len(pipeline.steps)):
                self._check_served(pipeline, step)
            if (waiting := self.waiting()) >= self._most:
                raise full(self._name, waiting)
            self._put(token)
            pipeline.tokens.add(token)
        return token

    def waiting(self) -> int:
        """Return how many requests have not begun; whoever calls holds the lock."""
        return sum(len(p.waiting[0]) for p in self.pipelines)

    def add(self, pipeline: Pipeline) -> None:
        """Let workers run the steps of a pipeline."""
        with self.lock:
            self.pipelines.append(pipeline)
            for number, step in enumerate(pipeline.steps):
                for worker in step.workers:
                    self.posts[worker].steps.append((pipeline, number))

    def remove(self, pipelines: Iterable[Pipeline], wait: bool) -> None:
        """Take no more requests for pipelines, and let those that there are come to their ends."""
        gone = list(pipelines)
        with self.lock:
            for pipeline in gone:
                pipeline.is_open = False
                self._forget_drained(pipeline)
            while wait and any(p.tokens for p in gone):
                self._drained.wait()

    def cancel(self) -> None:
        """End all requests."""
        with self.lock:
            tokens = [t for p in self.pipelines for t in p.tokens]
        for token in tokens:
            token.cancel()

    def end(self) -> None:
        """Take no more requests; managers end when nothing is left to do.

        Nothing is locked here: this may be called wherever objects are collected.
        """
        self._ended = True
        for post in self.posts.values():
            post.bell.put(None)

    # ── of those who run ──

    def take(self, post: Post, wait: bool) -> Token | None:
        """Return the first token for a worker; None if there is none, for ever if it waits."""
        while True:
            with self.lock:
                if post in self._asleep:
                    self._asleep.remove(post)
                token = self._taken(post)
                self._ring_another()
                if token is not None or not wait or self._is_over():
                    return token
                self._asleep.append(post)
            post.bell.get()

    def advance(self, token: Token, results: Mapping[str, Any]) -> None:
        """Let a token go on with what its step has computed, to the next or to its end."""
        pipeline, lasts = token.pipeline, token.pipeline.lasts[token.step]
        values = {n: v for n, v in {**token.values, **results}.items() if n in lasts}
        is_last = token.step + 1 == len(pipeline.steps)
        with self.lock:
            pipeline.running[token.step] -= 1
            if is_last:
                pipeline.queue.add(token.began - token.came)
                pipeline.run.add(time.perf_counter() - token.began)
            else:
                token.step, token.values = token.step + 1, values
                error = self._put_back(token)
        if is_last:
            token.finish(values)
        elif error is not None:
            token.fail(error)

    def fail(self, token: Token, error: BaseException) -> None:
        """Let a token end at its step by an error of its own, or as it was stopped."""
        with self.lock:
            token.pipeline.running[token.step] -= 1
        token.fail(error)

    def again(self, token: Token, error: DeviceError) -> None:
        """Begin a token anew, whose values were on a device that was lost; not for ever."""
        token.tries += 1
        if token.tries >= MOST_TRIES:
            self.fail(token, error)
            return
        with self.lock:
            token.pipeline.running[token.step] -= 1
            token.restart()
            failure = self._put_back(token)
        if failure is not None:
            token.fail(failure)

    def lose(
        self, post: Post, why: str, tokens: Iterable[Token], devices: Iterable[Device]
    ) -> None:
        """Take a worker out; what it ran goes to others that hold the step, or fails."""
        failed: list[tuple[Token, DeviceError]] = []
        with self.lock:
            post.lost, post.failures = why, post.failures + 1
            for token in tokens:
                token.pipeline.running[token.step] -= 1
                if any(map(token.lies_on, devices)):
                    token.restart()
                if (error := self._put_back(token)) is not None:
                    failed.append((token, error))
            for pipeline, step in post.steps:
                failed += self._unserved(pipeline, step)
            self._ring_another()
        for token, error in failed:
            token.fail(error)

    def left(self, token: Token) -> None:
        """Take note that a token is over."""
        with self.lock:
            pipeline = token.pipeline
            pipeline.tokens.discard(token)
            self._forget_drained(pipeline)
            self._ring_another()
            if self._is_over():
                self.end()

    # ── with the lock ──

    def _is_over(self) -> bool:
        return self._ended and not any(p.tokens for p in self.pipelines)

    def _taken(self, post: Post) -> Token | None:
        best = self._best(post)
        if best is None:
            return None
        pipeline, step = best
        pipeline.running[step] += 1
        return pipeline.waiting[step].take()

    def _best(self, post: Post) -> tuple[Pipeline, int] | None:
        """Return the step of which a worker is to run the first token."""
        best, least = None, None
        for pipeline, step in post.steps:
            rank = pipeline.rank(step, self._window)
            if rank is not None and (least is None or rank < least):
                best, least = (pipeline, step), rank
        return best

    def _put(self, token: Token) -> None:
        """Let a token wait at its step, and wake one who may take it."""
        token.pipeline.waiting[token.step].put(token, token.arrival)
        if self._asleep:
            step = token.pipeline.steps[token.step]
            self._ring(p for p in self._asleep if p.name in step.executables)

    def _put_back(self, token: Token) -> DeviceError | None:
        """Let a token that ran wait at its step; return an error to fail with if it cannot.

        Where it has been stopped, that is what it fails with.
        """
        try:
            self._check_served(token.pipeline, token.step)
        except DeviceError as error:
            return error
        if not token.pause():
            return DeviceError("the request was stopped", hint="submit it again")
        self._put(token)
        return None

    def _ring_another(self) -> None:
        """Wake one who sleeps while there is work: who was rung for that may have taken other."""
        if self._asleep:
            self._ring(p for p in self._asleep if self._best(p) is not None)

    def _ring(self, posts: Iterable[Post]) -> None:
        post = next(iter(posts), None)
        if post is not None:
            post.bell.put(None)
            self._asleep.remove(post)

    def _check_served(self, pipeline: Pipeline, step: int) -> None:
        """Raise DeviceError if all workers of a step are lost."""
        workers = pipeline.steps[step].workers
        if all(self.posts[w].lost for w in workers):
            said = "; ".join(f"'{w}': {self.posts[w].lost}" for w in workers)
            raise DeviceError(
                f"no worker is left for step {step} of network {shown(str(pipeline.network))}: "
                f"{said}",
                hint="a new Host",
            )

    def _unserved(self, pipeline: Pipeline, step: int) -> list[tuple[Token, DeviceError]]:
        """Take and return the tokens that cannot go through a step any more, each with why."""
        try:
            self._check_served(pipeline, step)
        except DeviceError as error:
            queues = pipeline.waiting[: step + 1]
            return [(t, error) for queue in queues for t in iter(queue.take, None)]
        return []

    def _forget_drained(self, pipeline: Pipeline) -> None:
        """Let go of a pipeline that takes no more, once nothing of it is left."""
        if pipeline.is_open or pipeline.tokens or pipeline not in self.pipelines:
            return
        self.pipelines.remove(pipeline)
        for post in self.posts.values():
            post.steps = [(p, step) for p, step in post.steps if p is not pipeline]
        self._drained.notify_all()
