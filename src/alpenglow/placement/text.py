"""Placements, and their text, which parses back.

placement of resnet50 for throughput
worker left: cpu, 1 thread
worker right: cpu, 1 thread, 200000000 bytes, link 0.001 s 1e+09 bytes/s
stage left: nodes 0 to 57 from 'r0', 0.0123 s, 0.0001 s of copies, 90000000 bytes
cut before 'r57': 802816 bytes, to balance left (0.0123 s) and right (0.0119 s)
stage right: nodes 57 to 122 from 'r57', 0.0119 s, 0.0001 s of copies, 80000000 bytes
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from alpenglow.base.errors import ParseError
from alpenglow.base.words import counted
from alpenglow.host.worker import Link, Worker
from alpenglow.ir.target import Target
from alpenglow.placement.search import Goal


@dataclass(frozen=True, slots=True)
class Stage:
    """What a worker runs: the nodes of the schedule from `begin` to before `end`.

    `first` is the name of the first one.  It computes for `seconds`, copies for `copying`, and
    needs `nbytes` for weights, arena, what it reads and what it leaves.  `why` says why it is cut
    off from the stage before, `crossing` how many bytes come over that cut; "" and 0 for the first.
    `replicas` are workers that run it too, by turns.
    """

    worker: str
    begin: int
    end: int
    first: str
    seconds: float
    copying: float
    nbytes: int
    crossing: int = 0
    why: str = ""
    replicas: tuple[str, ...] = ()

    @property
    def takes(self) -> float:
        """The seconds between two results of the stage: workers take turns."""
        return (self.seconds + self.copying) / (1 + len(self.replicas))


@dataclass(frozen=True, slots=True)
class Placement:
    """Assign the stages of a network to workers; `str` and `parse` convert it to text and back.

    Args:
        name: the name of the network.
        goal: "latency" or "throughput".
        workers: the workers.
        stages: the stages in order.
        within: the share by which the best placement may be faster; 0 if this is the best.
        splits: the number of parts of each node that is split since it fits no worker.

    Example:
        >>> worker = ag.Worker("left", ag.Target.parse("cpu"))
        >>> placement = ag.place("model.onnx", [worker], measure=False, shapes={"x": (1, 8)})
        >>> ag.Placement.parse(str(placement)) == placement
        True
    """

    name: str
    goal: Goal
    workers: tuple[Worker, ...]
    stages: tuple[Stage, ...]
    within: float = 0.0
    splits: Mapping[str, int] = field(default_factory=dict)

    @property
    def latency(self) -> float:
        """The seconds from a request to its results if no other request runs."""
        return sum(s.seconds + s.copying for s in self.stages)

    @property
    def interval(self) -> float:
        """The seconds between two results of queued requests."""
        busy: dict[str, float] = {}
        for s in self.stages:
            busy[s.worker] = busy.get(s.worker, 0.0) + s.takes
        return max(busy.values())

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions at which the schedule is cut, including 0 and its length."""
        return (*(s.begin for s in self.stages), self.stages[-1].end)

    def worker(self, name: str) -> Worker:
        """Return a worker.

        Args:
            name: the name of the worker.

        Returns:
            The worker.
        """
        return next(w for w in self.workers if w.name == name)

    def summary(self) -> str:
        """Return one line with the nodes of each worker and the cuts.

        Returns:
            The line.
        """
        total = self.stages[-1].end
        where = ", ".join(f"{s.end - s.begin}/{total} nodes on {s.worker}" for s in self.stages)
        cuts = "; ".join(s.why for s in self.stages if s.why)
        return f"{where}; {cuts or 'nothing is cut'}"

    def __str__(self) -> str:
        lines = [f"placement of {_quoted(self.name)} for {self.goal}"]
        if self.within:
            lines[0] += f" within {self.within!r}"
        lines += map(_worker_line, self.workers)
        lines += [f"split {_quoted(name)} into {count}" for name, count in self.splits.items()]
        for s in self.stages:
            if s.begin:
                lines.append(f"cut before {_quoted(s.first)}: {s.crossing} bytes, {s.why}")
            lines.append(_stage_line(s))
        return "\n".join(lines) + "\n"

    @staticmethod
    def parse(text: str) -> Placement:
        """Read the text of a placement.

        Args:
            text: the text that `str` returned.

        Returns:
            The placement.

        Raises:
            ParseError: if the text is not a placement; the error names the line.
        """
        return _parsed(text)


def _quoted(name: str) -> str:
    return "'" + name.replace("\\", r"\\").replace("'", r"\'").replace("\n", r"\n") + "'"


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)


def _worker_line(w: Worker) -> str:
    words = [str(w.target), counted(w.threads, "thread")]
    if w.memory is not None:
        words.append(f"{w.memory} bytes")
    if w.link != Link():
        words.append(f"link {w.link.seconds!r} s {w.link.bandwidth!r} bytes/s")
    return f"worker {w.name}: {', '.join(words)}"


def _stage_line(s: Stage) -> str:
    also = "".join(f" and {r}" for r in s.replicas)
    return (
        f"stage {s.worker}{also}: nodes {s.begin} to {s.end} from {_quoted(s.first)}, "
        f"{s.seconds!r} s, {s.copying!r} s of copies, {s.nbytes} bytes"
    )


_NAME = r"'((?:[^'\\]|\\.)*)'"
_NUMBER = r"([-+0-9.einfa]+)"
_HEAD = re.compile(rf"placement of {_NAME} for (\w+)(?: within {_NUMBER})?")
_WORKER = re.compile(
    rf"worker ([\w.-]+): (.+?), (\d+) threads?(?:, (\d+) bytes)?"
    rf"(?:, link {_NUMBER} s {_NUMBER} bytes/s)?"
)
_STAGE = re.compile(
    rf"stage ([\w.-]+)((?: and [\w.-]+)*): nodes (\d+) to (\d+) from {_NAME}, "
    rf"{_NUMBER} s, {_NUMBER} s of copies, (\d+) bytes"
)
_SPLIT = re.compile(rf"split {_NAME} into (\d+)")
_CUT = re.compile(rf"cut before {_NAME}: (\d+) bytes, (.*)")


def _parsed(text: str) -> Placement:
    lines = [line for line in text.splitlines() if line.strip()]
    name, goal, within = _matched(_HEAD, lines, 0).groups()
    known: dict[str, Goal] = {"latency": "latency", "throughput": "throughput"}
    if goal not in known:
        raise ParseError(f"line 1: a placement for '{goal}', expected {' or '.join(known)}")
    workers: list[Worker] = []
    stages: list[Stage] = []
    splits: dict[str, int] = {}
    cut: tuple[int, str] = (0, "")
    for k, line in enumerate(lines[1:], 1):
        if line.startswith("worker "):
            workers.append(_worker(_matched(_WORKER, lines, k)))
        elif line.startswith("split "):
            m = _matched(_SPLIT, lines, k)
            splits[_unquoted(m[1])] = int(m[2])
        elif line.startswith("cut "):
            m = _matched(_CUT, lines, k)
            cut = int(m[2]), m[3]
        else:
            m = _matched(_STAGE, lines, k)
            also = tuple(m[2].split(" and ")[1:])
            stages.append(
                Stage(m[1], int(m[3]), int(m[4]), _unquoted(m[5]), _number(m[6], k),
                      _number(m[7], k), int(m[8]), *cut, also)
            )  # fmt: skip
            cut = 0, ""
    _check(stages, workers)
    share = 0.0 if within is None else _number(within, 0)
    return Placement(_unquoted(name), known[goal], tuple(workers), tuple(stages), share, splits)


def _matched(pattern: re.Pattern[str], lines: Sequence[str], k: int) -> re.Match[str]:
    line = lines[k] if k < len(lines) else ""
    m = pattern.fullmatch(line)
    if m is None:
        raise ParseError(f"line {k + 1}: expected a line of a placement, found '{line}'")
    return m


def _number(text: str, k: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParseError(f"line {k + 1}: expected a number, found '{text}'") from None


def _worker(m: re.Match[str]) -> Worker:
    seconds, bandwidth = m[5], m[6]
    link = Link() if seconds is None else Link(float(seconds), float(bandwidth))
    memory = None if m[4] is None else int(m[4])
    return Worker(m[1], Target.parse(m[2]), int(m[3]), memory, link)


def _check(stages: Sequence[Stage], workers: Sequence[Worker]) -> None:
    """Raise ParseError unless stages are of the workers, and each begins where one ends."""
    if not stages:
        raise ParseError("the placement has no stages, expected 1 or more")
    names = {w.name for w in workers}
    at = 0
    for s in stages:
        if unknown := {s.worker, *s.replicas} - names:
            found, known = ", ".join(sorted(unknown)), ", ".join(sorted(names))
            raise ParseError(f"stage {s.begin} is on {found}, expected workers: {known}")
        if s.begin != at or s.end <= at or not math.isfinite(s.seconds + s.copying):
            raise ParseError(f"a stage has nodes {s.begin} to {s.end}, expected them from {at} on")
        at = s.end
