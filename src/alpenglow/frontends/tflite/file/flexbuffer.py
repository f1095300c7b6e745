"""Options of custom operators: a map from names to numbers or lists of them, as flexbuffers store
it.

The last byte is the width of the root, and the one before it says what the root is: the upper six
bits the type, the lower two the width of what it refers to.  A reference goes backwards.  A map is
a vector of values, with their types behind it, and before it where its keys are and how many.
"""

from __future__ import annotations

from collections.abc import Mapping

from alpenglow.base.errors import ModelError
from alpenglow.frontends.flatbuffer import File

INT, UINT, FLOAT, MAP, BOOL = 1, 2, 3, 9, 26
KINDS: Mapping[int, Mapping[int, str]] = {
    INT: {1: "i8", 2: "i16", 4: "i32", 8: "i64"},
    UINT: {1: "u8", 2: "u16", 4: "u32", 8: "u64"},
    FLOAT: {4: "f32", 8: "f64"},
    BOOL: {1: "u8", 2: "u16", 4: "u32", 8: "u64"},
}
"""How numbers of each type are stored in so many bytes."""

LISTS = {11: INT, 12: UINT, 13: FLOAT}
"""Types of lists whose elements are all of one type; before the first stands how many there are."""

Number = int | float


def numbers(content: bytes) -> dict[str, Number]:
    """Return the numbers of a map by name; raise ModelError if it is none, or damaged."""
    found: dict[str, Number] = {}
    for name, value in values(content).items():
        if isinstance(value, tuple):
            raise ModelError(f"option '{name}' is a list, expected a number")
        found[name] = value
    return found


def values(content: bytes) -> dict[str, Number | tuple[Number, ...]]:
    """Return the numbers and lists of a map by name; raise ModelError if it is none, or damaged."""
    file = File(content)
    if len(content) < 3:
        raise ModelError(f"custom_options has {len(content)} bytes, expected at least 3")
    packed, width = content[-2], content[-1]
    if packed >> 2 != MAP or width not in KINDS[UINT]:
        raise ModelError(f"custom_options has root type {packed >> 2} and width {width}, "
                         f"expected {MAP} (map) and 1, 2, 4 or 8")  # fmt: skip
    at = len(content) - 2 - width
    return _map(file, _back(file, at, width), 1 << (packed & 3))


def _map(file: File, at: int, width: int) -> dict[str, Number | tuple[Number, ...]]:
    count = _size(file, at - width, width)
    file.check(at, count * (width + 1), "custom_options")
    keys = _back(file, at - 3 * width, width)
    keys_width = _size(file, at - 2 * width, width)
    if keys_width not in KINDS[UINT] or _size(file, keys - keys_width, keys_width) != count:
        raise ModelError(f"custom_options is damaged, expected a name for each of {count} values")
    found: dict[str, Number | tuple[Number, ...]] = {}
    for i in range(count):
        name = _text(file, _back(file, keys + i * keys_width, keys_width))
        packed = file.content[at + count * width + i]
        kind = packed >> 2
        if kind in LISTS:
            start = _back(file, at + i * width, width)
            found[name] = _list(file, start, 1 << (packed & 3), LISTS[kind], f"option '{name}'")
            continue
        if kind not in KINDS or width not in KINDS[kind]:
            raise ModelError(f"option '{name}' has type {kind}, expected a number or list")
        found[name] = file.number(at + i * width, KINDS[kind][width], f"option '{name}'")
    return found


def _list(file: File, at: int, width: int, kind: int, what: str) -> tuple[Number, ...]:
    if width not in KINDS[kind]:
        raise ModelError(f"{what} has entries of {width} bytes, expected {[*KINDS[kind]]}")
    count = _size(file, at - width, width)
    file.check(at, count * width, what)
    return tuple(file.number(at + i * width, KINDS[kind][width], what) for i in range(count))


def _size(file: File, at: int, width: int) -> int:
    """Return an integer that is not negative."""
    size: int = file.number(at, KINDS[UINT][width], "custom_options")
    return size


def _back(file: File, at: int, width: int) -> int:
    """Return the byte that a reference leads back to."""
    return at - _size(file, at, width)


def _text(file: File, at: int) -> str:
    """Return a name, which ends in a zero byte."""
    file.check(at, 1, "a name in custom_options")
    end = file.content.find(b"\0", at)
    if end < 0:
        raise ModelError("a name in custom_options does not end, expected a zero byte")
    return file.content[at:end].decode(errors="replace")
