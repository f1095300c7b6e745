"""How a model in parts goes on behind the graph of one, as text that reads back.

    then {
      %y, %n = string_split(%x, delimiter="-") at "StringSplit 's'"
      %h = loop(trips=%t, condition=none, carried=(%h0), captured=(%w)) body "step" at "Loop 'l'"
      needs %k
      rest 12
    }

Actions are done in order once the graph has run; the import of the rest, so many nodes, asks for
the elements of what it `needs`.  Bodies of loops and the rest are the front end's: of these a text
says what they are called and how much they are, and nothing goes on from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.op import Host
from alpenglow.ir.staged import Action, Apply, Known, Loop, Part, Scan, StagedModel
from alpenglow.ir.text import WORD, Lines, application_text, parse_application, quote, unquote

NAME = rf"(?:none|%{WORD})"
LIST = rf"(?:{NAME}(?:, {NAME})*)?"


@dataclass(frozen=True, slots=True)
class Continuation:
    """What is done behind the graph of a part, and how much of the model is left."""

    actions: tuple[Action, ...]
    needs: tuple[str, ...]
    rest: int

    @staticmethod
    def of(part: Part) -> Continuation:
        """Return how a model goes on behind a part."""
        return Continuation(part.actions, part.needs, len(part.rest or ()))

    def __str__(self) -> str:
        return "\n".join(["then {", *(f"  {line}" for line in _lines(self)), "}"])


class Unread(StagedModel):
    """The body of a loop in a text, which holds no more of it than its name."""

    def __init__(self, name: str) -> None:
        self.name, self.file = name, ""
        self.inputs, self.outputs, self.kinds, self.constants = {}, {}, {}, {}

    def begin(self) -> Any:
        raise self._unread()

    def part(self, rest: Any, known: Known) -> Part:
        raise self._unread()

    def _unread(self) -> UnsupportedError:
        return UnsupportedError(
            f"the text of a stage holds only the name of loop body '{self.name}', so it cannot run",
            hint="run the model that the text is of",
        )


# ── printing ──


def _lines(c: Continuation) -> Iterator[str]:
    for action in c.actions:
        yield f"{_names(action.outputs)} = {_action_text(action)} at {quote(action.label)}"
    if c.needs:
        yield f"needs {_names(c.needs)}"
    if c.rest:
        yield f"rest {c.rest}"


def _action_text(action: Action) -> str:
    match action:
        case Apply():
            return application_text(action.op, [_name(n) for n in action.inputs])
        case Loop():
            fields = [
                f"trips={_name(action.trips)}", f"condition={_name(action.condition)}",
                _listed("carried", action.carried), _listed("captured", action.captured),
                _listed("appended", _flat(action.appended)),
                _listed("picked", _flat(action.picked)),
            ]  # fmt: skip
            kind = "loop"
        case Scan():
            axes = [
                f"{a}-" if r else f"{a}" for a, r in zip(action.axes, action.reverse, strict=True)
            ]
            fields = [
                _listed("states", action.states), _listed("scanned", action.scanned),
                _listed("captured", action.captured), f"axes=({', '.join(axes)})",
                f"batched={action.batched}", f"lengths={_name(action.lengths)}",
            ]  # fmt: skip
            kind = "scan"
    return f"{kind}({', '.join(fields)}) body {quote(action.body.name)}"


def _listed(field: str, names: Sequence[str]) -> str:
    return f"{field}=({_names(names)})"


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(_name, names))


def _name(name: str) -> str:
    return f"%{quote(name)}" if name else "none"


def _flat(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [name for pair in pairs for name in pair]


# ── parsing ──


def split(text: str) -> tuple[str, str]:
    """Return the text of a graph or program, and that of how it goes on, "" if it is all."""
    at = re.search(r"(?m)^then \{$", text)
    return (text, "") if at is None else (text[: at.start()], text[at.start() :])


def parse_continuation(text: str) -> Continuation:
    """Read what `str` of a Continuation wrote; raise ParseError where it is none."""
    source = Lines(text)
    source.match(r"then {", "then {")
    actions: list[Action] = []
    needs: tuple[str, ...] = ()
    rest = 0
    while (line := source.peek()) != "}":
        if line.startswith("needs "):
            needs = _read(source.match(rf"needs ({LIST})", "needs %NAME, …")[1])
        elif line.startswith("rest "):
            rest = int(source.match(r"rest (\d+)", "rest N")[1])
        else:
            actions.append(_parse_action(source))
    source.take()
    source.end()
    return Continuation(tuple(actions), needs, rest)


def _parse_action(source: Lines) -> Action:
    m = source.match(
        rf"({LIST}) = (\w+)\((.*)\)(?: body ({WORD}))? at ({WORD})", "%NAME, … = ACTION(…) at LABEL"
    )
    outputs, label = _read(m[1]), unquote(m[5])
    if m[4] is None:
        words, op = parse_application(m[2], m[3], source)
        if not isinstance(op, Host):
            raise source.error(f"{op.name}: expected an operator that runs in Python", m[0])
        return Apply(label, op, _read(", ".join(words)), outputs)
    body = Unread(unquote(m[4]))
    if m[2] == "loop":
        f = _fields(
            source, m[3], "trips", "condition", "(carried", "(captured", "(appended", "(picked"
        )
        return Loop(
            label, body, _one(f[0]), _one(f[1]), _read(f[2]), _read(f[3]), outputs,
            _pairs(_read(f[4])), _pairs(_read(f[5])),
        )  # fmt: skip
    f = _fields(source, m[3], "(states", "(scanned", "(captured", "(axes", "batched", "lengths")
    axes = [a for a in f[3].split(", ") if a]
    return Scan(
        label, body, _read(f[0]), _read(f[1]), _read(f[2]), outputs,
        tuple(int(a.rstrip("-")) for a in axes), tuple(a.endswith("-") for a in axes),
        f[4] == "True", _one(f[5]),
    )  # fmt: skip


def _fields(source: Lines, text: str, *names: str) -> list[str]:
    """Return the texts of fields that follow each other; lists stand in parentheses."""
    value = {True: rf"\(({LIST}|(?:\d+-?(?:, \d+-?)*)?)\)", False: rf"({NAME}|True|False)"}
    pattern = ", ".join(f"{n.lstrip('(')}={value[n.startswith('(')]}" for n in names)
    m = re.fullmatch(pattern, text)
    if m is None:
        raise source.error(f"expected {', '.join(n.lstrip('(') + '=…' for n in names)}", text)
    return list(m.groups())


def _read(text: str) -> tuple[str, ...]:
    return tuple("" if n == "none" else unquote(n[1:]) for n in re.findall(NAME, text))


def _one(text: str) -> str:
    (name,) = _read(text)
    return name


def _pairs(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(names[::2], names[1::2], strict=True))
