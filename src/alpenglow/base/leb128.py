"""Integers of 7 bits a byte, the lowest first, as in WebAssembly and protocol buffers."""

from __future__ import annotations


def unsigned(value: int) -> bytes:
    """Return a number that is not negative, as short as can be."""
    octets = bytearray()
    while value >= 128:
        octets.append(value & 127 | 128)
        value >>= 7
    return bytes([*octets, value])


def signed(value: int) -> bytes:
    """Return a number of either sign, as short as can be."""
    octets = bytearray()
    while not -64 <= value < 64:
        octets.append(value & 127 | 128)
        value >>= 7
    return bytes([*octets, value & 127])


def padded(value: int) -> bytes:
    """Return a number of 32 bits in five bytes, whatever its sign: where a linker fills it in."""
    low = value % (1 << 32)
    last = value >> 28 & 127
    return bytes([*(low >> shift & 127 | 128 for shift in (0, 7, 14, 21)), last])


def read(content: bytes, at: int, *, sign: bool = False) -> tuple[int, int]:
    """Return the number that begins at `at`, and where it ends."""
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return (value - (1 << shift) if sign and byte & 64 else value), at
