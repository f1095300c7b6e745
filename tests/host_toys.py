"""Executables for tests of a host: each runs a function, and fails, waits and ends as that does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import alpenglow as ag
from alpenglow.host.network import Network, Step
from alpenglow.ir.metadata import NONE
from alpenglow.runtime.call.calls import Call
from alpenglow.runtime.executables.executor import Executable

PATIENT = 30.0
"""Seconds: what does not end is found, and no busy machine is taken for it."""

HERE = ag.Target.parse("interpreter")
NUMBER = ag.TensorType("f32", (1,))

Work = Callable[..., Any]
"""Returns the value of the only output for those of the inputs in order."""


class Toy(Executable):
    """One that computes output `y` of inputs by a function of Python."""

    def __init__(self, work: Work, x: str | Sequence[str] = "x", y: str = "y") -> None:
        names = [x] if isinstance(x, str) else list(x)
        super().__init__("toy", NONE, HERE, 1, dict.fromkeys(names, NUMBER), {y: NUMBER})
        self.work, self.y = work, y

    @property
    def artifacts(self) -> list[Any]:
        return []

    def archived(self, treated: str = "saved") -> Any:
        raise AssertionError("toys are not saved")

    def _run(
        self, arrays: Mapping[str, Any], out: Mapping[str, Any], call: Call | None, held: Any = None
    ) -> dict[str, Any]:
        assert call is not None
        call.check()
        result = self.work(*(arrays[name] for name in self.inputs))
        call.check()
        return {self.y: result}


class Gate:
    """A work that tells who is there, and lets pass when it is open."""

    def __init__(self) -> None:
        self.came, self.opened = threading.Semaphore(0), threading.Event()

    def __call__(self, x: Any) -> Any:
        self.came.release()
        assert self.opened.wait(PATIENT)
        return x

    def wait(self) -> None:
        """Return when one more is there."""
        assert self.came.acquire(timeout=PATIENT)


def chain(workers: Sequence[str], works: Sequence[Work], name: str = "chain") -> Network:
    """Return a network whose steps, each a work on the next worker, lead from `x` to `y`."""
    values = ["x", *(f"v{k}" for k in range(1, len(works))), "y"]
    steps = [
        Step({worker: Toy(work, values[k], values[k + 1])})
        for k, (worker, work) in enumerate(zip(workers, works, strict=True))
    ]
    return Network(name, 1, tuple(steps))


def workers(*names: str) -> list[ag.Worker]:
    return [ag.Worker(name, HERE) for name in names]
