"""Flatbuffers, read lazily from bytes that may be hostile.

A table begins with the way back to its vtable, which says where each field lies, 0 for one that is
absent.  Strings, vectors and tables are reached by offsets forward.  Nothing is read before it is
asked for, nothing is copied, and each offset is checked against the file: what lies outside raises
ModelError that names the field and the byte.

Offsets of fields go forward, so no table holds itself.  But many offsets may lead to one table: the
number of tables that a file may be read as is bounded by its size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.ir.types import Array

SCALARS: Mapping[str, np.dtype[Any]] = {
    "bool": np.dtype("<u1"),
    "i8": np.dtype("<i1"),
    "u8": np.dtype("<u1"),
    "i16": np.dtype("<i2"),
    "u16": np.dtype("<u2"),
    "i32": np.dtype("<i4"),
    "u32": np.dtype("<u4"),
    "i64": np.dtype("<i8"),
    "u64": np.dtype("<u8"),
    "f32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
}

FORMATS = {"bool": "<B", "i8": "<b", "u8": "<B", "i16": "<h", "u16": "<H", "i32": "<i",
           "u32": "<I", "i64": "<q", "u64": "<Q", "f32": "<f", "f64": "<d"}  # fmt: skip

FEWEST_TABLES = 1 << 16
"""So many tables may be read from any file, and one more for each `BYTES_A_TABLE`."""

BYTES_A_TABLE = 4


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a table: its number, what it holds, and its value where it is absent.

    `kind` is a scalar of `SCALARS`, ``str``, ``union``, the name of a layout, or a vector of one of
    these in brackets.
    """

    number: int
    kind: str
    default: Any


Layout = Mapping[str, Field]
Layouts = Mapping[str, Layout]


class File:
    """The bytes of a file, and how many of its tables may still be read."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.tables_left = self.most_tables = max(FEWEST_TABLES, len(content) // BYTES_A_TABLE)

    def __len__(self) -> int:
        return len(self.content)

    def number(self, at: int, kind: str, what: str) -> Any:
        """Return the scalar at a byte."""
        self.check(at, SCALARS[kind].itemsize, what)
        return struct.unpack_from(FORMATS[kind], self.content, at)[0]

    def check(self, at: int, nbytes: int, what: str) -> None:
        """Raise ModelError unless so many bytes from a byte on are in the file."""
        if at < 0 or at + nbytes > len(self.content):
            raise ModelError(
                f"the file is damaged: {what} lies in bytes {at} to {at + nbytes}, "
                f"expected at most {len(self.content)}"
            )

    def target(self, at: int, what: str) -> int:
        """Return the byte that the offset at a byte leads to."""
        forward: int = self.number(at, "u32", f"the offset of {what}")
        self.check(at + forward, 4, what)
        if not forward:
            raise ModelError(f"the file is damaged: {what} has offset 0 at {at}, expected above 0")
        return at + forward

    def vector(self, at: int, width: int, what: str) -> tuple[int, int]:
        """Return the first byte of the elements of the vector at a byte, and their number."""
        count: int = self.number(at, "u32", f"the length of {what}")
        self.check(at + 4, count * width, f"{what}, of {count} elements,")
        return at + 4, count

    def text(self, at: int, what: str) -> str:
        """Return the string at a byte."""
        start, count = self.vector(at, 1, what)
        try:
            return self.content[start : start + count].decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"the file is damaged: {what} is not text, expected UTF-8") from error


class Table:
    """A table in a file; `path` is what messages call it."""

    __slots__ = ("_at", "_extent", "_file", "_layout", "_layouts", "_vtable", "path")

    def __init__(self, file: File, at: int, layout: str, layouts: Layouts, path: str) -> None:
        file.tables_left -= 1
        if file.tables_left < 0:
            most = file.most_tables
            raise ModelError(f"the file is damaged at {path}: expected at most {most} tables")
        self._file, self._at, self.path = file, at, path
        self._layout, self._layouts = layouts[layout], layouts
        vtable = at - file.number(at, "i32", path)
        what = f"the vtable of {path}"
        length = file.number(vtable, "u16", what)
        self._extent = file.number(vtable + 2, "u16", what)
        file.check(vtable, length, what)
        file.check(at, self._extent, path)
        if length < 4 or length % 2:
            raise ModelError(f"the file is damaged: {what} has {length} bytes, expected 4, 6, 8, …")
        self._vtable = file.content[vtable + 4 : vtable + length]

    def __contains__(self, name: str) -> bool:
        return self._place(name) is not None

    def number(self, name: str) -> Any:
        """Return a scalar field, or its default."""
        kind = self._layout[name].kind
        at = self._place(name)
        if at is None:
            return self._layout[name].default
        value = self._file.number(at, kind, f"{self.path}.{name}")
        return bool(value) if kind == "bool" else value

    def text(self, name: str) -> str:
        """Return a string; "" if it is absent."""
        at = self._follow(name)
        return "" if at is None else self._file.text(at, f"{self.path}.{name}")

    def array(self, name: str) -> Array:
        """Return a vector of scalars, in the memory of the file; an empty one if it is absent."""
        dtype = SCALARS[self._layout[name].kind[1:-1]]
        at = self._follow(name)
        if at is None:
            return np.empty(0, dtype)
        start, count = self._file.vector(at, dtype.itemsize, f"{self.path}.{name}")
        return np.frombuffer(self._file.content, dtype, count, start)

    def texts(self, name: str) -> list[str]:
        """Return a vector of strings; an empty one if it is absent."""
        path = f"{self.path}.{name}"
        at = self._follow(name)
        start, count = (0, 0) if at is None else self._file.vector(at, 4, path)
        places = [self._file.target(start + 4 * i, path) for i in range(count)]
        return [self._file.text(place, path) for place in places]

    def table(self, name: str) -> Table | None:
        """Return a table, or None if it is absent."""
        return self._table(name, self._layout[name].kind)

    def union(self, name: str, layout: str) -> Table | None:
        """Return a union that holds a table of this layout, or None if it is absent."""
        return self._table(name, layout)

    def tables(self, name: str) -> Tables:
        """Return a vector of tables, none of which is read yet; an empty one if it is absent."""
        layout, path = self._layout[name].kind[1:-1], f"{self.path}.{name}"
        at = self._follow(name)
        start, count = (0, 0) if at is None else self._file.vector(at, 4, path)
        return Tables(self._file, start, count, layout, self._layouts, path)

    def value(self, name: str) -> Any:
        """Return a field that is a scalar, a string, or a vector of scalars as a tuple."""
        kind = self._layout[name].kind
        if kind in SCALARS:
            return self.number(name)
        return self.text(name) if kind == "str" else tuple(self.array(name).tolist())

    def _table(self, name: str, layout: str) -> Table | None:
        at = self._follow(name)
        if at is None:
            return None
        return Table(self._file, at, layout, self._layouts, f"{self.path}.{name}")

    def _follow(self, name: str) -> int | None:
        """Return the byte that a field's offset leads to; None if the field is absent."""
        at = self._place(name)
        return None if at is None else self._file.target(at, f"{self.path}.{name}")

    def _place(self, name: str) -> int | None:
        """Return the byte at which a field lies; None if it is absent."""
        field = self._layout[name]
        entry = 2 * field.number
        if entry + 2 > len(self._vtable):
            return None
        offset = int.from_bytes(self._vtable[entry : entry + 2], "little")
        if not offset:
            return None
        width = SCALARS[field.kind].itemsize if field.kind in SCALARS else 4
        if offset + width > self._extent:
            raise ModelError(
                f"the file is damaged: {self.path}.{name} lies at offset {offset} of its table, "
                f"expected at most {self._extent - width}"
            )
        return self._at + offset


class Tables:
    """A vector of tables, each read when it is asked for."""

    def __init__(
        self, file: File, start: int, count: int, layout: str, layouts: Layouts, path: str
    ) -> None:
        self._file, self._start, self._count = file, start, count
        self._layout, self._layouts, self._path = layout, layouts, path

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: int) -> Table:
        path = f"{self._path}[{i}]"
        if not 0 <= i < self._count:
            found = f"index {i} of {self._path}"
            raise ModelError(f"the file is damaged: {found}, expected less than {self._count}")
        at = self._file.target(self._start + 4 * i, path)
        return Table(self._file, at, self._layout, self._layouts, path)

    def __iter__(self) -> Iterator[Table]:
        return (self[i] for i in range(self._count))


def root(content: bytes, layout: str, layouts: Layouts) -> Table:
    """Return the table that a file begins with."""
    file = File(content)
    return Table(file, file.target(0, layout), layout, layouts, layout)
