"""The configuration that a bundle of the dynamic API carries: sizes, and the table of symbols.

It is a run of bytes without pointers, so that it needs no relocation: where C wants a string or an
array, there is its distance from the beginning.  All numbers are little-endian, like all targets.

    offset  size
         0     4  version (1)
         4     4  bytes of the whole configuration
         8     8  bytes of constants
        16     8  bytes of mutable memory
        24     8  bytes of scratch memory
        32     8  bytes of stack that a call needs
        40     4  alignment of the three regions
        44     4  number of symbols
        48     -  symbols, 40 bytes each:
                     0  4  name     4  4  type, as text     8  4  shape, as u64    12  4  rank
                    16  8  offset  24  8  bytes            32  4  1 for an output  36  4  zero
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from alpenglow.bundles.mutable import Symbol
from alpenglow.bundles.plan import BundlePlan, Routine

VERSION = 1
_HEAD = struct.Struct("<IIQQQQII")
_SYMBOL = struct.Struct("<IIIIQQII")


def config(layout: BundlePlan, routine: Routine, stack_nbytes: int) -> bytes:
    """Return the configuration of one entry point."""
    first = _HEAD.size + _SYMBOL.size * len(routine.symbols)
    pool = bytearray()

    def put(content: bytes, alignment: int) -> int:
        pool.extend(bytes(-(first + len(pool)) % alignment))
        pool.extend(content)
        return first + len(pool) - len(content)

    table = b"".join(_entry(s, put) for s in routine.symbols)
    pool.extend(bytes(-(first + len(pool)) % 8))
    head = _HEAD.pack(
        VERSION,
        first + len(pool),
        layout.constants_nbytes,
        routine.mutable_nbytes,
        routine.scratch_nbytes,
        stack_nbytes,
        layout.alignment,
        len(routine.symbols),
    )
    return head + table + bytes(pool)


def _entry(s: Symbol, put: Callable[[bytes, int], int]) -> bytes:
    """Return the line of a symbol; `put` keeps what it points to."""
    shape = s.type.extents
    name = put(s.name.encode() + b"\0", 1)
    type_ = put(s.type.dtype.encode() + b"\0", 1)
    place = put(struct.pack(f"<{len(shape)}Q", *shape), 8)
    return _SYMBOL.pack(name, type_, place, len(shape), s.offset, s.type.nbytes, int(s.output), 0)
