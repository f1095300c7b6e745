"""The process of one runtime in a contest: it loads a model, runs it when told, and takes the time.

    python server.py NAME THREADS CPUS

This file is run by its path, by whichever Python has the runtime: it needs NumPy beside that and
nothing of this package.  It loads ONNX Runtime; `bench/rivals.py` brings other runtimes to it.  A
request is one line of JSON on standard input, and so is the answer on what was standard output;
whatever the runtime itself prints goes to standard error.

    {"do": "load", "model": FILE, "feeds": FILE.npz, "scratch": DIR}  =>  {"seconds", "version"}
    {"do": "burst", "warm": N, "calls": N, "seconds": S}              =>  {"times": [S, …]}

What goes wrong in a request is answered by {"error": TEXT}.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SLOW, FEW = 0.3, 7
"""Calls that take more seconds are made fewer times."""

Array = NDArray[Any]
Arrays = dict[str, Array]
Call = Callable[[], Arrays]


@dataclass(frozen=True)
class Task:
    """What is to be run: a model on some arrays, with a folder for what is made of it.

    `precision` is what contractions take, f32 or bf16; not every runtime can be told.
    """

    model: Path
    feeds: Mapping[str, Array]
    threads: int
    scratch: Path
    precision: str = "f32"


@dataclass(frozen=True)
class Runtime:
    """How a runtime is found and used.

    `module` is what is imported and `package` what is installed; `prepare` converts the model,
    where that is done ahead, and is not counted as loading.  `settings` says what is asked of it.
    """

    module: str
    package: str
    load: Callable[[Task], Call]
    settings: str
    prepare: Callable[[Task], None] | None = None
    precisions: tuple[str, ...] = ("f32",)


def onnxruntime(task: Task) -> Call:
    ort = import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = task.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(str(task.model), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    feeds = dict(task.feeds)
    return lambda: dict(zip(names, session.run(None, feeds), strict=True))


ONNX_RUNTIME = Runtime(
    "onnxruntime", "onnxruntime", onnxruntime,
    "CPUExecutionProvider, all optimisations (its default), intra-op threads as given",
)  # fmt: skip


class Server:
    """Answers requests about one runtime."""

    def __init__(self, runtime: Runtime, threads: int) -> None:
        self.runtime, self.threads = runtime, threads
        self.call: Call | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a request asks for."""
        match request:
            case {"do": "load", "model": model, "feeds": feeds, "scratch": scratch}:
                with np.load(feeds) as archive:
                    arrays = dict(archive)
                precision = request.get("precision", "f32")
                if precision not in self.runtime.precisions:
                    known = ", ".join(self.runtime.precisions)
                    raise ValueError(f"precision is {precision}, expected one of {known}")
                task = Task(Path(model), arrays, self.threads, Path(scratch), precision)
                return self.load(task)
            case {"do": "burst", "warm": warm, "calls": calls, "seconds": seconds}:
                return {"times": times(self.loaded(), warm, calls, seconds)}
        raise ValueError(f"request is {request}, expected to load or burst")

    def load(self, task: Task) -> dict[str, Any]:
        if self.runtime.prepare is not None:
            self.runtime.prepare(task)
        import_module(self.runtime.module)
        begin = time.perf_counter()
        self.call = self.runtime.load(task)
        seconds = time.perf_counter() - begin
        self.call()
        return {"seconds": seconds, "version": version(self.runtime.package)}

    def loaded(self) -> Call:
        if self.call is None:
            raise ValueError("no model is loaded, expected a request to load one")
        return self.call


def times(call: Callable[[], object], warm: int, calls: int, seconds: float = 0.0) -> list[float]:
    """Return the seconds of each of some calls, after `warm` that do not count.

    There are `calls` of them at least, and more until they have taken `seconds` together.  Where a
    call takes more than SLOW seconds there are no more than FEW, after one that does not count.
    Otherwise, as a virtual CPU that has been idle may at first share a core, more calls than `warm`
    do not count until these have taken twice `seconds`.
    """
    begun, warmed = time.perf_counter(), 0
    while warmed < warm or time.perf_counter() < begun + 2 * seconds:
        begin = time.perf_counter()
        call()
        warmed += 1
        if time.perf_counter() - begin > SLOW:
            calls = min(calls, FEW)
            break
    burst: list[float] = []
    end = time.perf_counter() + seconds
    while len(burst) < calls or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        burst.append(time.perf_counter() - begin)
    return burst


def serve(server: Server, cpus: str) -> None:
    """Answer requests, on these CPUs, until there are no more."""
    os.sched_setaffinity(0, {int(c) for c in cpus.split(",")})
    os.environ["OMP_NUM_THREADS"] = str(server.threads)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    gc.disable()
    for line in sys.stdin:
        try:
            answer = server.answer(json.loads(line))
        # What a runtime may raise has no common root: all of it is the answer.
        except Exception as error:
            words = " ".join(str(error).split())
            answer = {"error": f"{type(error).__name__}: {words}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    _, _, threads, cpus = sys.argv
    serve(Server(ONNX_RUNTIME, int(threads)), cpus)
