"""Kernel language to C11.

Each kernel becomes a function of its buffers, its run-time extents and, if it has a parallel loop,
the part of that loop to run.  A `Unit` is a file of them: what they share is defined once, at its
beginning, and there is nothing in it that they do not use.  No library is called.

Kernels are legalised first: C has no short floats.  Vectors are those of gcc and clang.  With
`portable` they are arrays, and every statement on them is a loop over lanes (`lanes`).
"""

from __future__ import annotations

from dataclasses import replace

from alpenglow.ir.types import HALVES
from alpenglow.kernel.intrinsics import INTRINSICS
from alpenglow.kernel.legalise import Lacks, legalise
from alpenglow.kernel.stmt import Kernel
from alpenglow.render.c.lanes import Lanewise
from alpenglow.render.c.library import CLibrary
from alpenglow.render.c.statements import Plain
from alpenglow.render.c.wide import Wide
from alpenglow.render.clike.registers import without_dead

PORTABLE = Lacks(
    halves=HALVES,
    instructions=frozenset(name for name, known in INTRINSICS.items() if not known.c),
)
"""What plain C11 lacks, where vectors are arrays."""

VECTORS = replace(PORTABLE, lanes=256, element=8)
"""What C lacks with the vectors of gcc and clang, which know powers of two and no c128."""


class Unit:
    """A file of C; kernels are added one after the other.

    With `fast`, products that are added up may be rounded where the machine does not multiply and
    add in one step.
    """

    def __init__(self, *, portable: bool = False, fast: bool = True) -> None:
        self.portable = portable
        self.fast = fast
        self.library = CLibrary(portable)
        self.functions: list[str] = []

    def add(
        self,
        kernel: Kernel,
        name: str = "",
        comment: str = "",
        aliased: frozenset[str] = frozenset(),
        exported: bool = False,
    ) -> None:
        """Add the function of a kernel, under its name or another, with a comment before it.

        `aliased` names the read-only buffers that may be the same memory as a mutable one.
        """
        named = replace(kernel, name=name or kernel.name)
        kernel = without_dead(legalise(named, PORTABLE if self.portable else VECTORS))
        kind: type[Plain] = Lanewise if self.portable else Wide
        text = kind(kernel, self.library, self.fast, aliased).text(
            "void " if exported else "KERNEL void "
        )
        note = "".join(f"/* {line} */\n" for line in comment.splitlines())
        self.functions.append(note + text)

    def text(self) -> str:
        """Return the file."""
        return "\n".join([self.library.text(), *self.functions])


def render(kernel: Kernel, *, portable: bool = False, fast: bool = True) -> str:
    """Return a file with one kernel, to read."""
    unit = Unit(portable=portable, fast=fast)
    unit.add(kernel, exported=True)
    return unit.text()
