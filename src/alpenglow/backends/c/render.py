"""Kernel language to C11.

Each kernel becomes a function of its buffers, its run-time extents and, if it has a parallel loop,
the part of that loop to run.  A `Unit` is a file of them: what they share is defined once, at its
beginning, and there is nothing in it that they do not use.  No library is called.

Vectors are those of gcc and clang.  With `portable` (and where a kernel has vectors that these do
not know) they are arrays, and every statement on them is a loop over lanes (`lanes`).
"""

from __future__ import annotations

from dataclasses import replace

from alpenglow.backends.c.lanes import Lanewise
from alpenglow.backends.c.library import Library
from alpenglow.backends.c.registers import operands, parts, without_dead
from alpenglow.backends.c.statements import Statements
from alpenglow.backends.c.wide import Wide
from alpenglow.kernel.stmt import Kernel, Store, statements


class Unit:
    """A file of C; kernels are added one after the other.

    With `fast`, products that are added up may be rounded where the machine does not multiply and
    add in one step.
    """

    def __init__(self, *, portable: bool = False, fast: bool = True) -> None:
        self.portable = portable
        self.fast = fast
        self.library = Library(portable)
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
        kernel = without_dead(replace(kernel, name=name or kernel.name))
        plain = self.portable or not _has_vectors(kernel)
        kind: type[Statements] = Lanewise if plain else Wide
        text = kind(kernel, self.library, self.fast, aliased).text(exported)
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


def _has_vectors(kernel: Kernel) -> bool:
    """Whether the compilers have types for all vectors of a kernel."""
    kinds = {
        (x.dtype, x.lanes) for s in statements(kernel.body) for e in operands(s) for x in parts(e)
    }
    kinds |= {(s.value.dtype, s.value.lanes) for s in statements(kernel.body)
              if isinstance(s, Store)}  # fmt: skip
    return all(n.bit_count() == 1 and (n == 1 or dtype != "c128") for dtype, n in kinds)
