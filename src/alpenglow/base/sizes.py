"""Sizes of memory as people write them: numbers of bytes, and texts with a unit."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from alpenglow.base.errors import OptionError

UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9,
    "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
}  # fmt: skip
"""Bytes in each unit, in small letters: kB, MB and GB count thousands, KiB, MiB and GiB 1024s."""

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]*)")


def parse_nbytes(size: Any, what: str) -> int:
    """Return a size in bytes: a positive integer, or a text such as 200KB, 192KiB or 1.5 MB.

    Raises OptionError, which calls the size `what`, for anything else.
    """
    nbytes = _nbytes(size)
    if nbytes is None or nbytes <= 0 or nbytes != int(nbytes):
        raise OptionError(
            f"{what} is {size!r}, expected a whole number of bytes above 0",
            hint="200000, '200KB' (thousands) or '192KiB' (1024s)",
            flags="200000, 200KB (thousands) or 192KiB (1024s)",
        )
    return int(nbytes)


def _nbytes(size: Any) -> Decimal | int | None:
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    unit = UNITS.get(match[2].lower()) if match else None
    return None if match is None or unit is None else Decimal(match[1]) * unit
