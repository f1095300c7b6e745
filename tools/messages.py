"""List error messages that name what was found, but neither what was expected nor what to try.

    python tools/messages.py [PATH ...]

A message is complete if it says "expected", "supported" or "limit", or comes with a hint.  Literal
text is judged, so a message that another function writes is judged where it is written.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

SOURCE = Path("src/alpenglow")

COMPLETE = re.compile(r"\b(?:expected|supported|did you mean|limit|already|missing)\b|\btry:")
"""Words of which one says what should have been there."""

VALUE = re.compile(r"\{[^{}]*\}")
"""A value in a message, whose name in the code says nothing to its reader."""

METHODS = {"wrong", "refuse", "error", "refusal", "Refused"}
"""Functions that make an error of their first string."""

QUOTED = re.compile(r"\{(?:\w+\.)?(?:message|strerror|why|problem|reason)\}")
"""Values that are the messages of other errors."""

SILENT = {
    "AssertionError", "AttributeError", "CancelledError", "KeyError", "RaceError", "StopIteration",
}  # fmt: skip


def is_maker(name: str) -> bool:
    """Return True if a function of this name makes an error that users read."""
    return name in METHODS or (name.endswith("Error") and name not in SILENT)


def called(call: ast.Call) -> str:
    """Return the last word of what is called, or ""."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def literal(node: ast.AST) -> str:
    """Return the text that a string expression holds, values in it as {}."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(literal(part) for part in parts)
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return literal(left) + literal(right)
        case ast.IfExp(body=body, orelse=orelse):
            return f"{literal(body)} | {literal(orelse)}"
        case ast.Name(id=name):
            return f"{{{name}}}"
    return "{…}"


def is_complete(call: ast.Call, text: str) -> bool:
    """Return True if a message says what was expected or what to try, or is written elsewhere."""
    if any(k.arg in ("hint", "flags") for k in call.keywords):
        return True
    plain = text.replace(" ", "")
    is_foreign = plain.startswith("{") and plain.endswith("}") and plain.count("{") == 1
    return bool(is_foreign or QUOTED.search(text) or COMPLETE.search(VALUE.sub("", text)))


def incomplete(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each incomplete message of a file of Python."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not is_maker(called(node)) or not node.args:
            continue
        if isinstance(node.args[0], (ast.Constant, ast.JoinedStr, ast.BinOp, ast.IfExp)):
            text = literal(node.args[0])
            if not is_complete(node, text):
                yield node.lineno, text


def files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield files of Python at some paths and in folders, in order."""
    for path in paths:
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def main(arguments: Sequence[str]) -> int:
    """Print incomplete messages; return 1 if there are any."""
    lines = [
        f"{path}:{line}: {text}"
        for path in files([Path(a) for a in arguments] or [SOURCE])
        for line, text in incomplete(path)
    ]
    print("\n".join([*lines, f"{len(lines)} incomplete"]))
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
