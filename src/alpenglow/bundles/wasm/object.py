"""Reading relocatable WebAssembly objects as LLVM writes them: sections, symbols, relocations.

Such an object is a module whose memory, stack pointer and missing functions are imports, with two
more kinds of sections: `linking` has the symbols and how data is aligned, `reloc.X` the places in
section X that depend on where things come to lie.  Nothing is checked beyond what is needed to find
one's way: the objects are our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from alpenglow.base import leb128

MAGIC = b"\0asm\1\0\0\0"

CUSTOM, TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT = range(8)
CODE, DATA = 10, 11
"""Sections by their numbers."""

FUNCTIONS, DATAS, GLOBALS, SECTIONS, TAGS, TABLES = range(6)
"""Kinds of symbols; kinds of imports count functions, tables, memories, globals."""

_LOCAL, _UNDEFINED, _NAMED = 0x02, 0x10, 0x40
_SEGMENTS, _SYMBOLS = 5, 8


@dataclass(frozen=True, slots=True)
class Section:
    """One section: its kind, the name of a custom one, and its contents."""

    kind: int
    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class WasmSymbol:
    """One symbol: `index` counts functions, globals or segments of data, imported ones first."""

    kind: int
    name: str
    index: int
    offset: int
    defined: bool
    local: bool


@dataclass(frozen=True, slots=True)
class WasmRelocation:
    """Something to be filled in at `offset` of a section's contents."""

    type: int
    offset: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Bytes that lie in memory when the module begins, and what their address is a multiple of.

    `begin` is where they are in the contents of the section of data.
    """

    content: bytes
    alignment: int
    begin: int


class WasmObject:
    """An object, by the bytes of its file."""

    def __init__(self, image: bytes) -> None:
        assert image.startswith(MAGIC), "this is no WebAssembly object"
        self.image = image

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        return tuple(self._sections())

    def _sections(self) -> Iterator[Section]:
        at = len(MAGIC)
        while at < len(self.image):
            kind = self.image[at]
            size, at = leb128.read(self.image, at + 1)
            content, at = self.image[at : at + size], at + size
            name = ""
            if kind == CUSTOM:
                name, begin = _text(content, 0)
                content = content[begin:]
            yield Section(kind, name, content)

    def contents(self, kind: int, name: str = "") -> bytes:
        """Return the contents of a section, nothing if there is none."""
        contents = (s.content for s in self.sections if (s.kind, s.name) == (kind, name))
        return next(contents, b"")

    @cached_property
    def imports(self) -> tuple[tuple[int, str], ...]:
        """The kind of each import and its name."""
        imports = []
        content = self.contents(IMPORT)
        count, at = _count(content)
        for _ in range(count):
            _, at = _text(content, at)
            name, at = _text(content, at)
            kind, at = content[at], at + 1
            if kind in (1, 2):  # a table, after the type of its elements, and memory have limits
                at += kind == 1
                limits, at = content[at], at + 1
                for _ in range(1 + (limits & 1)):
                    _, at = leb128.read(content, at)
            else:
                _, at = leb128.read(content, at)
                at += kind == 3
            imports.append((kind, name))
        return tuple(imports)

    def imported(self, kind: int) -> tuple[str, ...]:
        """Return the names of the imports of a kind, which the indices of that kind begin with."""
        return tuple(name for k, name in self.imports if k == kind)

    @cached_property
    def symbols(self) -> tuple[WasmSymbol, ...]:
        content = self._linking(_SYMBOLS)
        count, at = _count(content)
        symbols = []
        for _ in range(count):
            kind = content[at]
            flags, at = leb128.read(content, at + 1)
            defined = not flags & _UNDEFINED
            name, index, offset = "", 0, 0
            if kind == DATAS:
                name, at = _text(content, at)
                if defined:
                    index, at = leb128.read(content, at)
                    offset, at = leb128.read(content, at)
                    _, at = leb128.read(content, at)
            else:
                index, at = leb128.read(content, at)
                if kind != SECTIONS and (defined or flags & _NAMED):
                    name, at = _text(content, at)
                elif kind in (FUNCTIONS, GLOBALS):
                    name = self.imported({FUNCTIONS: 0, GLOBALS: 3}[kind])[index]
            symbols.append(WasmSymbol(kind, name, index, offset, defined, bool(flags & _LOCAL)))
        return tuple(symbols)

    def relocations(self, name: str) -> tuple[WasmRelocation, ...]:
        """Return the relocations of the section CODE or DATA, in the order of their places."""
        content = self.contents(CUSTOM, f"reloc.{name}")
        if not content:
            return ()
        _, at = leb128.read(content, 0)
        count, at = leb128.read(content, at)
        relocations = []
        for _ in range(count):
            type_ = content[at]
            offset, at = leb128.read(content, at + 1)
            symbol, at = leb128.read(content, at)
            addend = 0
            if type_ in WITH_ADDEND:
                addend, at = leb128.read(content, at, sign=True)
            relocations.append(WasmRelocation(type_, offset, symbol, addend))
        return tuple(relocations)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        alignments = self._alignments()
        content = self.contents(DATA)
        count, at = _count(content)
        segments = []
        for k in range(count):
            assert content[at : at + 2] == b"\0\x41", "data lies at an address of memory 0"
            _, at = leb128.read(content, at + 2, sign=True)
            size, at = leb128.read(content, at + 1)
            segments.append(Segment(content[at : at + size], alignments[k], at))
            at += size
        return tuple(segments)

    def _alignments(self) -> list[int]:
        content = self._linking(_SEGMENTS)
        count, at = _count(content)
        alignments = []
        for _ in range(count):
            _, at = _text(content, at)
            power, at = leb128.read(content, at)
            _, at = leb128.read(content, at)
            alignments.append(1 << power)
        return alignments

    def _linking(self, wanted: int) -> bytes:
        """Return a part of the section `linking`, nothing if there is none."""
        content = self.contents(CUSTOM, "linking")
        at = 1
        while at < len(content):
            kind = content[at]
            size, at = leb128.read(content, at + 1)
            if kind == wanted:
                return content[at : at + size]
            at += size
        return b""

    def undefined(self) -> frozenset[str]:
        """Return the names that something else must define; memory and its stack are no names."""
        return frozenset(
            s.name for s in self.symbols if not s.defined and s.kind in (FUNCTIONS, DATAS)
        )

    def defined(self) -> frozenset[str]:
        """Return the names that something else can refer to."""
        return frozenset(s.name for s in self.symbols if s.name and s.defined and not s.local)

    def nbytes(self, *, executable: bool) -> int:
        """Return the bytes of code, or of other data that lies in memory."""
        if executable:
            return len(self.contents(CODE))
        return sum(len(s.content) for s in self.segments)


WITH_ADDEND = frozenset({3, 4, 5, 8, 9})
"""Types of relocations that are followed by a number."""


def _text(content: bytes, at: int) -> tuple[str, int]:
    size, at = leb128.read(content, at)
    return content[at : at + size].decode(), at + size


def _count(content: bytes) -> tuple[int, int]:
    return leb128.read(content, 0) if content else (0, 0)
