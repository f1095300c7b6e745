"""The state of a bundle as LLVM IR: what an entry point asks of it, and what handles it.

An entry point that has state returns NO_STATE where none was made by `NAME_reset`, and NO_ROOM
where there is none for the rows that it adds; then nothing has been done.  Rows count as there when
the call has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from alpenglow.base.memory import ALIGNMENT
from alpenglow.bundles.extents import ROWS
from alpenglow.bundles.mutable import MARK, Move, State
from alpenglow.bundles.plan import BundlePlan, Routine

MISALIGNED = 1
"""What is returned if a region is not aligned."""

NO_MACHINE = 2
"""What is returned on a processor for which there is no code."""

NO_STATE = 4
"""What is returned if nothing made the state, or what it held was lost."""

NO_ROOM = 5
"""What is returned if there is no room for so many rows, or there are not as many to keep."""


def admitted(routine: Routine) -> Iterator[str]:
    """Return from an entry point whose state is none, or full; else it is known how many rows."""
    state = routine.state
    if state is None:
        return
    yield from _marked(f"  ret i32 {NO_STATE}")
    if state.length:
        yield from rows()
        yield f"  %fits = icmp ule i64 %{ROWS}, {state.length - routine.step}"
        yield "  br i1 %fits, label %room, label %full"
        yield from ("full:", f"  ret i32 {NO_ROOM}", "room:")


def rows() -> Iterator[str]:
    """Read how many rows there are."""
    yield "  %rows.at = getelementptr i8, ptr %mutable, i64 8"
    yield f"  %{ROWS} = load i64, ptr %rows.at, align 8"


def kept(routine: Routine) -> Iterator[str]:
    """Let the next call find what this one, which has succeeded, has put there."""
    yield from _moved(routine.last, "last")
    if routine.step:
        yield f"  %more = add i64 %{ROWS}, {routine.step}"
        yield "  store i64 %more, ptr %rows.at, align 8"


def lost(routine: Routine) -> Iterator[str]:
    """Let there be no state where parts of it may have been written over."""
    if routine.loses:
        yield "  store i64 0, ptr %mutable, align 8"


def functions(layout: BundlePlan) -> Iterator[str]:
    """Define the functions that handle the state."""
    state = layout.routines[0].state
    if state is None:
        return
    yield from _reset(state, several=bool(layout.routines[0].choices))
    if state.length:
        yield from _length(state)
        yield from _trim(state)


def _reset(state: State, several: bool) -> Iterator[str]:
    yield f'define i32 @"{state.name}_reset"(ptr %constants, ptr %mutable) nounwind {{'
    yield from _aligned("constants", "mutable")
    if several:
        yield "  %level = call i32 @alpenglow_level()"
        yield "  %none = icmp slt i32 %level, 0"
        yield "  br i1 %none, label %other, label %known"
        yield from ("other:", f"  ret i32 {NO_MACHINE}", "known:")
    yield from _moved(state.first, "first")
    yield "  %rows.at = getelementptr i8, ptr %mutable, i64 8"
    yield "  store i64 0, ptr %rows.at, align 8"
    yield f"  store i64 {MARK}, ptr %mutable, align 8"
    yield from ("  ret i32 0", "}")


def _length(state: State) -> Iterator[str]:
    yield f'define i64 @"{state.name}_length"(ptr %mutable) nounwind {{'
    yield from _aligned("mutable", refused="  ret i64 -1")
    yield from _marked("  ret i64 -1")
    yield from rows()
    yield from (f"  ret i64 %{ROWS}", "}")


def _trim(state: State) -> Iterator[str]:
    yield f'define i32 @"{state.name}_trim"(ptr %mutable, i64 %kept) nounwind {{'
    yield from _aligned("mutable")
    yield from _marked(f"  ret i32 {NO_STATE}")
    yield from rows()
    yield f"  %fewer = icmp ule i64 %kept, %{ROWS}"
    yield "  br i1 %fewer, label %keep, label %refused"
    yield from ("refused:", f"  ret i32 {NO_ROOM}", "keep:")
    yield "  store i64 %kept, ptr %rows.at, align 8"
    yield from ("  ret i32 0", "}")


def _marked(otherwise: str) -> Iterator[str]:
    """Return where there is no state."""
    yield "  %mark = load i64, ptr %mutable, align 8"
    yield f"  %there = icmp eq i64 %mark, {MARK}"
    yield "  br i1 %there, label %found, label %nothing"
    yield from ("nothing:", otherwise, "found:")


def _aligned(*regions: str, refused: str = f"  ret i32 {MISALIGNED}") -> Iterator[str]:
    """Begin a function that returns at once if a region is not aligned."""
    yield "entry:"
    low = "0"
    for region in regions:
        yield f"  %n.{region} = ptrtoint ptr %{region} to i64"
        yield f"  %or.{region} = or i64 {low}, %n.{region}"
        low = f"%or.{region}"
    yield f"  %low = and i64 {low}, {ALIGNMENT - 1}"
    yield "  %aligned = icmp eq i64 %low, 0"
    yield "  br i1 %aligned, label %run, label %refuse"
    yield from ("refuse:", refused, "run:")


def _moved(moves: Iterable[Move], prefix: str) -> Iterator[str]:
    for number, move in enumerate(moves):
        to, source = f"%{prefix}.to{number}", f"%{prefix}.of{number}"
        for name, place in ((to, move.to), (source, move.source)):
            yield f"  {name} = getelementptr i8, ptr %{place.memory}, i64 {place.offset}"
        yield f"  call void {COPY}(ptr {to}, ptr {source}, i64 {move.nbytes}, i1 false)"


COPY = "@llvm.memcpy.p0.p0.i64"
DECLARED = f"declare void {COPY}(ptr, ptr, i64, i1)"
"""What moves need."""
