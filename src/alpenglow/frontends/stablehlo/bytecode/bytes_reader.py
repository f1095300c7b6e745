"""Numbers and sections of MLIR's bytecode, read from bytes that may be hostile."""

from __future__ import annotations

from dataclasses import dataclass

from alpenglow.base.errors import ModelError

PADDING = 0xCB
"""The byte of the padding before aligned bytes."""

ALIGNED = 0x80
"""Set in the number of a section that is aligned."""

LARGEST_ALIGNMENT = 1 << 20


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the file."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


class Bytes:
    """A place in a part of a file; `what` is what messages call the part."""

    def __init__(self, content: bytes, span: Span, what: str) -> None:
        self.content, self.at, self.end, self.what = content, span.start, span.end, what

    def __len__(self) -> int:
        return self.end - self.at

    def error(self, message: str, hint: str = "") -> ModelError:
        """Return the error for the bytes at this offset."""
        return ModelError(f"offset {self.at}, in {self.what}: {message}", hint=hint)

    def byte(self) -> int:
        """Return the next byte."""
        if self.at >= self.end:
            raise self.error("no bytes are left, expected one")
        self.at += 1
        return self.content[self.at - 1]

    def take(self, count: int) -> Span:
        """Skip `count` bytes and return their span."""
        if not 0 <= count <= len(self):
            raise self.error(f"{len(self)} bytes are left, expected {count}")
        self.at += count
        return Span(self.at - count, self.at)

    def number(self) -> int:
        """Return a number, the length of which the zeros at the end of its first byte tell."""
        first = self.byte()
        if first & 1:
            return first >> 1
        if not first:
            return int.from_bytes(self._raw(8), "little")
        more = (first & -first).bit_length() - 1
        return int.from_bytes(bytes([first]) + self._raw(more), "little") >> (more + 1)

    def _raw(self, count: int) -> bytes:
        span = self.take(count)
        return self.content[span.start : span.end]

    def signed(self) -> int:
        """Return a number with a sign, which is its lowest bit."""
        n = self.number()
        return (n >> 1) ^ -(n & 1)

    def count(self, least: int = 1) -> int:
        """Return the number of entries that follow, of at least `least` bytes each."""
        return self.fits(self.number(), "entries", least)

    def fits(self, n: int, what: str, least: int = 1) -> int:
        """Return a number of things of at least `least` bytes each, if so many bytes are left."""
        if n * least > len(self):
            raise self.error(f"{n} {what} are declared, expected at most {len(self) // least}")
        return n

    def index(self, what: str, number: int, count: int) -> int:
        """Return an index into a table of `count` entries; raise ModelError if it is too large."""
        if number >= count:
            raise self.error(f"{what} {number} is out of range, expected less than {count}")
        return number

    def bits(self, width: int) -> int:
        """Return an integer of a width, without a sign."""
        if width <= 8:
            return self.byte() & ((1 << width) - 1)
        if width <= 64:
            return self.signed() & ((1 << width) - 1)
        raise self.error(f"an integer has {width} bits, expected at most 64")

    def text(self) -> str:
        """Return a string that ends with a zero."""
        end = self.content.find(b"\0", self.at, self.end)
        if end < 0:
            raise self.error("a string has no end, expected a zero byte")
        raw = self.content[self.at : end]
        self.at = end + 1
        return decoded(raw)

    def section(self) -> tuple[int, Span]:
        """Return the number of the section that begins here, and where its bytes are."""
        kind = self.byte()
        length = self.number()
        if kind & ALIGNED:
            alignment = self.number()
            if not 0 < alignment <= LARGEST_ALIGNMENT or alignment & (alignment - 1):
                most = LARGEST_ALIGNMENT
                raise self.error(f"alignment is {alignment}, expected a power of 2 up to {most}")
            while self.at % alignment:
                if self.byte() != PADDING:
                    raise self.error(f"padding is not {PADDING}, expected only such bytes")
        return kind & ~ALIGNED, self.take(length)


def decoded(raw: bytes) -> str:
    """Return bytes as a text: UTF-8, or where they are none, each byte as a character."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
