"""Portable bytecode of StableHLO: MLIR's container, and operations of VHLO in it.

Operations are read at once; an attribute or type is read at its first use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.stablehlo.bytecode.bytes_reader import Bytes, Span, decoded
from alpenglow.frontends.stablehlo.module import DEEPEST
from alpenglow.frontends.stablehlo.text.look import BYTECODE

NEWEST_CONTAINER = 6
"""The newest version of the container that is read."""

STRINGS, DIALECTS, ENTRIES, OFFSETS, IR, PROPERTIES = 0, 1, 2, 3, 4, 8
"""Sections by number."""

VERSIONED, ORDERED, ELIDED, NATIVE = 1, 3, 4, 5
"""Versions since which dialects have versions, uses an order, places of arguments may be missing,
and attributes of operations are properties."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An attribute or a type that has not been read: its dialect, and where it is."""

    dialect: str
    span: Span
    custom: bool


class Container:
    """The tables of a file: strings, operations, attributes, types, properties."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        begin = Bytes(content, Span(0, len(content)), "the file")
        if content[:4] != BYTECODE:
            raise ModelError(f"the file begins with {content[:4]!r}, expected {BYTECODE!r}")
        begin.take(4)
        self.version = begin.number()
        if self.version > NEWEST_CONTAINER:
            raise UnsupportedError(
                f"version {self.version} of MLIR bytecode is not supported; "
                f"supported: up to {NEWEST_CONTAINER}"
            )
        self.producer = begin.text()
        sections: dict[int, Span] = {}
        while len(begin):
            number, span = begin.section()
            if number in sections:
                raise begin.error(f"section {number} occurs twice, expected once")
            sections[number] = span
        self._sections = sections
        self.strings = self._strings()
        self.operations = self._operations()
        self.attributes, self.types = self._entries()
        self.properties = self._properties()

    def section(self, number: int, what: str) -> Bytes:
        """Return a section; raise ModelError if it is missing."""
        if number not in self._sections:
            raise ModelError(f"the file is damaged: section {number}, {what}, is missing")
        return Bytes(self.content, self._sections[number], what)

    def part(self, span: Span, what: str) -> Bytes:
        """Return a part of the file."""
        return Bytes(self.content, span, what)

    def string(self, number: int, here: Bytes) -> str:
        """Return a string by number."""
        return self.strings[here.index("string", number, len(self.strings))]

    def _strings(self) -> list[str]:
        """Return the strings; their lengths come first, from the last string to the first."""
        x = self.section(STRINGS, "the strings")
        lengths = [x.number() for _ in range(x.count())]
        end = x.end
        strings: list[str] = []
        for length in lengths:
            start = end - length
            if length < 1 or start < x.at:
                raise x.error(f"a string has {length} bytes, expected 1 to {end - x.at}")
            strings.append(decoded(self.content[start : end - 1]))
            end = start
        return strings[::-1]

    def _operations(self) -> list[str]:
        """Return the names of operations, in the order of their numbers."""
        x = self.section(DIALECTS, "the dialects")
        self.dialects: list[str] = []
        for _ in range(x.count()):
            number = x.number()
            versioned = self.version >= VERSIONED and number & 1
            self.dialects.append(self.string(number >> (self.version >= VERSIONED), x))
            if versioned:
                x.section()
        if self.version >= ELIDED:
            x.number()
        names: list[str] = []
        while len(x):
            dialect = self._dialect(x)
            for _ in range(x.count()):
                number = x.number() >> (self.version >= NATIVE)
                name = self.string(number, x)
                names.append(f"{dialect}.{name}" if dialect else name)
        return names

    def _dialect(self, x: Bytes) -> str:
        return self.dialects[x.index("dialect", x.number(), len(self.dialects))]

    def _entries(self) -> tuple[list[Entry], list[Entry]]:
        """Return attributes and types: their lengths, by dialect, say where they lie."""
        x = self.section(OFFSETS, "the lengths of attributes and types")
        data = self.section(ENTRIES, "attributes and types")
        counts = x.number(), x.number()
        x.fits(sum(counts), "attributes and types")
        both: list[list[Entry]] = []
        for count in counts:
            entries: list[Entry] = []
            while len(entries) < count:
                dialect = self._dialect(x)
                for _ in range(x.count()):
                    length = x.number()
                    entries.append(Entry(dialect, data.take(length >> 1), bool(length & 1)))
            both.append(entries)
        return both[0], both[1]

    def _properties(self) -> list[Span]:
        if PROPERTIES not in self._sections:
            return []
        x = self.section(PROPERTIES, "the properties")
        return [x.take(x.number()) for _ in range(x.count())]


@dataclass(slots=True)
class Raw:
    """An operation as the container holds it: numbers of types, values and attributes."""

    name: str
    place: str
    attributes: int | None
    properties: Span | None
    results: list[int]
    types: list[int]
    operands: list[int]
    regions: list[list[RawBlock]]


@dataclass(slots=True)
class RawBlock:
    """Arguments by the numbers of their values, types and locations, and operations."""

    arguments: list[tuple[int, int, int | None]]
    operations: list[Raw]


class OperationReader:
    """Reads operations; values are numbered throughout the file."""

    def __init__(self, container: Container) -> None:
        self.file = container
        self.fresh = 0
        self.values: list[int | None] = []
        self.nexts: list[int] = []
        self._left = self._most = max(1 << 16, len(container.content))

    def blocks(self) -> RawBlock:
        """Return the block of the whole file."""
        x = self.file.section(IR, "the operations")
        return self._scope(lambda: self._block(x, 0), 0)

    def _scope(self, inside: Callable[[], RawBlock], count: int) -> RawBlock:
        """Read what has so many values of its own."""
        begin = len(self.values)
        self.nexts.append(begin)
        self.values += [None] * count
        made = inside()
        self.nexts.pop()
        del self.values[begin:]
        return made

    def define(self, x: Bytes) -> int:
        """Return the number of a value that is made here."""
        at = x.index("value", self.nexts[-1], len(self.values))
        self.nexts[-1] += 1
        self.values[at] = self.fresh
        self.fresh += 1
        return self.fresh - 1

    def _block(self, x: Bytes, depth: int) -> RawBlock:
        number = x.number()
        count, has_arguments = x.fits(number >> 1, "operations"), number & 1
        arguments = self._arguments(x) if has_arguments else []
        return RawBlock(arguments, [self._operation(x, depth) for _ in range(count)])

    def _arguments(self, x: Bytes) -> list[tuple[int, int, int | None]]:
        arguments = []
        for _ in range(x.count()):
            number = x.number()
            if self.file.version >= ELIDED:
                located, number = number & 1, number >> 1
            else:
                located = 1
            location = x.number() if located else None
            arguments.append((self.define(x), number, location))
        if self.file.version >= ORDERED and x.byte():
            self._skip_order(x, len(arguments))
        return arguments

    def _skip_order(self, x: Bytes, count: int) -> None:
        """Go past the order of uses, of one value or of several."""
        for _ in range(x.count() if count > 1 else 1):
            if count > 1:
                x.number()
            for _ in range(x.number() >> 1):
                x.number()

    def _operation(self, x: Bytes, depth: int) -> Raw:
        self._left -= 1
        if self._left < 0:
            raise x.error(f"the file has too many operations, expected at most {self._most}")
        place = f"offset {x.at}"
        number = x.index("operation", x.number(), len(self.file.operations))
        mask = x.byte()
        x.number()  # its place in some source
        attributes = x.number() if mask & 1 else None
        properties = self._property(x) if mask & 64 else None
        types = [x.number() for _ in range(x.count())] if mask & 2 else []
        operands = [self._value(x) for _ in range(x.count())] if mask & 4 else []
        if mask & 8:
            raise x.error("an operation has successor blocks, expected none")
        results = [self.define(x) for _ in types]
        if mask & 32 and self.file.version >= ORDERED:
            self._skip_order(x, len(types))
        raw = Raw(self.file.operations[number], place, attributes, properties, results, types,
                  operands, [])  # fmt: skip
        if mask & 16:
            raw.regions = self._regions(x, depth + 1)
        return raw

    def _property(self, x: Bytes) -> Span:
        return self.file.properties[x.index("properties", x.number(), len(self.file.properties))]

    def _value(self, x: Bytes) -> int:
        number = x.number()
        value = self.values[number] if number < len(self.values) else None
        if value is None:
            raise x.error(f"operand {number} is undefined, expected an earlier value")
        return value

    def _regions(self, x: Bytes, depth: int) -> list[list[RawBlock]]:
        if depth > DEEPEST:
            raise x.error(f"regions are nested {depth} deep, expected at most {DEEPEST}")
        number = x.number()
        count, isolated = x.fits(number >> 1, "regions"), number & 1
        if not isolated:
            return [self._region(x, depth) for _ in range(count)]
        if self.file.version >= 2:
            kind, span = x.section()
            if kind != IR:
                raise x.error(f"a region is in section {kind}, expected section {IR}")
            x = self.file.part(span, "the operations of a region")
        outer, self.values, self.nexts = (self.values, self.nexts), [], []
        regions = [self._region(x, depth) for _ in range(count)]
        self.values, self.nexts = outer
        return regions

    def _region(self, x: Bytes, depth: int) -> list[RawBlock]:
        count = x.count()
        if not count:
            return []
        if count > 1:
            raise x.error(f"a region has {count} blocks, expected one")
        values = x.fits(x.number(), "values")
        return [self._scope(lambda: self._block(x, depth), values)]
