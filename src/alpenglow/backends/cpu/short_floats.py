"""Short floats as integers, for machines without instructions that convert them.

There LLVM calls functions of a compiler's runtime, or for bf16 in WebAssembly ends the process.
Kernels compute in f32 and only load, compare, store and convert short floats, so IR text without
them is easily had: their type becomes i16, and conversions become arithmetic on bits, which vectors
have, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from alpenglow.backends.cpu.spelling import constant
from alpenglow.backends.cpu.writer import Writer
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Const

_TYPES = r"(?:<\d+ x (?:half|bfloat)>|half|bfloat)"
_WIDEN = re.compile(rf"  (?P<to>%\S+) = fpext (?P<kind>{_TYPES}) (?P<x>.+) to \S.*")
_NARROW = re.compile(rf"  (?P<to>%\S+) = fptrunc (?:<\d+ x float>|float) (?P<x>.+) to "
                     rf"(?P<kind>{_TYPES})")  # fmt: skip
_COMPARE = re.compile(rf"  (?P<to>%\S+) = fcmp(?P<how>[\w ]*) (?P<kind>{_TYPES}) "
                      r"(?P<x>.+), (?P<y>[^,]+)")  # fmt: skip

_NAMES = 1 << 30
"""Where names of values begin that no other function has."""

_CONVERTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "x86-64": {"half": ("f16c",), "bfloat": ("avx512bf16", "avxneconvert")},
    "arm": {"half": ("fp16", "vfp4", "vfp4d16sp", "fp-armv8d16sp")},
    "riscv64": {"half": ("zfh", "zfhmin")},
}
"""Features with which machines convert a type; those of AArch64 always do."""


def lacking(target: Target) -> frozenset[str]:
    """Return the short floats that `target` has no instructions for, as LLVM names them."""
    if target.architecture == "aarch64":
        return frozenset()
    known = _CONVERTS.get(target.architecture, {})
    return frozenset(t for t in ("half", "bfloat") if not any(map(target.has, known.get(t, ()))))


def as_integers(ir_text: str, types: frozenset[str]) -> str:
    """Return a module that does the same without `types`, of half and bfloat."""
    if not any(t in ir_text for t in types):
        return ir_text
    writer = Writer(fast=False)
    writer.count = _NAMES
    lines = (line for old in ir_text.splitlines() for line in _replaced(old, types, writer))
    text = "\n".join(lines) + "\n"
    for name, letter, short in (("half", "H", "f16"), ("bfloat", "R", "bf16")):
        if name in types:
            text = re.sub(rf"0x{letter}([0-9A-F]{{4}})\b", lambda m: str(int(m[1], 16)), text)
            text = re.sub(rf"(@llvm\.[\w.]*\.(?:v\d+)?){short}\b", r"\1i16", text)
            text = re.sub(rf"\b{name}\b", "i16", text)
    return text


def _replaced(line: str, types: frozenset[str], writer: Writer) -> Iterator[str]:
    found = _WIDEN.fullmatch(line) or _NARROW.fullmatch(line) or _COMPARE.fullmatch(line)
    if found is None or _scalar(found["kind"]) not in types:
        yield line
        return
    writer.lines.clear()
    result = _rewritten(found, writer)
    # The last instruction makes the value that the others know by its old name.
    *before, last = writer.lines
    yield from before
    yield last.replace(f"{result} =", f"{found['to']} =", 1)


def _rewritten(found: re.Match[str], writer: Writer) -> str:
    kind = found["kind"]
    scalar = _scalar(kind)
    lanes = int(kind[1:].partition(" ")[0]) if kind != scalar else 1
    if found.re is _WIDEN:
        return _widened(writer, lanes, scalar, found["x"])
    if found.re is _NARROW:
        narrowed = _cut if scalar == "bfloat" else _rounded
        return narrowed(writer, lanes, found["x"])
    x, y = (_widened(writer, lanes, scalar, found[i]) for i in "xy")
    return writer.emit(f"fcmp{found['how']} {kind.replace(scalar, 'float')} {x}, {y}")


def _scalar(kind: str) -> str:
    return kind.rstrip(">").rpartition(" ")[2]


class _Words:
    """Arithmetic on u32 by the lanes."""

    def __init__(self, writer: Writer, lanes: int) -> None:
        self.writer, self.lanes = writer, lanes

    def __call__(self, op: str, a: str, b: str | int) -> str:
        return self.writer.binary(op, "u32", self.lanes, a, self.number(b))

    def number(self, value: str | int) -> str:
        if isinstance(value, str):
            return value
        return constant(Const(value, "u32", self.lanes))

    def least(self, a: str, limit: int) -> str:
        """Whether a >= limit."""
        return self.writer.compare("ge", "u32", self.lanes, a, self.number(limit))

    def pick(self, flag: str, a: str, b: str) -> str:
        mask, kind = ("i1", "i32") if self.lanes == 1 else _vectors(self.lanes)
        return self.writer.emit(f"select {mask} {flag}, {kind} {a}, {kind} {b}")

    def cast(self, x: str, source: str, target: str) -> str:
        return self.writer.bitcast(x, source, target, self.lanes)


def _vectors(lanes: int) -> tuple[str, str]:
    return f"<{lanes} x i1>", f"<{lanes} x i32>"


def _widened(writer: Writer, lanes: int, scalar: str, x: str) -> str:
    """The f32 of a short float, which every one has exactly."""
    w = _Words(writer, lanes)
    bits = writer.convert(x, "u16", "u32", lanes)
    if scalar == "bfloat":
        return w.cast(w("shl", bits, 16), "u32", "f32")
    sign = w("shl", w("and", bits, 0x8000), 16)
    size = w("and", bits, 0x7FFF)
    moved = w("shl", size, 13)
    # The exponents count from elsewhere; a product moves those of subnormal numbers as well.
    scale = constant(Const(2.0**112, "f32", lanes))
    scaled = writer.binary("mul", "f32", lanes, w.cast(moved, "u32", "f32"), scale)
    special = w("or", moved, 0x7F800000)
    found = w.pick(w.least(size, 0x7C00), special, w.cast(scaled, "f32", "u32"))
    return w.cast(w("or", found, sign), "u32", "f32")


def _cut(writer: Writer, lanes: int, x: str) -> str:
    """The bits of a bf16, an f32's upper half, rounded to even."""
    w = _Words(writer, lanes)
    bits = w.cast(x, "f32", "u32")
    even = w("and", w("shr", bits, 16), 1)
    rounded = w("shr", w("add", w("add", bits, 0x7FFF), even), 16)
    quiet = w("or", w("shr", bits, 16), 0x40)
    found = w.pick(w.least(w("and", bits, 0x7FFFFFFF), 0x7F800001), quiet, rounded)
    return writer.convert(found, "u32", "u16", lanes)


def _rounded(writer: Writer, lanes: int, x: str) -> str:
    """The bits of the f16 next to an f32, the even one of two."""
    w = _Words(writer, lanes)
    bits = w.cast(x, "f32", "u32")
    size = w("and", bits, 0x7FFFFFFF)
    even = w("and", w("shr", size, 13), 1)
    normal = w("shr", w("add", w("add", size, 0xFFF - (112 << 23)), even), 13)
    # Beside 0.5 the last bit is that of the least f16, so adding rounds to a multiple of it.
    half = constant(Const(0.5, "f32", lanes))
    small = writer.binary("add", "f32", lanes, w.cast(size, "u32", "f32"), half)
    found = w.pick(
        w.least(size, 0x38800000), normal, w("sub", w.cast(small, "f32", "u32"), 0x3F000000)
    )
    found = w.pick(w.least(size, 0x47800000), w.number(0x7C00), found)
    quiet = w("or", w("and", w("shr", size, 13), 0x3FF), 0x7E00)
    found = w.pick(w.least(size, 0x7F800001), quiet, found)
    sign = w("and", w("shr", bits, 16), 0x8000)
    return writer.convert(w("or", found, sign), "u32", "u16", lanes)
