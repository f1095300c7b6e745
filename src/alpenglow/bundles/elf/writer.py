"""Reading relocatable ELF objects as LLVM writes them: sections, symbols and relocations.

Both widths, little-endian.  Nothing is checked beyond what is needed to find one's way: the objects
are our own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property

SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
SHT_SYMTAB, SHT_RELA, SHT_NOBITS, SHT_REL = 2, 4, 8, 9
SHN_UNDEF = 0


@dataclass(frozen=True, slots=True)
class Section:
    """One section; `link` and `info` mean what its type says."""

    name: str
    type: int
    flags: int
    offset: int
    nbytes: int
    link: int
    info: int
    alignment: int


@dataclass(frozen=True, slots=True)
class ObjectSymbol:
    """One symbol: `section` is a section's number, or SHN_UNDEF; `binding` is 0 for a local one."""

    name: str
    value: int
    nbytes: int
    type: int
    binding: int
    section: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """Something to be filled in at `offset` of section `section`; no addend means it is there."""

    section: int
    offset: int
    type: int
    symbol: int
    addend: int | None


class ElfObject:
    """An object, by the bytes of its file."""

    def __init__(self, image: bytes) -> None:
        assert image[:4] == b"\x7fELF" and image[5] == 1, "this is no little-endian ELF object"
        self.image = image
        self.wide = image[4] == 2
        self.machine = struct.unpack_from("<H", image, 18)[0]
        self.flags = struct.unpack_from("<I", image, 48 if self.wide else 36)[0]

    def contents(self, section: Section) -> bytes:
        """Return the bytes of a section; of one without contents, zeros."""
        if section.type == SHT_NOBITS:
            return bytes(section.nbytes)
        return self.image[section.offset : section.offset + section.nbytes]

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        form, at = ("<Q", 40) if self.wide else ("<I", 32)
        (start,) = struct.unpack_from(form, self.image, at)
        size, count, names = struct.unpack_from("<HHH", self.image, 58 if self.wide else 46)
        line = "<IIQQQQIIQQ" if self.wide else "<IIIIIIIIII"
        rows = [struct.unpack_from(line, self.image, start + i * size) for i in range(count)]
        pool = rows[names][4]
        return tuple(
            Section(self._text(pool + name), type_, flags, offset, nbytes, link, info, alignment)
            for name, type_, flags, _, offset, nbytes, link, info, alignment, _ in rows
        )

    @cached_property
    def symbols(self) -> tuple[ObjectSymbol, ...]:
        symbols: list[ObjectSymbol] = []
        for table in self.sections:
            if table.type != SHT_SYMTAB:
                continue
            pool = self.sections[table.link].offset
            line = struct.Struct("<IBBHQQ" if self.wide else "<IIIBBH")
            for row in line.iter_unpack(self.contents(table)):
                if self.wide:
                    name, info, _, section, value, nbytes = row
                else:
                    name, value, nbytes, info, _, section = row
                text = self._text(pool + name)
                symbols.append(ObjectSymbol(text, value, nbytes, info & 15, info >> 4, section))
        return tuple(symbols)

    @cached_property
    def relocations(self) -> tuple[Relocation, ...]:
        rows: list[Relocation] = []
        shift, mask = (32, 0xFFFFFFFF) if self.wide else (8, 0xFF)
        for table in self.sections:
            if table.type == SHT_RELA:
                line = struct.Struct("<QQq" if self.wide else "<IIi")
                for offset, info, addend in line.iter_unpack(self.contents(table)):
                    rows.append(Relocation(table.info, offset, info & mask, info >> shift, addend))
            elif table.type == SHT_REL:
                line = struct.Struct("<QQ" if self.wide else "<II")
                for offset, info in line.iter_unpack(self.contents(table)):
                    rows.append(Relocation(table.info, offset, info & mask, info >> shift, None))
        return tuple(rows)

    def undefined(self) -> frozenset[str]:
        """Return the names that something else must define."""
        return frozenset(s.name for s in self.symbols if s.name and s.section == SHN_UNDEF)

    def defined(self) -> frozenset[str]:
        """Return the names that something else can refer to."""
        return frozenset(
            s.name for s in self.symbols if s.name and s.binding and s.section != SHN_UNDEF
        )

    def nbytes(self, *, executable: bool) -> int:
        """Return the bytes of the sections that are loaded, executable ones or the others."""
        return sum(
            s.nbytes
            for s in self.sections
            if s.flags & SHF_ALLOC and bool(s.flags & SHF_EXECINSTR) == executable
        )

    def _text(self, at: int) -> str:
        return self.image[at : self.image.index(b"\0", at)].decode()
