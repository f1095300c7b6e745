"""What a target lacks of the kernel language, as `legalise` asks."""

from __future__ import annotations

from dataclasses import dataclass

from alpenglow.ir.types import HALVES
from alpenglow.kernel.intrinsics import INTRINSICS

INSTRUCTIONS = frozenset(INTRINSICS)
"""All instructions of machines."""


@dataclass(frozen=True, slots=True)
class Lacks:
    """What no expression or statement of a kernel may be, to be rendered for a target."""

    lanes: int = 0
    """Vectors of more lanes, or of a number that is no power of two; 1: all; 0: none."""

    element: int = 0
    """Vectors of elements of more bytes, if it is not 0."""

    masks: bool = False
    """Loads and stores of some lanes of a vector."""

    halves: frozenset[str] = frozenset()
    """Of f16 and bf16 those whose values are their bits, as u16."""

    fma: frozenset[str] = frozenset()
    """Element types that no instruction multiplies and adds, rounding once."""

    extremes: frozenset[str] = frozenset()
    """Floats whose `min` and `max` do not propagate NaN."""

    atomics: frozenset[str] = frozenset()
    """Element types without atomic operations."""

    quotients: bool = False
    """Quotients and remainders of vectors of integers of up to 32 bits, but by constants."""

    remainders: bool = False
    """Remainders of vectors of f32."""

    logic: bool = False
    """Operations on bool but and, or, xor and not, and comparisons but eq and ne."""

    wrapping: bool = False
    """Conversions of floats to u64, which reach from 0 to 2^64 and have no NaN."""

    lookups: bool = False
    """Tables that are looked up by lanes."""

    tiles: bool = False
    """Fragments of matrices."""

    copies: bool = False
    """Copies to shared memory that go on while a thread does something else."""

    subgroups: bool = False
    """Threads that exchange values other than through shared memory."""

    combined: bool = False
    """Values of all threads of a subgroup combined: these are exchanged in pairs."""

    instructions: frozenset[str] = frozenset()
    """Machine operations, by name."""

    def __post_init__(self) -> None:
        assert self.lanes & (self.lanes - 1) == 0, f"{self.lanes} lanes are no power of two"
        assert self.halves <= HALVES, f"{sorted(self.halves)} are no short floats"
