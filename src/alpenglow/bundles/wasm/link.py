"""From a relocatable WebAssembly object to a module that runs: what a linker does, for one object.

The object defines all that it calls, so nothing is left to import.  Memory is laid out once and for
all, from address 0 on: the stack, which grows down and traps when it is used up; the object's own
data; then the regions that the caller names.  A region with contents becomes data of the module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alpenglow.base import leb128
from alpenglow.base.errors import UnsupportedError
from alpenglow.base.memory import rounded_up
from alpenglow.bundles.wasm.object import (
    CODE,
    DATA,
    DATAS,
    EXPORT,
    FUNCTION,
    FUNCTIONS,
    GLOBAL,
    GLOBALS,
    MAGIC,
    MEMORY,
    TYPE,
    WasmObject,
    WasmRelocation,
    WasmSymbol,
)

PAGE = 65536
LARGEST = 1 << 32
"""Bytes that can be addressed with 32 bits."""

STACK_POINTER = "__stack_pointer"
MEMORY_NAME = "memory"

_I32, _VAR, _CONST, _END = 0x7F, 1, 0x41, 0x0B


@dataclass(frozen=True, slots=True)
class Area:
    """A region of memory: its bytes, and what they are when the module begins, if not zeros."""

    nbytes: int
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Module:
    """A module, where its regions begin, and how many bytes of memory it begins with."""

    image: bytes
    places: Mapping[str, int]
    memory_nbytes: int


def link(
    obj: WasmObject, stack_nbytes: int, areas: Mapping[str, Area], entries: Sequence[str]
) -> Module:
    """Return the module that exports the functions `entries`, its memory, and where areas begin.

    The address of an area is the global of its name.  Raises UnsupportedError if all does not fit
    into the addresses of 32 bits.
    """
    assert not obj.undefined(), f"nobody defines {sorted(obj.undefined())}"
    # Nothing begins at address 0, which is none in C.
    end = top = rounded_up(stack_nbytes or 1)
    bases = []
    for segment in obj.segments:
        end = -(-end // segment.alignment) * segment.alignment
        bases.append(end)
        end += len(segment.content)
    places = {}
    for name, area in areas.items():
        places[name] = end = rounded_up(end)
        end += area.nbytes
    if end > LARGEST:
        raise UnsupportedError(
            f"WebAssembly of 32 bits addresses {LARGEST:,} bytes, and this model needs {end:,}",
            hint="a smaller model, or smaller shapes",
        )
    linked = _Linked(obj, bases)
    pages = -(-end // PAGE)
    sections = [
        (TYPE, obj.contents(TYPE)),
        (FUNCTION, obj.contents(FUNCTION)),
        # Exactly so many pages at first; a host may add more.
        (MEMORY, _listed([b"\0" + leb128.unsigned(pages)])),
        (GLOBAL, _globals([(top, _VAR), *((at, 0) for at in places.values())])),
        (EXPORT, _exports(linked, entries, tuple(places))),
        (CODE, linked.code()),
        (DATA, _data(linked, [(places[k], a.content) for k, a in areas.items() if a.content])),
    ]
    image = MAGIC + b"".join(_section(kind, content) for kind, content in sections if content)
    return Module(image, places, pages * PAGE)


class _Linked:
    """An object whose data has got addresses."""

    def __init__(self, obj: WasmObject, bases: Sequence[int]) -> None:
        self.obj, self.bases = obj, bases
        self.imported = len(obj.imported(0))
        self.segments = obj.segments

    def code(self) -> bytes:
        return self._relocated(self.obj.contents(CODE), "CODE")

    def data(self) -> list[tuple[int, bytes]]:
        """Return what lies where in memory."""
        content = self._relocated(self.obj.contents(DATA), "DATA")
        return [
            (base, content[s.begin : s.begin + len(s.content)])
            for base, s in zip(self.bases, self.segments, strict=True)
        ]

    def function(self, symbol: WasmSymbol) -> int:
        """Return the number of a function, now that none is imported."""
        assert symbol.kind == FUNCTIONS and symbol.defined, f"{symbol.name} is no function here"
        return symbol.index - self.imported

    def _relocated(self, content: bytes, section: str) -> bytes:
        relocated = bytearray(content)
        for r in self.obj.relocations(section):
            value = self._value(r)
            filled = value.to_bytes(4, "little") if r.type in _PLAIN else leb128.padded(value)
            relocated[r.offset : r.offset + len(filled)] = filled
        return bytes(relocated)

    def _value(self, r: WasmRelocation) -> int:
        if r.type in _TYPE_INDEX:
            return r.symbol
        symbol = self.obj.symbols[r.symbol]
        if r.type in _FUNCTION_INDEX:
            return self.function(symbol)
        if r.type in _GLOBAL_INDEX:
            assert (symbol.kind, symbol.name) == (GLOBALS, STACK_POINTER), f"global {symbol.name}"
            return 0
        assert r.type in _ADDRESS, f"relocations of type {r.type} are not known"
        assert symbol.kind == DATAS and symbol.defined, f"{symbol.name} is no data here"
        return self.bases[symbol.index] + symbol.offset + r.addend


_FUNCTION_INDEX, _ADDRESS, _TYPE_INDEX, _GLOBAL_INDEX = {0}, {3, 4, 5}, {6}, {7}
_PLAIN = {5}
"""Types of relocations by what they stand for; plain ones are four bytes, the others LEB128."""


def _globals(known: Sequence[tuple[int, int]]) -> bytes:
    """Return the section of globals, each an i32 by its value and whether it varies."""
    return _listed(
        [bytes([_I32, varies, _CONST]) + leb128.signed(_i32(v)) + bytes([_END])
         for v, varies in known]
    )  # fmt: skip


def _exports(linked: _Linked, entries: Sequence[str], places: Sequence[str]) -> bytes:
    symbols = {s.name: s for s in linked.obj.symbols if s.kind == FUNCTIONS and s.defined}
    exported = [
        *((entry, 0, linked.function(symbols[entry])) for entry in entries),
        (MEMORY_NAME, 2, 0),
        *((name, 3, number) for number, name in enumerate(places, 1)),
    ]
    return _listed(
        [_text(name) + bytes([kind]) + leb128.unsigned(number) for name, kind, number in exported]
    )


def _data(linked: _Linked, contents: Sequence[tuple[int, bytes]]) -> bytes:
    rows = [
        b"\0" + bytes([_CONST]) + leb128.signed(_i32(at)) + bytes([_END]) + _sized(content)
        for at, content in (*linked.data(), *contents)
        if content
    ]
    return _listed(rows) if rows else b""


def _section(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + _sized(content)


def _listed(rows: Sequence[bytes]) -> bytes:
    return leb128.unsigned(len(rows)) + b"".join(rows)


def _text(text: str) -> bytes:
    return _sized(text.encode())


def _sized(content: bytes) -> bytes:
    return leb128.unsigned(len(content)) + content


def _i32(address: int) -> int:
    """Return an address as the signed number that constants are written as."""
    return address - (1 << 32) if address >> 31 else address
