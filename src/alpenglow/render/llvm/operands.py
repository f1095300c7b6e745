"""Numbers that stay in memory until the instruction that takes them.

LLVM would load each once, into a register, and address all of them by one pointer and an index.  In
an Intel core an instruction that reads memory is one operation only if its address has no index
(Intel, Optimization Reference Manual, micro-fusion).  So what lies a fixed way apart is read off
one pointer of which LLVM does not know whence it comes, and what is read again, off another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from alpenglow.kernel.address import Addresses, Terms
from alpenglow.kernel.expr import Load


@dataclass
class Pointer:
    """A pointer to an element at a number beside its terms, and the numbers that were read."""

    value: str
    at: int
    read: set[int] = field(default_factory=set)


Pointers = dict[tuple[str, Terms], list[Pointer]]
"""Those that a block may use, by the buffer and the terms."""


def pointer_to(
    e: Load, pointers: Pointers, addresses: Addresses, address: Callable[[], str],
    emit: Callable[[str], str],
) -> tuple[str, int]:  # fmt: skip
    """Return a pointer, and how many elements behind it an operand is.

    `address` renders where it is, and `emit` adds an instruction.
    """
    terms, number = addresses.split(e.at)
    known = pointers.setdefault((e.buffer.name, terms), [])
    for pointer in known:
        if number not in pointer.read:
            break
    else:
        # Of one pointer LLVM would take two that nothing is known of for one.
        before, at = (known[-1].value, known[-1].at) if known else (address(), number)
        # With a side effect, what is read stays in its order, and so in the registers there are.
        unknown = f'call ptr asm sideeffect "", "=r,0"(ptr {before}) memory(none) nounwind'
        pointer = Pointer(emit(unknown), at)
        known.append(pointer)
    pointer.read.add(number)
    return pointer.value, number - pointer.at
