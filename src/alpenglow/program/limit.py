"""A limit on the memory of a program: whether its plan keeps to it, and what stands in the way."""

from __future__ import annotations

from alpenglow.base.errors import MemoryLimitError
from alpenglow.base.words import counted, shown
from alpenglow.program.instr import Program
from alpenglow.program.plan import lifetimes

MOST_NAMED = 6
"""How many buffers an error names."""


def require_fit(program: Program, limit: int, *, planned_before: bool = False) -> None:
    """Raise MemoryLimitError if the arena of a planned program is larger than the limit.

    The error says what is the least, and which buffers are alive together where most is.  Of a
    program that was `planned_before`, as an archive's, that is not the least that could be planned.
    """
    if program.arena <= limit:
        return
    step, alive = worst_moment(program)
    held = [f"%{shown(name)} ({program.buffers[name].nbytes:,})" for name in alive[:MOST_NAMED]]
    rest = f" and {counted(len(alive) - MOST_NAMED, 'other')}" if len(alive) > MOST_NAMED else ""
    least = "was planned with" if planned_before else "needs at least"
    hint = f"a limit of {program.arena} or more"
    error = MemoryLimitError(
        f"the memory of a call is limited to {limit:,} bytes, but {program.name} {least} "
        f"{program.arena:,} beside its inputs, outputs and weights; instruction {step} has alive: "
        f"{', '.join(held)}{rest}",
        hint="the model itself in place of what was planned" if planned_before else hint,
    )
    error.least = program.arena
    raise error


def worst_moment(program: Program) -> tuple[int, list[str]]:
    """Return the number of the instruction at which most bytes are alive, and the buffers that are,
    the largest first."""
    lives = lifetimes(program)
    sizes = {name: program.buffers[name].nbytes for name in lives}
    changes: dict[int, int] = {}
    for name, (first, last) in lives.items():
        changes[first] = changes.get(first, 0) + sizes[name]
        changes[last + 1] = changes.get(last + 1, 0) - sizes[name]
    worst = live = most = 0
    for step in sorted(changes):
        live += changes[step]
        if live > most:
            worst, most = step, live
    alive = [name for name, (first, last) in lives.items() if first <= worst <= last]
    return worst, sorted(alive, key=lambda name: -sizes[name])
