"""Read protocol buffers without their schema: as text, and as bytes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from alpenglow.base.errors import ModelError

DEEPEST = 50  # messages that are nested in a text; a network needs four levels
_TOKEN = re.compile(
    r"\s+|#.*|(?P<token>\"[^\"\\\n]*\"|'[^'\\\n]*'|-?[\w.]+(?:(?<=[eE])[-+]\w+)?|[{}:,;])"
)
_MARKS = {*"{}:,;", ""}
_SIZES = {1: 8, 5: 4}  # bytes of a value by wire type

Numbers = defaultdict[int, list[int]]
Spans = defaultdict[int, list[memoryview]]


class Message(dict[str, list[Any]]):
    """The values of fields by name, messages and scalars, and the line where it begins."""

    line = 1


def read_text(text: str) -> Message:
    """Return the message that a text is; raise ModelError, with the line, if it is damaged."""
    return _message(list(_tokens(text))[::-1], "", 0)


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Yield words, strings and marks with their lines, and "" at last."""
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ModelError(f"line {line}: {text[at]!r} is not expected here")
        if match["token"]:
            yield match["token"], line
        at, line = match.end(), line + match[0].count("\n")
    yield "", line


def _message(rest: list[tuple[str, int]], closing: str, depth: int) -> Message:
    """Return the fields up to a closing mark, taken from the end of the tokens that are left."""
    message = Message()
    while (name := rest[-1][0]) != closing:
        line = _take(rest, name not in _MARKS and depth < DEEPEST, "the name of a field")[1]
        has_colon, values = _takes(rest, ":"), message.setdefault(name, [])
        if _takes(rest, "{"):
            values.append(_message(rest, "}", depth + 1))
            values[-1].line = line
        else:
            is_value = has_colon and rest[-1][0] not in _MARKS
            values.append(_scalar(_take(rest, is_value, f"a value of {name}")[0]))
        _takes(rest, ",;")
    rest.pop()
    return message


def _takes(rest: list[tuple[str, int]], marks: str) -> bool:
    """Return True if the next token is one of some marks, and take it."""
    return rest[-1][0] in {*marks} and bool(rest.pop())


def _take(rest: list[tuple[str, int]], is_right: bool, expected: str) -> tuple[str, int]:
    """Return the next token, and take it; raise ModelError unless it is right."""
    text, line = rest[-1]
    if not is_right:
        raise ModelError(f"line {line}: found {text or 'the end of the file'}, expected {expected}")
    return rest.pop()


def _scalar(text: str) -> str | float:
    if text[0] in "\"'" or text in ("true", "false"):
        return text[1:-1] if text[0] in "\"'" else text == "true"
    for kind in (lambda word: int(word, 0), float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_bytes(data: memoryview) -> tuple[Numbers, Spans]:
    """Return the fields of a message by number: those that are numbers, and the bytes of others."""
    numbers, spans, at = Numbers(list), Spans(list), 0
    while at < len(data):
        key, at = read_varint(data, at)
        if key & 7 == 0:
            number, at = read_varint(data, at)
            numbers[key >> 3].append(number)
            continue
        size, at = read_varint(data, at) if key & 7 == 2 else (_SIZES[key & 7], at)
        if size > len(data) - at:
            raise ValueError(f"a field has {len(data) - at} of {size} bytes")
        spans[key >> 3].append(data[at : at + size])
        at += size
    return numbers, spans


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number that is written seven bits a byte, and where it ends."""
    for i in range(10):
        if data[at + i] < 0x80:
            run = data[at : at + i + 1]
            return sum((byte & 0x7F) << 7 * n for n, byte in enumerate(run)), at + i + 1
    raise ValueError("a number has more than ten bytes")
