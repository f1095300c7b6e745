"""What a linker fills in, for the few kinds of relocation that our code needs, by machine.

Code of the small position-independent model refers to its own functions and constants by distance,
so all kinds here are relative, and what they make of an object needs no change when it is loaded.
A kind that stands for an address, or that is not known, is a mistake of ours.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from alpenglow.bundles.elf.writer import ElfObject, ObjectSymbol, Relocation

X86_64, AARCH64, ARM, RISCV = 62, 183, 40, 243


@dataclass(frozen=True, slots=True)
class Spot:
    """Bytes to be filled in: where they are in `content`, and at which address they will be."""

    content: bytearray
    at: int
    address: int

    def word(self) -> int:
        """Return the 32 bits that are there."""
        (bits,) = struct.unpack_from("<I", self.content, self.at)
        return int(bits)

    def put(self, mask: int, bits: int) -> None:
        """Replace those of the 32 bits that are in `mask`."""
        struct.pack_into("<I", self.content, self.at, self.word() & ~mask | bits & mask)


Fill = Callable[[Spot, int], None]
"""Fills in what refers to an address: that of the symbol, the addend included."""


def resolve(o: ElfObject, content: Mapping[int, bytearray], addresses: Mapping[int, int]) -> None:
    """Fill in the relocations of the sections in `content`, which will lie at `addresses`."""
    own = [r for r in o.relocations if r.section in content]
    highs = {addresses[r.section] + r.offset: r for r in own if _is_high(o, r)}
    for r in own:
        spot = Spot(content[r.section], r.offset, addresses[r.section] + r.offset)
        symbol = o.symbols[r.symbol]
        value = _address(symbol, addresses)
        if o.machine == RISCV and r.type in _RISCV_LOWS:
            # The symbol is the instruction that adds the upper bits of the distance.
            high = highs[value]
            meant = _address(o.symbols[high.symbol], addresses) + (high.addend or 0)
            _RISCV_LOWS[r.type](spot, meant - value)
            continue
        if r.addend is None:
            assert o.machine == ARM and r.type in _IN_PLACE, _unknown(o, r)
            value += _IN_PLACE[r.type](spot.word())
        else:
            value += r.addend
        kinds = _KINDS.get(o.machine, {})
        assert r.type in kinds, _unknown(o, r)
        kinds[r.type](spot, value)


def _is_high(o: ElfObject, r: Relocation) -> bool:
    return o.machine == RISCV and r.type == _RISCV_HIGH


def _address(symbol: ObjectSymbol, addresses: Mapping[int, int]) -> int:
    assert symbol.section in addresses, f"'{symbol.name}' is not part of what is linked"
    return addresses[symbol.section] + symbol.value


def _unknown(o: ElfObject, r: Relocation) -> str:
    name = o.symbols[r.symbol].name
    return f"relocation {r.type} of machine {o.machine} is not known; it refers to '{name}'"


def _within(value: int, bits: int) -> int:
    """Return a value that must fit in so many bits, one of them the sign."""
    assert -(1 << bits - 1) <= value < 1 << bits - 1, f"{value} does not fit in {bits} bits"
    return value


def _distance(spot: Spot, value: int) -> None:
    spot.put(0xFFFFFFFF, _within(value - spot.address, 32))


def _long_distance(spot: Spot, value: int) -> None:
    struct.pack_into("<q", spot.content, spot.at, value - spot.address)


# ── aarch64 ──


def _page(spot: Spot, value: int) -> None:
    """ADRP: the distance between pages of 4 KiB."""
    pages = _within((value >> 12) - (spot.address >> 12), 21)
    spot.put(0x60FFFFE0, (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)


def _in_page(unit: int) -> Fill:
    """ADD and loads: the place in the page, in units of 2 ** `unit` bytes."""

    def fill(spot: Spot, value: int) -> None:
        low = value & 0xFFF
        assert low % (1 << unit) == 0, f"{value:#x} is not aligned for what loads it"
        spot.put(0xFFF << 10, low >> unit << 10)

    return fill


def _branch(spot: Spot, value: int) -> None:
    spot.put(0x03FFFFFF, _within(value - spot.address, 28) >> 2)


# ── arm: addends stand where the result goes ──


def _signed(value: int, bits: int) -> int:
    return (value & (1 << bits) - 1) - ((value & 1 << bits - 1) << 1)


def _arm_branch(spot: Spot, value: int) -> None:
    assert value % 4 == 0, "the callee is no Arm code, but Thumb"
    spot.put(0x00FFFFFF, _within(value - spot.address, 26) >> 2)


def _arm_half(shift: int) -> Fill:
    """MOVW and MOVT: half of the distance, in two fields."""

    def fill(spot: Spot, value: int) -> None:
        half = value - spot.address >> shift
        spot.put(0x000F0FFF, (half & 0xF000) << 4 | half & 0xFFF)

    return fill


def _half_there(word: int) -> int:
    return _signed(word >> 4 & 0xF000 | word & 0xFFF, 16)


_IN_PLACE: Mapping[int, Callable[[int], int]] = {
    3: lambda word: _signed(word, 32),
    28: lambda word: _signed(word, 24) << 2,
    29: lambda word: _signed(word, 24) << 2,
    45: _half_there,
    46: _half_there,
}
"""The addend within a word of Arm's, by kind of relocation."""

# ── riscv64 ──

_RISCV_HIGH = 23


def _upper(spot: Spot, value: int) -> None:
    """AUIPC: the distance without its low 12 bits, which are signed."""
    spot.put(0xFFFFF000, _within(value - spot.address, 32) + 0x800)


def _call(spot: Spot, value: int) -> None:
    """AUIPC and JALR, one behind the other."""
    _upper(spot, value)
    behind = Spot(spot.content, spot.at + 4, spot.address + 4)
    behind.put(0xFFF00000, (value - spot.address & 0xFFF) << 20)


def _low_of_load(spot: Spot, distance: int) -> None:
    spot.put(0xFFF00000, (distance & 0xFFF) << 20)


def _low_of_store(spot: Spot, distance: int) -> None:
    spot.put(0xFE000F80, (distance >> 5 & 0x7F) << 25 | (distance & 0x1F) << 7)


def _add(spot: Spot, value: int) -> None:
    spot.put(0xFFFFFFFF, spot.word() + value)


def _subtract(spot: Spot, value: int) -> None:
    spot.put(0xFFFFFFFF, spot.word() - value)


_RISCV_LOWS: Mapping[int, Fill] = {24: _low_of_load, 25: _low_of_store}

_KINDS: Mapping[int, Mapping[int, Fill]] = {
    X86_64: {2: _distance, 4: _distance, 24: _long_distance},
    AARCH64: {
        260: _long_distance,
        261: _distance,
        275: _page,
        277: _in_page(0),
        278: _in_page(0),
        282: _branch,
        283: _branch,
        284: _in_page(1),
        285: _in_page(2),
        286: _in_page(3),
        299: _in_page(4),
    },
    ARM: {
        3: _distance,
        28: _arm_branch,
        29: _arm_branch,
        45: _arm_half(0),
        46: _arm_half(16),
    },
    RISCV: {
        18: _call,
        19: _call,
        _RISCV_HIGH: _upper,
        35: _add,
        39: _subtract,
        57: _distance,
    },
}
"""By machine and kind, as the supplements of the System V ABI number them."""
