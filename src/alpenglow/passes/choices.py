"""Choices that passes take by rule, and that a tuning record may take otherwise.

A *problem* is a contraction with its types on a target; for each there are a few ways to compute
it, all right.  The rules choose by an estimate.  `alpenglow tune` measures, and writes down what
was faster; a record only ever changes how fast the code is, and, where Winograd's way is taken or
left, how it rounds.

A record is plain text, a problem a line, so that it can be read, shipped and merged:

    conv f32[1,64,56,56] f32[64,64,3,3] strides=(1,1) on x86-64 znver4 lanes=16 : winograd=4 width=2

There `winograd` is the size of blocks, 0 for direct convolution.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from alpenglow.base.errors import ParseError
from alpenglow.ir.dims import is_open
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.ir.types import TensorType

Ways = Mapping[str, int]
"""How a problem is computed: a number for each choice."""

LINE = re.compile(r"(?P<problem>\S.*\S) : (?P<ways>\w+=[0-9]{1,9}(?: \w+=[0-9]{1,9})*)")


@dataclass(frozen=True, slots=True)
class Record:
    """Hold the fastest choices that `alpenglow tune` measured, by problem.

    Args:
        problems: the choices of each problem, such as a convolution with its shapes and target.

    Example:
        >>> record = ag.Record.parse(str(ag.Record()))
        >>> record == ag.Record()
        True
    """

    problems: Mapping[str, Ways] = field(default_factory=dict)

    @staticmethod
    def read(path: Path) -> Record:
        """Read a record from a file.

        Args:
            path: the file.

        Returns:
            The record.

        Raises:
            ParseError: if the file holds no record; the error names file and line.
        """
        try:
            return Record.parse(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ParseError(
                f"cannot read the record of choices: {error.strerror}",
                file=str(path),
                hint="the path of a file that tuning wrote",
            ) from error
        except UnicodeDecodeError as error:
            raise ParseError(f"expected text in UTF-8: {error}", file=str(path)) from error
        except ParseError as error:
            raise error.located(file=str(path)) from None

    @staticmethod
    def parse(text: str) -> Record:
        """Read the text that `str` returned.

        Args:
            text: the lines; of two lines about one problem the later one counts.

        Returns:
            The record.

        Raises:
            ParseError: if the text is not a record.
        """
        problems: dict[str, Ways] = {}
        for number, line in enumerate(text.splitlines(), 1):
            content = line.split("#")[0].strip()
            if not content:
                continue
            m = LINE.fullmatch(content)
            if m is None:
                raise ParseError(
                    f"line {number} is '{line}', expected PROBLEM : CHOICE=NUMBER …"
                )
            pairs = (pair.split("=") for pair in m["ways"].split())
            problems[m["problem"]] = {name: int(value) for name, value in pairs}
        return Record(problems)

    def __str__(self) -> str:
        lines = (f"{problem} : {' '.join(f'{k}={v}' for k, v in sorted(ways.items()))}\n"
                 for problem, ways in sorted(self.problems.items()))  # fmt: skip
        return "".join(lines)

    def merged(self, other: Record) -> Record:
        """Return the choices of both records.

        Args:
            other: the record that counts for problems that both have.

        Returns:
            The merged record.
        """
        return Record({**self.problems, **other.problems})


@dataclass(frozen=True, slots=True)
class Problem:
    """A contraction of x by constant weights w, and the machine that computes it."""

    op: Op
    x: TensorType
    w: TensorType
    target: Target

    def __str__(self) -> str:
        """The text by which a record knows the problem."""
        attributes = [f"{k}={v!r}".replace(" ", "") for k, v in self.op.attributes()]
        machine = (
            f"{self.target.architecture} {self.target.cpu or 'any'} lanes={self.target.facts.lanes}"
        )
        return " ".join([self.op.name, str(self.x), str(self.w), *attributes, "on", machine])

    def choose(self, what: str, default: int, *others: int) -> int:
        """Return the entry of the present record for a choice, else the default.

        The choice is among the default and `others`.
        """
        if any(is_open(d) for t in (self.x, self.w) for d in t.shape):
            return default
        text = str(self)
        met = _met.get()
        if met is not None:
            met.setdefault(text, Met(self)).choices[what] = (default, *others)
        record = _record.get() or Record()
        chosen = record.problems.get(text, {}).get(what, default)
        return chosen if chosen in others else default


@dataclass(slots=True)
class Met:
    """A problem that passes met, and what there was to choose: the default first."""

    problem: Problem
    choices: dict[str, tuple[int, ...]] = field(default_factory=dict)


_record: ContextVar[Record | None] = ContextVar("record", default=None)
_met: ContextVar[dict[str, Met] | None] = ContextVar("met", default=None)


@contextlib.contextmanager
def tuned(record: Record) -> Iterator[None]:
    """Let `record` choose in this block."""
    token = _record.set(record)
    try:
        yield
    finally:
        _record.reset(token)


@contextlib.contextmanager
def meeting() -> Iterator[dict[str, Met]]:
    """Yield a dictionary that collects the problems which passes meet in this block."""
    met: dict[str, Met] = {}
    token = _met.set(met)
    try:
        yield met
    finally:
        _met.reset(token)
