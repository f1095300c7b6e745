"""How much stack code needs, read off the assembly that LLVM writes.

A function's frame is what it takes from the stack pointer: registers pushed, and what is subtracted
from it.  Its lines are read in order, and whatever is subtracted is added up, so the sum may be
larger than the frame but never smaller.  A form that is not known is a mistake of ours and found
here, not guessed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping

from alpenglow.base.memory import ALIGNMENT
from alpenglow.ir.target import Target

_LABEL = re.compile(r'^"?(?P<name>[\w.$]+)"?:')

VECTOR_NBYTES = 128
"""The longest vector register of RISC-V for which a bound holds: spilled, it takes stack."""

RED_ZONE = {"x86-64": 128}
"""What a function may use below the stack pointer without taking it."""


def frames(assembly: str, target: Target) -> dict[str, int]:
    """Return the bytes of stack that each function takes for itself."""
    read = _READERS[target.architecture]
    return {name: read(lines) for name, lines in _functions(assembly)}


def deepest(frames: Mapping[str, int], assembly: str, entry: str, target: Target) -> int:
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

    return depth(entry) + RED_ZONE.get(target.architecture, 0)


def _functions(assembly: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each function's name and the lines of its code."""
    known = set(re.findall(r'^\s*\.type\s+"?([\w.$]+)"?,\s*[@%]function', assembly, re.MULTILINE))
    marked = len(re.findall(r"^\s*\.type\s.*,\s*[@%]function", assembly, re.MULTILINE))
    assert len(known) == marked, "a function has a name that is not read"
    name, lines = "", list[str]()
    for line in assembly.splitlines():
        label = _LABEL.match(line)
        if label and label["name"] in known:
            name, lines = label["name"], []
        elif name and re.match(rf'\s*(\.size\s+"?{re.escape(name)}"?,|end_function$)', line):
            yield name, lines
            name = ""
        elif name:
            lines.append(line)


def _mentioned(lines: list[str], names: Mapping[str, int]) -> set[str]:
    words = re.compile(r"[\w.$]+")
    return {w.removesuffix("@PLT") for line in lines for w in words.findall(line)} & names.keys()


class _Frame:
    """Adds up what is taken, and knows the constants that registers hold."""

    def __init__(self) -> None:
        self.nbytes = 0
        self.registers: dict[str, int] = {}

    def take(self, amount: str) -> None:
        """Take a number, or what a register holds."""
        if re.fullmatch(r"#?-?(0x[0-9a-f]+|\d+)", amount):
            self.nbytes += abs(int(amount.lstrip("#"), 0))
            return
        assert amount in self.registers, f"stack is taken by an unknown number, {amount}"
        self.nbytes += abs(self.registers[amount])

    def align(self) -> None:
        self.nbytes += ALIGNMENT


def _x86(lines: list[str]) -> int:
    frame = _Frame()
    frame.take("8")
    for line in lines:
        op, args = _split(line)
        if op == "pushq":
            frame.take("8")
        elif op == "subq" and args[-1] == "%rsp":
            assert args[0].startswith("$"), f"stack is taken by an unknown number: {line}"
            frame.take(args[0][1:])
        elif op == "andq" and args[-1] == "%rsp":
            frame.align()
    return frame.nbytes


def _arm(lines: list[str]) -> int:
    frame = _Frame()
    for line in lines:
        op, args = _split(line)
        op = op.removesuffix(".w")
        if op in ("push", "vpush"):
            frame.take(str((8 if op == "vpush" else 4) * len(args)))
        elif op == "movw":
            frame.registers[args[0]] = int(args[1][1:], 0) if args[1][0] == "#" else 0
        elif op == "movt" and args[1][0] == "#":
            frame.registers[args[0]] = frame.registers.get(args[0], 0) | int(args[1][1:], 0) << 16
        elif op in ("mov", "mov.w") and args[-1][0] == "#":
            frame.registers[args[0]] = int(args[1][1:], 0)
        elif op in ("sub", "subw") and args[0] == "sp" and args[1] != "sp" and len(args) == 2:
            frame.take(args[1])
        elif op in ("sub", "subw") and args[:2] == ["sp", "sp"]:
            frame.take(args[2])
        elif op in ("bfc", "bic") or (op == "mov" and args[0] == "sp"):
            frame.align()
        elif line.rstrip().endswith("]!") and (match := re.search(r"\[sp, #(-\d+)\]!", line)):
            frame.take(match[1])
    return frame.nbytes


def _aarch64(lines: list[str]) -> int:
    frame = _Frame()
    for line in lines:
        op, args = _split(line)
        if op == "mov" and args[-1][0] == "#":
            frame.registers[args[0].replace("w", "x")] = int(args[1][1:], 0)
        elif op == "sub" and args[1] == "sp":
            shifted = len(args) == 4 and args[3] == "lsl #12"
            frame.take(str(int(args[2][1:], 0) << 12) if shifted else args[2])
        elif op == "and" and args[0] == "sp":
            frame.align()
        elif line.rstrip().endswith("]!") and (match := re.search(r"\[sp, #(-\d+)\]!", line)):
            frame.take(match[1])
        assert op != "addvl", f"scalable vectors on the stack: {line}"
    return frame.nbytes


def _riscv(lines: list[str]) -> int:
    frame = _Frame()
    known = frame.registers
    for line in lines:
        op, args = _split(line)
        if op == "addi" and args[:2] == ["sp", "sp"]:
            frame.take(args[2] if args[2].startswith("-") else "0")
        elif op == "sub" and args[:2] == ["sp", "sp"]:
            frame.take(args[2])
        elif op == "andi" and args[0] == "sp":
            frame.align()
        elif op == "csrr" and args[1] == "vlenb":
            known[args[0]] = VECTOR_NBYTES
        elif op in ("lui", "li") and re.fullmatch(r"-?\d+", args[1]):
            known[args[0]] = int(args[1]) << (12 if op == "lui" else 0)
        elif op in _RISCV and args[1] in known:
            first, second = known[args[1]], known.get(args[2], _number(args[2]))
            known.pop(args[0], None)
            if second is not None:
                known[args[0]] = _RISCV[op](first, second)
    return frame.nbytes


_RISCV: Mapping[str, Callable[[int, int], int]] = {
    "addi": lambda a, b: a + b,
    "addiw": lambda a, b: a + b,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "slli": lambda a, b: a << b,
    "sh1add": lambda a, b: (a << 1) + b,
    "sh2add": lambda a, b: (a << 2) + b,
    "sh3add": lambda a, b: (a << 3) + b,
}
"""How registers that hold constants are computed from others."""


def _wasm(lines: list[str]) -> int:
    """Return what is taken of the stack in memory; there is one of values besides."""
    frame = _Frame()
    for number, line in enumerate(lines):
        if _split(line) == ("global.get", ["__stack_pointer"]):
            following = [_split(text) for text in lines[number + 1 : number + 8]]
            for (op, args), (what, _) in itertools.pairwise(following):
                if op == "global.set":
                    break
                if (op, what) == ("i32.const", "i32.sub"):
                    frame.take(args[0])
                elif (op, what) == ("i32.const", "i32.and"):
                    frame.align()
    return frame.nbytes


_READERS: Mapping[str, Callable[[list[str]], int]] = {
    "x86-64": _x86,
    "arm": _arm,
    "aarch64": _aarch64,
    "riscv64": _riscv,
    "wasm32": _wasm,
}


def _split(line: str) -> tuple[str, list[str]]:
    """Return the mnemonic and the operands of a line."""
    op, _, rest = line.strip().partition("\t")
    rest = re.split(r"\s(?:@|//|#(?!-?\d|0x))", rest)[0]
    args = [a.strip(" {}") for a in rest.split(",")]
    return op, args if args != [""] else [" "]


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d+", text) else None
