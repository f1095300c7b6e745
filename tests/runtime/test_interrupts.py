"""An interrupt at any line leaves all sound: the same call right behind it returns what it should.

Lines of modules that keep state are where it is raised, in the order in which they first run; each
place is one of an operation that was begun anew.
"""

from __future__ import annotations

import dis
import functools
import gc
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
import growing_cases
import train_cases
from alpenglow import train
from alpenglow.base import knobs
from alpenglow.base.errors import SessionError
from alpenglow.host.worker import Worker
from alpenglow.ops.elementwise.arithmetic import Add, Mul

Array = NDArray[Any]
Place = tuple[str, int, int]
"""A file, a line, and the how-many-eth time that it runs."""

ROOT = str(Path(ag.__file__).parent)
STATEFUL = tuple(
    f"{ROOT}/{part}" for part in
    ("base/", "driver/", "host/", "runtime/", "train/trainer", "machines/cpu/team", "machines/reg")
)  # fmt: skip
PATIENCE = 60.0
"""Seconds after which what does not end hangs."""


class Lines:
    """Sees each line that runs in modules with state; interrupts at `place`."""

    def __init__(self, place: Place | None = None) -> None:
        self.place = place
        self.times: dict[tuple[str, int], int] = {}
        self.hit = False

    def __enter__(self) -> Lines:
        sys.settrace(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(STATEFUL):
            return None
        before = max(frame.f_lasti, 0)  # a generator goes on in its middle

        def line(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal before
            if event == "line":
                if not _is_let_through(frame.f_code, before, frame.f_lasti):
                    self._line(frame.f_code.co_filename, frame.f_lineno)
                before = frame.f_lasti
            return line

        return line

    def _line(self, *at: Any) -> None:
        self.times[at] = self.times.get(at, 0) + 1
        if self.place == (*at, self.times[at]):
            self.hit = True
            raise KeyboardInterrupt

    def places(self) -> list[Place]:
        """Return each line where it ran first, and where it ran last."""
        firsts = [(*at, 1) for at in self.times]
        return [*firsts, *((*at, times) for at, times in self.times.items() if times > 1)]


def _is_let_through(code: CodeType, before: int, now: int) -> bool:
    """Return True if Python looks for no signal between two instructions.

    It does so as functions begin, calls end and loops turn.  So nothing is raised as a block of
    `with` is entered, or one of `with` or `try` is left, before the first call of what follows.
    """
    if code.co_code[now] == dis.opmap["PUSH_EXC_INFO"]:
        return True
    if before < now and LOOKS.isdisjoint(code.co_code[before:now:2]):
        return True
    return any(start <= before < end and not start <= now < end for start, end in _blocks(code))


CHECKED = ("RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD")
LOOKS = {dis.opmap[name] for name in CHECKED if name in dis.opmap}


@functools.cache
def _blocks(code: CodeType) -> list[tuple[int, int]]:
    """Return where the blocks of a function are that something is done behind, come what may."""
    table = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    return [(entry.start, entry.end) for entry in table]


def network(kind: str) -> Any:
    """Return tanh(x w), fixed or open; or so often as `k` says, behind a branch."""
    w = np.random.default_rng(0).standard_normal((8, 8), np.float32)
    make = helper.make_node
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2 if kind == "fixed" else "n", 8])
    inputs = [x]
    nodes = [make("MatMul", ["x", "w"], ["h"]), make("Tanh", ["h"], ["y"])]
    if kind == "staged":
        k = helper.make_tensor_value_info("k", TensorProto.INT64, [])
        flag = [helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in ("on", "went")]
        step = helper.make_tensor_value_info("i", TensorProto.INT64, [])
        now, then = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "ab")
        body = helper.make_graph(
            [make("MatMul", ["a", "w"], ["m"]), make("Tanh", ["m"], ["b"]),
             make("Identity", ["on"], ["went"])], "body", [step, flag[0], now], [flag[1], then],
        )  # fmt: skip
        nodes = [make("Loop", ["k", "", "x"], ["l"], body=body), make("NonZero", ["l"], ["z"]),
                 make("Shape", ["z"], ["s"]), make("Relu", ["l"], ["y"])]  # fmt: skip
        inputs = [x, k]
    outputs = [helper.make_empty_tensor_value_info(n) for n in ("y", "s")[: len(inputs)]]
    graph = helper.make_graph(nodes, "net", inputs, outputs, [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def fed(rows: int, k: int | None = None) -> dict[str, Array]:
    x = np.linspace(-1, 1, rows * 8, dtype=np.float32).reshape(rows, 8)
    return {"x": x} if k is None else {"x": x, "k": np.array(k)}


def bits(results: Mapping[str, Any]) -> bytes:
    return b"".join(np.ascontiguousarray(a).tobytes() for a in results.values())


@dataclass
class Case:
    """`begin` returns something; `act` on it is interrupted, and `again` tells what came of it.

    That is `expected`, one of those.
    """

    begin: Callable[[Path], Any]
    act: Callable[[Any], Any]
    again: Callable[[Any], Any]
    expected: list[Any] = field(default_factory=list)

    def run(self, folder: Path, place: Place | None) -> Lines:
        state = self.begin(folder)
        with Lines(place) as lines:
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            try:
                self.act(state)
            except KeyboardInterrupt:
                assert lines.hit, "it hangs"
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        outcome = ended(lambda: self.again(state))
        if place is None and outcome not in self.expected:
            self.expected.append(outcome)
        assert outcome in self.expected, "another result"
        assert gc.isenabled(), "the collector rests"
        return lines


def ended(action: Callable[[], Any]) -> Any:
    """Return what an action returns, on another thread: what holds a lock here is found."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it hangs"
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def running(kind: str, threads: int = 1) -> Callable[[Path], ag.Executable]:
    return lambda folder: ag.compile(network(kind), threads=threads)


def warmed(kind: str, *calls: Mapping[str, Array]) -> Callable[[Path], ag.Executable]:
    def begin(folder: Path) -> ag.Executable:
        exe = ag.compile(network(kind), threads=1)
        for feeds in calls:
            exe.run(feeds)
        return exe

    return begin


def call(*all_feeds: Mapping[str, Array], **how: Any) -> Callable[[ag.Executable], Any]:
    return lambda exe: [bits(exe.run(feeds, **how)) for feeds in all_feeds]


def requested(exe: ag.Executable) -> bytes:
    return bits(exe.submit(fed(2)).result())


def compile_file(folder: Path) -> Any:
    path = folder / "m.onnx"
    path.write_bytes(network("fixed").SerializeToString())
    return path


def compiled_file(path: Path) -> bytes:
    return bits(ag.compile(path, threads=1).run(fed(2)))


class Saving:
    """An executable, and the archive of another that it is saved over."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "x.ago"
        old = ag.compile(network("fixed"), threads=1)
        old.save(self.path)
        self.old = bits(old.run(fed(2)))
        self.exe = warmed("open", fed(2))(folder)

    def save(self) -> None:
        self.exe.save(self.path)

    def known(self) -> list[Any]:
        _, new = self.opened()
        return [(self.old, new), (new, new)]

    def opened(self) -> Any:
        assert [p for p in self.path.parent.iterdir() if p.suffix == ".ago"] == [self.path]
        one = bits(ag.open(self.path, threads=1).run(fed(2)))
        self.save()
        return one, bits(ag.open(self.path, threads=1).run(fed(2)))


@functools.cache
def remembering(kind: str) -> ag.Executable:
    if kind == "grows":
        return ag.compile(growing_cases.decoder(), threads=1, state=True)
    return ag.compile(counter(), threads=1)


class Remembering:
    """A session of a decoder that was called; after an interrupt it is as before, or behind it."""

    def __init__(self, folder: Path, kind: str) -> None:
        grows = kind == "grows"
        self.session = remembering(kind).session(32 if grows else None)
        self.feeds = {"x": growing_cases.rows(3) if grows else np.ones(4, np.float32)}
        self.session.run(self.feeds)

    def step(self) -> None:
        self.session.run(self.feeds)

    def told(self) -> Any:
        try:
            now = [bits(self.session.variables), bits(self.session.run(self.feeds))]
        except SessionError as error:
            assert "hold nothing any more" in str(error)
            now = []
        self.session.reset()
        first = bits(self.session.run(self.feeds))
        return now, first

    def known(self) -> list[Any]:
        """Return what `told` may say: before the call, behind it, and lost."""
        before = self.told()
        self.session.reset()
        self.session.run(self.feeds)
        self.session.run(self.feeds)
        behind = self.told()
        return [before, behind, ([], before[1])]


def counter() -> ag.Graph:
    g = ag.Graph("counter")
    x, total = g.input("x", "f32[4]"), g.variable("total", np.zeros(4, np.float32))
    other = g.variable("other", np.ones(4, np.float32))
    g.assign("total", g(Add(), other, x))
    g.assign("other", g(Mul(), total, x))
    g.output("y", g(Add(), total, other))
    return g


@functools.cache
def untrained() -> train.Trainer:
    return train.Trainer(train_cases.perceptron(), "loss", train.SGD(0.1), threads=1)


class Training:
    """A trainer that took a step; after an interrupt it is as before the next one, or behind it."""

    def __init__(self, folder: Path) -> None:
        self.trainer = untrained()
        self.path = folder / "checkpoint.npz"
        self.batch = {n: a[:16] for n, a in train_cases.samples(16).items()}
        self.trainer.session.reset()
        self.step()
        self.trainer.save(self.path)

    def step(self) -> None:
        self.trainer.step(self.batch)

    def step_and_save(self) -> None:
        self.step()
        self.trainer.save(self.path)

    def told(self) -> Any:
        try:
            now = self.trainer.steps, bits(self.trainer.session.variables)
            self.step()
            now = *now, self.trainer.steps, bits(self.trainer.session.variables)
        except SessionError as error:
            assert "hold nothing any more" in str(error)
            now = ()
        assert [p for p in self.path.parent.iterdir() if p.suffix == ".npz"] == [self.path]
        self.trainer.load(self.path)
        return now, self.trainer.steps, bits(self.trainer.session.variables)

    def known(self) -> list[Any]:
        """Return what `told` may say: where it goes on, or lost; and what the file holds."""
        (before, *first), (behind, *second) = (self._after(steps) for steps in (1, 2))
        return [(now, *file) for now in (before, behind, ()) for file in (first, second)
                if now is not before or file is first]  # fmt: skip

    def _after(self, steps: int) -> Any:
        one = Training(self.path.parent)
        for _ in range(steps - 1):
            one.step_and_save()
        return one.told()


class Hosting:
    def __init__(self, folder: Path) -> None:
        self.host = ag.Host([Worker("a", ag.Target.parse("cpu"), threads=1)])
        self.exe = ag.compile(network("fixed"), threads=1)
        self.host.add(self.exe)
        self.name = self.exe.name

    def ask(self) -> bytes:
        return bits(self.host.run(self.name, fed(2)))

    def again(self) -> bytes:
        results = self.ask()
        self.host.close()
        return results


MOST = {"compile a file": 5, "new shape": 5, "staged": 4, "staged again": 4, "save": 6}
"""At about how many places what takes long is interrupted."""

CASES = {
    "compile a file": Case(compile_file, compiled_file, compiled_file),
    "expected a call before": Case(running("fixed"), call(fed(2)), call(fed(2))),
    "known call": Case(warmed("fixed", fed(2)), call(fed(2)), call(fed(2))),
    "two threads": Case(running("fixed", 2), call(fed(2), fed(2)), call(fed(2))),
    "timeout": Case(warmed("fixed", fed(2)), call(fed(2), timeout=60), call(fed(2), timeout=60)),
    "new shape": Case(warmed("open", fed(2)), call(fed(200)), call(fed(200), fed(2))),
    "known shapes": Case(warmed("open", fed(2)), call(fed(3), fed(2)), call(fed(3), fed(2))),
    "staged": Case(running("staged"), call(fed(2, 3)), call(fed(2, 3), fed(5, 40))),
    "staged again": Case(warmed("staged", fed(2, 3), fed(2, 40)), call(fed(2, 40), fed(5, 1)),
                         call(fed(2, 40), fed(5, 1), fed(2, 3))),
    "request": Case(running("fixed"), requested, requested),
    "save": Case(Saving, Saving.save, Saving.opened),
    "session": Case(lambda f: Remembering(f, "holds"), Remembering.step, Remembering.told),
    "decoder": Case(lambda f: Remembering(f, "grows"), Remembering.step, Remembering.told),
    "training": Case(Training, Training.step_and_save, Training.told),
    "host": Case(Hosting, Hosting.ask, Hosting.again),
}  # fmt: skip


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="nothing here ends what hangs")
@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("name", CASES)
def test_what_is_interrupted_is_done_right_behind_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knobs, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")
    case, before = CASES[name], signal.signal(signal.SIGALRM, signal.default_int_handler)
    folders = (tmp_path / str(n) for n in range(1000))

    def run(place: Place | None) -> Lines:
        folder = next(folders)
        folder.mkdir()
        return case.run(folder, place)

    try:
        if hasattr(state := case.begin(tmp_path), "known"):
            case.expected += state.known()
        run(None)
        places = run(None).places()
        for place in places[:: max(1, len(places) // MOST.get(name, 12))]:
            run(place)
    finally:
        signal.signal(signal.SIGALRM, before)
