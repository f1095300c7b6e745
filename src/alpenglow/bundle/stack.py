"""How much stack code needs, read off the assembly that LLVM writes.

A function's frame is what its prologue takes: registers pushed, and what is subtracted from the
stack pointer.  A form of it that is not known is a mistake of ours and found here, not guessed.
Nothing that LLVM emits for kernels takes stack by a number known at run time only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from alpenglow.ir.target import Target

_LABEL = re.compile(r'^"?(?P<name>[\w.$]+)"?:')
_NUMBER = r"#?(?P<n>-?(?:0x)?[0-9a-fA-F]+)"


def frames(assembly: str, target: Target) -> dict[str, int]:
    """Return the bytes of stack that each function takes for itself, its return address included."""
    read = _READERS[target.architecture]
    return {name: read(lines) for name, lines in _functions(assembly)}


def deepest(frames: Mapping[str, int], assembly: str, entry: str) -> int:
    """Return the most bytes of stack that a call of `entry` takes, functions by address included.

    Which function calls which is read off the names in its code; nothing recurses.
    """
    users = dict(_functions(assembly))
    calls = {name: _mentioned(lines, frames) - {name} for name, lines in users.items()}
    known: dict[str, int] = {}

    def depth(name: str) -> int:
        if name not in known:
            known[name] = frames[name] + max(map(depth, sorted(calls[name])), default=0)
        return known[name]

    return depth(entry)


def _functions(assembly: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each function's name and the lines of its code."""
    known = set(re.findall(r'^\s*\.type\s+"?([\w.$]+)"?,\s*[@%]function', assembly, re.MULTILINE))
    name, lines = "", []
    for line in assembly.splitlines():
        label = _LABEL.match(line)
        if label and label["name"] in known:
            name, lines = label["name"], []
        elif name and re.match(r'\s*\.size\s+"?' + re.escape(name) + '"?,', line):
            yield name, lines
            name = ""
        elif name:
            lines.append(line)


def _mentioned(lines: list[str], names: Mapping[str, int]) -> set[str]:
    words = re.compile(r"[\w.$]+")
    return {w.removesuffix("@PLT") for line in lines for w in words.findall(line)} & names.keys()


def _numbers(pattern: str, lines: list[str]) -> int:
    """Return the sum of the numbers that a pattern finds."""
    form = re.compile(pattern.replace("NUMBER", _NUMBER))
    return sum(abs(int(m["n"], 0)) for line in lines if (m := form.search(line)))


def _x86(lines: list[str]) -> int:
    pushed = sum(bool(re.match(r"\s*pushq\s", line)) for line in lines)
    taken = _numbers(r"^\s*subq\s+\$NUMBER, %rsp", lines)
    aligned = _numbers(r"^\s*andq\s+\$NUMBER, %rsp", lines)
    return 8 + 8 * pushed + taken + aligned
