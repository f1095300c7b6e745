"""Running a compiled model so that any access outside of an operand shows.

    guarded.run(exe, feeds)

gives what `exe.run(feeds)` gives, or raises Trespass.  Every kernel is called twice, on copies of
its operands between fences (`fences`):

- flush with the end: the last byte of each operand is the last that can be touched;
- flush with the beginning, and the parallel loop in pieces, the last one first.

Addresses are multiples of an element and of nothing more, which is all that kernels are promised.
What lies between the elements of a region (the rest of a concatenation, the lanes of a blocked
tensor that are no channels), and results before they are written, hold signalling NaNs, or
integers that nobody wants, others each time: results must not depend on them, and gaps in results
must stay as they are.  Operands are read-only.  A result that takes over the memory of an operand
shares a copy with it.

Then the whole program runs in an arena whose buffers lie apart, on one thread and on two, and as
it always does.  All of them must give the same bits.  Open extents, staged models and loops (turn
by turn) run like this as well; interpreted instructions run as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.memory import ALIGNMENT, aligned_bytes, bytes_of
from alpenglow.machines.api import Artifact
from alpenglow.program import Program
from alpenglow.program.bind import bind
from alpenglow.program.interpret import Memory
from alpenglow.program.text import print_program
from alpenglow.runtime.call import short
from alpenglow.runtime.executables.installed import install
from alpenglow.runtime.memory import walk as run_table
from alpenglow.runtime.memory.layout import Bound, Context, Layout

from .places import Mask, fill, operands
from .trial import LONG, Finding, Tally, number, run_all

Array = NDArray[Any]
Walk = Callable[..., None]

APART = 4096
"""Bytes between the buffers of an arena."""


class Trespass(Exception):
    """Kernels that touch what is not theirs, or depend on it."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__("\n".join(map(str, findings)))
        self.findings = findings

    def __reduce__(self) -> Any:
        return Trespass, (self.findings,)


def run(exe: ag.Executable | Artifact, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of an executable by name; raise Trespass if it is not to be trusted."""
    with watching():
        return (install(exe) if isinstance(exe, Artifact) else exe).run(feeds)


@contextmanager
def watching() -> Iterator[Tally]:
    """Let all executables that run inside run guarded; yields how much that was.

    Inside of itself it changes nothing.
    """
    walk = run_table.walk
    if (outer := getattr(walk, "tally", None)) is not None:
        yield outer
        return
    tally = Tally()

    def guarded(
        layout: Layout, bound: Bound, context: Context, given: Mapping[str, Array],
        results: Mapping[str, Array], threads: int | None,
    ) -> None:  # fmt: skip
        _in_fences(layout, bound, given, results, tally)
        expected = {name: a.copy() for name, a in results.items()}
        _apart(walk, layout, bound, given, results, expected)
        walk(layout, bound, context, given, results, threads)
        _compare(layout, bound, "as ever", expected, results)

    guarded.tally = tally  # type: ignore[attr-defined]
    with (
        mock.patch.object(run_table, "walk", guarded),
        mock.patch.object(short, "run", lambda *_: None),
    ):
        yield tally


def _in_fences(
    layout: Layout, bound: Bound, given: Mapping[str, Array], results: Mapping[str, Array],
    tally: Tally,
) -> None:  # fmt: skip
    """Run instruction by instruction in fences; raise Trespass where a kernel does wrong."""
    values = _values(layout, bound)
    program, table = bind(layout.artifact.program, values), layout.artifact.table
    addresses = {e.kernel: layout._code.address(e.kernel) for e in table if e.kernel}
    findings = run_all(program, table, addresses, {**given, **results}, tally, values)
    if findings:
        raise Trespass(findings)


def _values(layout: Layout, bound: Bound) -> dict[str, int]:
    """Return the values of symbols that an argument table was made for."""
    key = next(key for key, known in layout._bounds.items() if known is bound)
    return dict(zip(layout.symbols, key, strict=True))


# ── the whole program ──


def _apart(
    walk: Walk, layout: Layout, bound: Bound, given: Mapping[str, Array],
    results: Mapping[str, Array], expected: Mapping[str, Array],
) -> None:  # fmt: skip
    """Run in an arena whose buffers lie apart, with something else between them each time."""
    values = _values(layout, bound)
    program = layout.artifact.program
    sizes = {name: number(program.buffers[name].nbytes, values) for name in layout._lives}
    places, end = _spread(sizes)
    moved = _moved(layout, bound, values, places, end)
    is_gap = np.ones(end, np.bool_)
    for name, nbytes in sizes.items():
        is_gap[places[name] : places[name] + nbytes] = False
    for kind, threads in enumerate((1, 2)):
        context = Context(layout, moved, aligned_bytes(end))
        arena = context.arena
        fill(arena, "f32", kind)
        before = arena.copy()
        walk(layout, moved, context, given, results, threads)
        if ((before != arena) & is_gap).any():
            where = int(np.argmax((before != arena) & is_gap))
            buffer = max((b for b in places if places[b] <= where), key=places.__getitem__)
            raise Trespass([_of_program(layout, f"writes behind buffer {buffer}", buffer)])
        how = f"with buffers apart, on {threads} threads"
        _compare(layout, bound, how, expected, results)


def _spread(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return places of buffers that lie apart, and where the arena ends."""
    places, end = {}, APART
    for name, nbytes in sizes.items():
        places[name] = end
        end += -(-(nbytes + APART) // ALIGNMENT) * ALIGNMENT
    return places, end


def _moved(
    layout: Layout, bound: Bound, values: Mapping[str, int], places: Mapping[str, int], end: int
) -> Bound:
    """Return the argument table for another arena."""
    planned, _ = layout._planned(tuple(values.values()))
    by = np.array(list(places.values()), np.int64) - planned
    args = bound.args.copy()
    args[layout.arena_slots] += by[layout._arena_buffers].astype(np.uint64)
    program = bind(layout.artifact.program, values)
    buffers = {k: replace(b, offset=places.get(k)) for k, b in program.buffers.items()}
    apart = replace(program, buffers=buffers, arena=end)
    memory = None if bound.make_memory is None else lambda arena: Memory(apart, arena)
    return replace(bound, args=args, arena_nbytes=end, make_memory=memory, pool=[])


def _compare(
    layout: Layout, bound: Bound, how: str, expected: Mapping[str, Array],
    actual: Mapping[str, Array],
) -> None:  # fmt: skip
    """Raise Trespass unless outputs have the bits that the run in fences gave."""
    program = bind(layout.artifact.program, _values(layout, bound))
    for name, array in expected.items():
        differs = bytes_of(array) != bytes_of(actual[name])
        if (differs & _specified(program, name)).any():
            what = f"run {how}, output '{name}' has other bits than in fences"
            raise Trespass([_of_program(layout, what, name)])


def _specified(program: Program, name: str) -> Mask:
    """Return which bytes of a buffer are those of elements whose values are specified."""
    mask = np.ones(program.buffers[name].nbytes, np.bool_)
    for o in (o for i in program.instrs() for o in operands(i)):
        if o.is_result and o.region.buffer == name:
            mask &= o.mask(0, mask.size, logical=True) | ~o.mask(0, mask.size)
    return mask


def _of_program(layout: Layout, what: str, operand: str) -> Finding:
    text = "" if layout.symbols else print_program(layout.artifact.program)[:LONG]
    return Finding("the program", what, operand, "arena", text)
