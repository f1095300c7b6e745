"""Managers: a thread for each worker, which takes tokens and runs their steps.

On a device with memory of its own a step is over for its manager when it has begun: the inputs of
the next are copied while it runs, and its results are fetched while the next one runs.  Where the
next step is on the same device values stay there.

A worker whose device fails (`DeviceError`), or whose thread does, is taken out with all that it was
about; whatever else a step raises is the request's own, and so is a lack of memory.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from alpenglow.base.errors import CancelledError, DeviceError, TimeLimitError, UnsupportedError
from alpenglow.base.log import log
from alpenglow.host import provision
from alpenglow.host.cores import kept_to
from alpenglow.host.dispatch import Dispatch, Post, Token
from alpenglow.host.worker import Worker
from alpenglow.machines.api import Device
from alpenglow.runtime.call import requests
from alpenglow.runtime.device.array import DeviceArray
from alpenglow.runtime.executables.executor import Executable

Values = Mapping[str, Any]


class Manager:
    """What runs steps on a worker, on its cores; `window` steps may have begun on its device."""

    def __init__(
        self, worker: Worker, post: Post, dispatch: Dispatch, cpus: Sequence[int], window: int
    ) -> None:
        self._worker, self._post, self._dispatch = worker, post, dispatch
        self._cpus, self._window = cpus, window
        self._begun: deque[tuple[Token, Values]] = deque()
        self._held: list[Token] = []
        """What is lost with the worker."""
        name = f"alpenglow-{post.name}"
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def _serve(self) -> None:
        try:
            with kept_to(self._cpus):
                self._take_turns()
        except BaseException as error:  # told to all whose requests cannot go elsewhere
            log.warning("worker %s has failed and is not used again: %s", self._post.name, error)
            why = str(error) or type(error).__name__
            held, self._held = self._held, []
            self._begun.clear()
            self._dispatch.lose(self._post, why, held, _devices(self._post))

    def _take_turns(self) -> None:
        """Begin what there is to begin, finish what has begun, until there is nothing more."""
        while True:
            token = self._dispatch.take(self._post, wait=not self._begun)
            begin = time.perf_counter()
            if token is not None:
                self._held.append(token)
                self._run(token)
            elif not self._begun:
                return
            if self._begun and (token is None or len(self._begun) >= self._window):
                self._finish(*self._begun.popleft())
            del token  # it holds arrays
            self._post.seconds += time.perf_counter() - begin

    def _run(self, token: Token) -> None:
        """Run the step of a token, or begin to."""
        if not token.start():
            self._drop(token, DeviceError("the request is already over"))
            return
        token.began = token.began or time.perf_counter()
        exe = token.pipeline.steps[token.step].executables[self._post.name]
        try:
            inputs = {name: _near(token.values[name], exe.device) for name in exe.inputs}
        except DeviceError as error:
            self._held.remove(token)
            self._dispatch.again(token, error)
            return
        self._post.requests += 1
        try:
            if self._worker.memory is not None:
                provision.check_call(self._worker, _executables(self._post), exe, inputs)
            results = _begin(exe, inputs, token)
        except Exception as error:
            self._fail(token, error)
            return
        if exe.device is None or _stays(token, exe.device):
            self._hand_on(token, results)
        else:
            self._begun.append((token, results))

    def _finish(self, token: Token, results: Values) -> None:
        """Fetch from the device what a step has computed."""
        lasts = token.pipeline.lasts[token.step]
        try:
            here = {name: _near(value, None) for name, value in results.items() if name in lasts}
        except Exception as error:
            self._fail(token, error)
            return
        self._hand_on(token, here)

    def _hand_on(self, token: Token, results: Values) -> None:
        """Let a token go on; at its end what is still on a device is fetched."""
        if token.step + 1 == len(token.pipeline.steps):
            outputs = token.pipeline.network.outputs
            values = {**token.values, **results}
            try:
                results = {name: _near(values[name], None) for name in outputs}
            except Exception as error:
                self._fail(token, error)
                return
        self._held.remove(token)
        self._dispatch.advance(token, results)

    def _fail(self, token: Token, error: Exception) -> None:
        """End a token by an error of its own; raise one that is the device's."""
        if isinstance(error, DeviceError) and not isinstance(error, MemoryError):
            raise error
        self._post.failures += not isinstance(error, CancelledError | TimeLimitError)
        self._drop(token, error)

    def _drop(self, token: Token, error: Exception) -> None:
        self._held.remove(token)
        self._dispatch.fail(token, error)


def _begin(exe: Executable, inputs: Values, token: Token) -> Values:
    """Return the results of a step, on its device if it has one, as soon as all is begun."""
    if exe.device is not None:
        try:
            return exe.begin(inputs, None, token.call)
        except UnsupportedError:  # for these extents it runs in parts, here and there
            pass
    return requests.run(exe, inputs, None, token.call)


def _near(value: Any, device: Device | None) -> Any:
    """Return a value where a device takes it: there, or on the host."""
    if isinstance(value, DeviceArray) and value.device is not device:
        return value.numpy()
    return value


def _stays(token: Token, device: Device) -> bool:
    """True if all who may run the next step take values as they are on this device."""
    after = token.pipeline.steps[token.step + 1 : token.step + 2]
    executables = [exe for step in after for exe in step.executables.values()]
    return bool(executables) and all(exe.device is device for exe in executables)


def _devices(post: Post) -> list[Device]:
    """Return the devices on which a worker has run steps."""
    return [exe.device for exe in _executables(post) if exe.device is not None]


def _executables(post: Post) -> list[Executable]:
    return [p.steps[number].executables[post.name] for p, number in list(post.steps)]
