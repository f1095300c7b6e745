"""Recognize programs of StableHLO by their first bytes."""

from __future__ import annotations

import re
from typing import BinaryIO

BYTECODE = b"ML\xefR"
"""How bytecode of MLIR begins."""

LOOK = 1 << 16
"""So many bytes of a text tell whether it is a program."""

ENTRY = 4 + 2 * 13
"""The offset in a vtable of the entry for the module of an artifact."""

_BLANK = re.compile(rb"(?:\s+|//[^\n]*\n?)*")
_BEGIN = re.compile(
    rb"(?:#[\w.$]+\s*=|![\w.$]+\s*=|\"?(?:builtin\.)?module\b|\"?func\.func\b|\{-#)"
)
_DIALECT = re.compile(rb"\b(?:stablehlo|chlo|mhlo|vhlo|func)\.[a-z]|\bfunc\s+(?:@|public|private)")


def is_program(begin: bytes) -> bool:
    """Whether a file that begins so is a program of StableHLO, by a first look.

    Bytecode says so, and a text begins with a module, a function or an alias, behind comments, and
    names operations of a dialect that it may hold.
    """
    if begin[:4] == BYTECODE:
        return True
    blank = _BLANK.match(begin)
    start = blank.end() if blank else 0
    return _BEGIN.match(begin, start) is not None and _DIALECT.search(begin, start) is not None


def is_artifact(file: BinaryIO) -> bool:
    """Whether a file is what `jax.export` serializes: a flatbuffer whose module is bytecode.

    The module is field 13 of the table that the file begins with.
    """

    def number(at: int, width: int) -> int:
        file.seek(at)
        raw = file.read(width)
        return int.from_bytes(raw, "little") if len(raw) == width else 0

    table = number(0, 4)
    vtable = table - (number(table, 4) ^ (1 << 31)) + (1 << 31)
    if not 4 <= table < 1 << 16 or vtable < 4 or number(vtable, 2) < ENTRY + 2:
        return False
    field = table + number(vtable + ENTRY, 2)
    module = field + number(field, 4)
    file.seek(module + 4)
    return field > table and module > field and file.read(len(BYTECODE)) == BYTECODE


def is_exported(model: object) -> bool:
    """Whether an object is what `jax.export` makes."""
    return isinstance(getattr(model, "mlir_module_serialized", None), bytes | bytearray)
