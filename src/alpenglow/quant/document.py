"""A small, strict part of YAML: enough for a profile, and readable by any reader of YAML.

A document is a mapping of keys to numbers, texts, lists of numbers in one line, and mappings, which
are indented by two more spaces.  Keys and texts that are no plain words stand in double quotes, as
in JSON.  Lines that begin with # are comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from alpenglow.base.errors import ParseError

Number = int | float
Entry = Number | str | list[Number] | dict[str, "Entry"]

PLAIN = re.compile(r"[A-Za-z_][\w./-]*")
RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "nan", "inf", "y", "n"})
LINE = re.compile(r'( *)("(?:[^"\\]|\\.)*"|[\w./-]+):(?: (\S.*))?')


def written(document: Mapping[str, Entry], notes: Mapping[str, str] | None = None) -> str:
    """Return a document as text; `notes` holds a comment to put before the mapping of a key."""
    return "\n".join(_lines(document, notes or {}, 0)) + "\n"


def parsed(text: str) -> dict[str, Entry]:
    """Read what `written` wrote.  Raises ParseError with the line that is something else."""
    root: dict[str, Entry] = {}
    stack: list[dict[str, Entry]] = [root]
    opened = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise ParseError(f"line {number}: expected KEY: VALUE, found '{line[:60]}'")
        depth, odd = divmod(len(match[1]), 2)
        if odd or depth > len(stack) - 1 or (opened and depth != len(stack) - 1):
            raise ParseError(f"line {number}: expected 2 spaces per level of the mappings")
        del stack[depth + 1 :]
        key = _word(match[2], number)
        if key in stack[-1]:
            raise ParseError(f"line {number}: the key '{key}' is already there")
        opened = match[3] is None
        if match[3] is None:
            inner: dict[str, Entry] = {}
            stack[-1][key] = inner
            stack.append(inner)
        else:
            stack[-1][key] = _value(match[3], number)
    return root


def _lines(document: Mapping[str, Entry], notes: Mapping[str, str], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for key, value in document.items():
        if isinstance(value, dict):
            if key in notes:
                yield f"{pad}# {notes[key]}"
            yield f"{pad}{_quoted(key)}:"
            yield from _lines(value, notes, depth + 1)
        else:
            yield f"{pad}{_quoted(key)}: {_text(value)}"


def _text(value: Number | str | list[Number]) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    # Older YAML knows a number with an exponent only by its point.
    return re.sub(r"^(-?\d+)e", r"\1.0e", repr(value))


def _quoted(text: str) -> str:
    plain = PLAIN.fullmatch(text) and text.lower() not in RESERVED
    return text if plain else json.dumps(text)


def _word(text: str, line: int) -> str:
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        raise ParseError(f"line {line}: expected text in double quotes, found {text}") from None


def _value(text: str, line: int) -> Entry:
    if text.startswith("["):
        if not text.endswith("]"):
            raise ParseError(f"line {line}: expected ] at the end of the list")
        return [_number(part.strip(), line) for part in text[1:-1].split(",") if part.strip()]
    if re.match(r"[-+.\d]", text):
        return _number(text, line)
    return _word(text, line)


def _number(text: str, line: int) -> Number:
    try:
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    except ValueError:
        raise ParseError(f"line {line}: expected a number, found '{text[:40]}'") from None
