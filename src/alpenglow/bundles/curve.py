"""What a bundle takes under limits of memory: RAM against multiply-adds and code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from alpenglow.base.errors import MemoryLimitError
from alpenglow.bundles.plan import multiply_adds
from alpenglow.compiler import Options
from alpenglow.program import Program

STEPS = (0.75, 0.5, 0.375, 0.25, 0.1875, 0.125, 0.0625)
"""The limits that are tried, as parts of what is taken without one."""


@dataclass(frozen=True, slots=True)
class Point:
    """A bundle under a limit: bytes of scratch, how many multiply-adds more than without, how many
    instructions, and bytes of code, 0 where a C compiler decides that."""

    scratch_nbytes: int
    extra: int
    instructions: int
    code_nbytes: int


def curve(
    options: Options, plan: Callable[[Options], Program], code_of: Callable[[Program], int]
) -> Iterator[Point]:
    """Yield what a bundle takes without a limit, under lower and lower ones, and under the least.

    `plan` plans the model with options, and `code_of` says how much code a program becomes.
    """
    free = plan(replace(options, memory=None))
    plain = multiply_adds(free)
    last = 0
    for limited in _programs(free, options, plan):
        if limited.arena != last:
            last = limited.arena
            extra = multiply_adds(limited) - plain
            yield Point(last, extra, len(list(limited.instrs())), code_of(limited))


def _programs(
    free: Program, options: Options, plan: Callable[[Options], Program]
) -> Iterator[Program]:
    """Yield the program without a limit, and under lower and lower ones, as far as there are."""
    yield free
    for part in STEPS:
        limit = max(int(free.arena * part), 1)
        try:
            yield plan(replace(options, memory=limit))
        except MemoryLimitError as error:
            if error.least < limit:
                raise
            if error.least < free.arena:
                yield plan(replace(options, memory=error.least))
            return
