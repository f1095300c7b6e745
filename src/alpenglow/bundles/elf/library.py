"""An ELF shared library made of one object: the work of a linker, as far as our code needs it.

The object is complete and position-independent and keeps no state, so there is nothing to look up
and nothing to change when the library is loaded: no relocations, no imports, no initialisers.  What
is left is to lay out its sections in pages of their own rights, to fill in distances
(`relocations`), and to write the tables by which a loader finds the exported names:

    read           headers, .hash, .dynsym, .dynstr, .rodata
    read, execute  .text
    read, write    .dynamic; read only once it is loaded (loaders write addresses into it)
    read           .weights

Both widths, little-endian.  The same object gives the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from alpenglow.bundles.elf.relocations import AARCH64, ARM, resolve
from alpenglow.bundles.elf.writer import (
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHN_UNDEF,
    ElfObject,
)

PT_LOAD, PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 0x6474E551, 0x6474E552
EXECUTE, WRITE, READ = 1, 2, 4
ET_DYN = 3
SHT_PROGBITS, SHT_STRTAB, SHT_HASH, SHT_DYNAMIC, SHT_DYNSYM = 1, 3, 5, 6, 11
DT_NULL, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_SONAME = 0, 4, 5, 6, 10, 11, 14
STT_OBJECT, STB_GLOBAL = 1, 1
UNWINDING = (".ARM.exidx", ".ARM.extab", ".eh_frame")
"""Sections that say how to leave functions by exceptions; ours are not left so."""

ATTRIBUTES = (".ARM.attributes", ".riscv.attributes")
"""What an object says about the machine it needs; linkers ask for it."""

_DYNAMIC = 7
"""How many entries the dynamic section has."""

_PAGES = {AARCH64: 0x10000, ARM: 0x10000}
"""The largest page of a machine, where it is not 4 KiB."""


@dataclass(slots=True, eq=False)
class _Part:
    """A section of the library; `link` names the section that it refers to."""

    name: str
    type: int
    flags: int
    content: bytearray
    alignment: int
    link: str = ""
    info: int = 0
    unit: int = 0
    offset: int = 0
    address: int = 0

    def add(self, content: bytes, alignment: int = 1) -> int:
        """Put something behind what is there, at a multiple of `alignment`; return where."""
        self.alignment = max(self.alignment, alignment)
        self.content.extend(bytes(-len(self.content) % alignment))
        self.content.extend(content)
        return len(self.content) - len(content)


@dataclass(frozen=True, slots=True)
class _Segment:
    """Sections that are loaded with the same rights."""

    rights: int
    parts: list[_Part] = field(default_factory=list)

    @property
    def offset(self) -> int:
        return self.parts[0].offset

    @property
    def address(self) -> int:
        return self.parts[0].address

    @property
    def nbytes(self) -> int:
        last = self.parts[-1]
        return last.offset + len(last.content) - self.offset


def shared_library(
    image: bytes, soname: str, exports: Sequence[str], data: Mapping[str, bytes], alignment: int
) -> bytes:
    """Return a library of one object that exports these of its symbols, and `data` by name.

    The contents of `data` follow each other at multiples of `alignment` in .weights.
    """
    o = ElfObject(image)
    undefined = ", ".join(sorted(o.undefined()))
    assert not undefined, f"a library refers to nothing else, but this object to {undefined}"
    return _Library(o, soname, exports, data, alignment).image()


class _Library:
    """What is known about a library while it is laid out."""

    def __init__(
        self,
        o: ElfObject,
        soname: str,
        exports: Sequence[str],
        data: Mapping[str, bytes],
        alignment: int,
    ) -> None:
        self.o, self.soname, self.exports, self.data = o, soname, exports, data
        self.page = _PAGES.get(o.machine, 0x1000)
        self.places: dict[int, tuple[_Part, int]] = {}
        self.rodata = self._gathered(".rodata", SHF_ALLOC)
        self.text = self._gathered(".text", SHF_ALLOC | SHF_EXECINSTR)
        self.weights = _Part(".weights", SHT_PROGBITS, SHF_ALLOC, bytearray(), alignment)
        self.at = {name: self.weights.add(content, alignment) for name, content in data.items()}
        self.strings = _Part(".dynstr", SHT_STRTAB, SHF_ALLOC, bytearray(b"\0"), 1)
        self.titles = {name: self.strings.add(name.encode() + b"\0")
                       for name in (soname, *exports, *data)}  # fmt: skip
        self.hash, self.symbols, self.dynamic = self._tables()
        readable = (self.hash, self.symbols, self.strings, self.rodata)
        self.segments = [
            _Segment(READ, [p for p in readable if p.content]),
            _Segment(READ | EXECUTE, [self.text]),
            _Segment(READ | WRITE, [self.dynamic]),
            *([_Segment(READ, [self.weights])] if data else []),
        ]

    def image(self) -> bytes:
        """Return the bytes of the file."""
        parts = [p for s in self.segments for p in s.parts]
        parts += [
            _Part(s.name, s.type, 0, bytearray(self.o.contents(s)), 1)
            for s in self.o.sections
            if s.name in ATTRIBUTES
        ]
        names = _Part(".shstrtab", SHT_STRTAB, 0, bytearray(b"\0"), 1)
        parts.append(names)
        titles = [names.add(part.name.encode() + b"\0") for part in parts]
        end = self._placed(parts)
        self._filled()
        table = -(-end // 8) * 8
        headers = b"".join(self._section_headers(parts, titles))
        image = bytearray(table) + headers
        for part in parts:
            image[part.offset : part.offset + len(part.content)] = part.content
        head = self._head(table, len(parts) + 1) + b"".join(self._program_headers())
        image[: len(head)] = head
        return bytes(image)

    # ── laying out ──

    def _gathered(self, name: str, flags: int) -> _Part:
        """Put the sections of an object with these rights one behind the other."""
        part = _Part(name, SHT_PROGBITS, flags, bytearray(), 1)
        kept = SHF_ALLOC | SHF_EXECINSTR | SHF_WRITE
        for number, section in enumerate(self.o.sections):
            stateless = not section.flags & SHF_WRITE or not section.nbytes
            assert stateless, f"{section.name}: code keeps no state"
            if section.flags & kept != flags or section.name in UNWINDING or not section.nbytes:
                continue
            at = part.add(self.o.contents(section), section.alignment)
            self.places[number] = part, at
        return part

    def _tables(self) -> tuple[_Part, _Part, _Part]:
        """Return .hash, .dynsym and .dynamic; the latter two are filled in later."""
        names = (*self.exports, *self.data)
        word, line = (8, 24) if self.o.wide else (4, 16)
        symbols, entries = bytearray((1 + len(names)) * line), bytearray(_DYNAMIC * 2 * word)
        return (
            _Part(".hash", SHT_HASH, SHF_ALLOC, _hash_table(names), word, ".dynsym", 0, 4),
            _Part(".dynsym", SHT_DYNSYM, SHF_ALLOC, symbols, word, ".dynstr", 1, line),
            _Part(".dynamic", SHT_DYNAMIC, SHF_ALLOC | SHF_WRITE, entries, word, ".dynstr", 0,
                  2 * word),
        )  # fmt: skip

    def _placed(self, parts: Sequence[_Part]) -> int:
        """Place all sections, each segment in pages of its own; return where the last one ends.

        An address is a place in the file and a number of pages more, one more for each segment.
        """
        at = 64 + 56 * self._programs if self.o.wide else 52 + 32 * self._programs
        pages = {p: k for k, s in enumerate(self.segments) for p in s.parts}
        for part in parts:
            at = -(-at // part.alignment) * part.alignment
            part.offset = at
            if part in pages:
                part.address = at + pages[part] * self.page
            at += len(part.content)
        return at

    @property
    def _programs(self) -> int:
        """The number of program headers: a segment each, and three that say more of them."""
        return len(self.segments) + 3

    # ── filling in ──

    def _filled(self) -> None:
        """Fill in all that depends on addresses: code, symbols, and the dynamic section."""
        addresses = {n: part.address + at for n, (part, at) in self.places.items()}
        content = {n: bytearray(self.o.contents(self.o.sections[n])) for n in self.places}
        resolve(self.o, content, addresses)
        for number, (part, at) in self.places.items():
            part.content[at : at + len(content[number])] = content[number]
        self.symbols.content[:] = b"".join(self._symbol_lines(addresses))
        entries = [
            (DT_SONAME, self.titles[self.soname]),
            (DT_HASH, self.hash.address),
            (DT_STRTAB, self.strings.address),
            (DT_SYMTAB, self.symbols.address),
            (DT_STRSZ, len(self.strings.content)),
            (DT_SYMENT, self.symbols.unit),
            (DT_NULL, 0),
        ]
        line = struct.Struct("<QQ" if self.o.wide else "<II")
        lines = b"".join(line.pack(*e) for e in entries)
        assert len(lines) == len(self.dynamic.content), "all entries have a place"
        self.dynamic.content[:] = lines

    def _symbol_lines(self, addresses: Mapping[int, int]) -> Iterator[bytes]:
        numbers = {p: n for n, p in enumerate((p for s in self.segments for p in s.parts), 1)}
        yield bytes(self.symbols.unit)
        known = {s.name: s for s in self.o.symbols if s.section != SHN_UNDEF and s.binding}
        for name in self.exports:
            symbol = known[name]
            part, _ = self.places[symbol.section]
            value = addresses[symbol.section] + symbol.value
            yield self._symbol(name, value, symbol.nbytes, symbol.type, numbers[part])
        for name, content in self.data.items():
            value = self.weights.address + self.at[name]
            yield self._symbol(name, value, len(content), STT_OBJECT, numbers[self.weights])

    def _symbol(self, name: str, value: int, nbytes: int, type_: int, section: int) -> bytes:
        info, title = STB_GLOBAL << 4 | type_, self.titles[name]
        if self.o.wide:
            return struct.pack("<IBBHQQ", title, info, 0, section, value, nbytes)
        return struct.pack("<IIIBBH", title, value, nbytes, info, 0, section)

    # ── headers ──

    def _head(self, table: int, sections: int) -> bytes:
        wide = self.o.wide
        size, line, row = (64, 56, 64) if wide else (52, 32, 40)
        ident = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9)
        return ident + struct.pack(
            "<HHIQQQIHHHHHH" if wide else "<HHIIIIIHHHHHH", ET_DYN, self.o.machine, 1, 0, size,
            table, self.o.flags, size, line, self._programs, row, sections, sections - 1,
        )  # fmt: skip

    def _program_headers(self) -> Iterator[bytes]:
        for number, s in enumerate(self.segments):
            start = 0 if number == 0 else s.offset
            address = 0 if number == 0 else s.address
            nbytes = s.offset + s.nbytes - start
            memory = self._relro() if s.rights & WRITE else nbytes
            yield self._program(PT_LOAD, s.rights, start, address, nbytes, memory, self.page)
        d = self.dynamic
        size = len(d.content)
        yield self._program(PT_DYNAMIC, READ | WRITE, d.offset, d.address, size, size, d.alignment)
        yield self._program(PT_GNU_RELRO, READ, d.offset, d.address, size, self._relro(), 1)
        yield self._program(PT_GNU_STACK, READ | WRITE, 0, 0, 0, 0, 16)

    def _relro(self) -> int:
        """Return the bytes from the dynamic section to the end of its page.

        Loaders protect whole pages only, so the segment ends with one.
        """
        d = self.dynamic
        return len(d.content) + -(d.address + len(d.content)) % self.page

    def _program(
        self, type_: int, rights: int, at: int, address: int, nbytes: int, memory: int, align: int
    ) -> bytes:
        if self.o.wide:
            return struct.pack("<IIQQQQQQ", type_, rights, at, address, address, nbytes, memory,
                               align)  # fmt: skip
        return struct.pack("<IIIIIIII", type_, at, address, address, nbytes, memory, rights, align)

    def _section_headers(self, parts: Sequence[_Part], titles: Sequence[int]) -> Iterator[bytes]:
        numbers = {p.name: n for n, p in enumerate(parts, 1)} | {"": 0}
        line = struct.Struct("<IIQQQQIIQQ" if self.o.wide else "<IIIIIIIIII")
        yield bytes(line.size)
        for p, title in zip(parts, titles, strict=True):
            yield line.pack(title, p.type, p.flags, p.address, p.offset, len(p.content),
                            numbers[p.link], p.info, p.alignment, p.unit)  # fmt: skip


def _hash_table(names: Sequence[str]) -> bytearray:
    """Return the table that finds the symbols 1, 2 … by name, as the System V ABI has it."""
    buckets, chains = [0] * max(len(names), 1), [0] * (len(names) + 1)
    for number, name in enumerate(names, 1):
        slot = _hashed(name) % len(buckets)
        chains[number], buckets[slot] = buckets[slot], number
    return bytearray(struct.pack(f"<{2 + len(buckets) + len(chains)}I", len(buckets), len(chains),
                                 *buckets, *chains))  # fmt: skip


def _hashed(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        top = value & 0xF0000000
        value = (value ^ top >> 24) & ~top & 0xFFFFFFFF
    return value
