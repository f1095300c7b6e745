"""Reordering instructions, once it is known which are views and which results take over memory."""

from __future__ import annotations

from alpenglow.ir.dims import is_open
from alpenglow.program.instr import Program
from alpenglow.program.moves import moved
from alpenglow.program.stream_rows import arena_of
from alpenglow.program.units import Units


def reorder(program: Program) -> Program:
    """Return the program in an order that takes less memory, if there is one.

    Each buffer holds one value.  With open extents nothing changes: what takes more would have to
    be asked, and each answer is another program.
    """
    if any(is_open(b.nbytes) for b in program.buffers.values()):
        return program
    units = Units(program)
    given = tuple(range(len(units.all)))
    order = moved(units.graph_of(given), given)
    if order == given:
        return program
    other = units.program_of(order)
    return other if arena_of(other) < arena_of(program) else program
