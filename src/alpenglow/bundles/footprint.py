"""The flash and RAM that a bundle takes in a device, and limits of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alpenglow.base.errors import MemoryLimitError
from alpenglow.base.sizes import parse_nbytes
from alpenglow.bundles.job import Needs
from alpenglow.bundles.plan import Routine

ONLY_COMPILED = "a C compiler decides the size of the code and adds to the stack"
"""The note on sums of a bundle of source code."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Represent the memory of a bundle in bytes, for the entry point that needs most RAM.

    `code` is 0 if a compiler decides its size.
    """

    code: int
    constants: int
    mutable: int
    scratch: int
    stack: int

    @property
    def flash(self) -> int:
        """Return the bytes of read-only memory: code and constants."""
        return self.code + self.constants

    @property
    def ram(self) -> int:
        """Return the bytes of writable memory during a call."""
        return self.mutable + self.scratch + self.stack


@dataclass(frozen=True, slots=True)
class Limits:
    """Represent the bytes of flash and RAM that a device has for a bundle; None: no limit."""

    flash: int | None = None
    ram: int | None = None

    @classmethod
    def parse(cls, flash: int | str | None, ram: int | str | None) -> Limits:
        """Return limits that are given as bytes or as texts like "256KiB"; raise OptionError."""
        return cls(
            None if flash is None else parse_nbytes(flash, "flash"),
            None if ram is None else parse_nbytes(ram, "ram"),
        )

    def check(self, found: Footprint) -> None:
        """Raise MemoryLimitError, with the parts of the memory, if a limit is exceeded."""
        flash = {"code": found.code, "constants": found.constants}
        _check("flash", flash, self.flash, "int8 or weight-only quantization makes weights smaller")
        ram = {"mutable": found.mutable, "scratch": found.scratch, "stack": found.stack}
        _check("RAM", ram, self.ram, "memory=…", "--memory BYTES limits the scratch memory")


def _check(
    kind: str, parts: Mapping[str, int], limit: int | None, hint: str, flags: str = ""
) -> None:
    total = sum(parts.values())
    if limit is None or total <= limit:
        return
    listed = ", ".join(f"{part} {nbytes:,}" for part, nbytes in parts.items() if nbytes)
    error = MemoryLimitError(
        f"{kind} of the bundle is {total:,} bytes ({listed}), expected at most {limit:,}",
        hint=hint,
        flags=flags or hint,
    )
    error.least = total
    raise error


def footprint(constants_nbytes: int, routines: Sequence[Routine], needs: Needs) -> Footprint:
    """Return the memory of a bundle; its entry points are not in use at the same time."""
    largest = max(routines, key=lambda r: r.mutable_nbytes + r.scratch_nbytes)
    code = needs.code_nbytes + needs.data_nbytes if needs.compiled else 0
    return Footprint(
        code, constants_nbytes, largest.mutable_nbytes, largest.scratch_nbytes, needs.stack_nbytes
    )
