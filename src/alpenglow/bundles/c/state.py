"""The state of a bundle in C: what `entry_state` is in LLVM IR."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from alpenglow.bundles.entry_state import MISALIGNED, NO_ROOM, NO_STATE
from alpenglow.bundles.extents import C_FUNCTIONS, ROWS, spelled
from alpenglow.bundles.mutable import MARK, Move, Place
from alpenglow.bundles.plan import BundlePlan, Routine

REGIONS = {"constants": "constants", "mutable": "mutable_data", "scratch": "scratch"}
"""What parameters are called that are regions."""


def at(place: Place, prefix: str = "") -> str:
    """Return the address of a place."""
    region = f"{prefix}{REGIONS[place.memory]}"
    return region if place.offset == 0 else f"({region} + {spelled(place.offset)})"


def aligned(*regions: str, alignment: int, refused: int = MISALIGNED) -> str:
    """Return from a function if a region is not aligned."""
    low = " | ".join(f"(uintptr_t){region}" for region in regions)
    return f"  if (({low}) % {alignment} != 0) return {refused};"


def admitted(routine: Routine) -> Iterator[str]:
    """Return from an entry point whose state is none, or full; else it is known how many rows."""
    state = routine.state
    if state is None:
        return
    yield "  int64_t *const state = (int64_t *)mutable_data;"
    yield f"  if (state[0] != {MARK}) return {NO_STATE};"
    if state.length:
        yield f"  {rows()}"
        yield f"  if ({ROWS} < 0 || {ROWS} > {state.length - routine.step}) return {NO_ROOM};"


def rows(prefix: str = "") -> str:
    """Read how many rows there are."""
    return f"const int64_t {ROWS} = ((const int64_t *){prefix}mutable_data)[1];"


def kept(routine: Routine) -> Iterator[str]:
    """Let the next call find what this one, which has succeeded, has put there."""
    yield from _moved(routine.last)
    if routine.step:
        yield f"  state[1] = {ROWS} + {routine.step};"


def functions(layout: BundlePlan) -> Iterator[str]:
    """Define the functions that handle the state, and what all that depends on it calls."""
    state = layout.routines[0].state
    assert state is not None, "functions handle what there is"
    name, alignment = state.name, layout.alignment
    there = f"  if (state[0] != {MARK}) return"
    yield C_FUNCTIONS
    yield _COPIED
    yield f"int {name}_reset(const uint8_t *constants, uint8_t *mutable_data) {{"
    yield aligned("constants", "mutable_data", alignment=alignment)
    yield from _moved(state.first)
    yield "  int64_t *const state = (int64_t *)mutable_data;"
    yield f"  state[0] = {MARK}, state[1] = 0;"
    yield from ("  return 0;", "}")
    if not state.length:
        return
    yield f"int64_t {name}_length(const uint8_t *mutable_data) {{"
    yield "  const int64_t *const state = (const int64_t *)mutable_data;"
    yield aligned("mutable_data", alignment=alignment, refused=-1)
    yield f"  return state[0] == {MARK} ? state[1] : -1;"
    yield "}"
    yield f"int {name}_trim(uint8_t *mutable_data, int64_t {ROWS}) {{"
    yield "  int64_t *const state = (int64_t *)mutable_data;"
    yield aligned("mutable_data", alignment=alignment)
    yield f"{there} {NO_STATE};"
    yield f"  if ({ROWS} < 0 || {ROWS} > state[1]) return {NO_ROOM};"
    yield f"  state[1] = {ROWS};"
    yield from ("  return 0;", "}")


def _moved(moves: Iterable[Move]) -> Iterator[str]:
    for move in moves:
        yield f"  copied({at(move.to)}, {at(move.source)}, {move.nbytes});"


_COPIED = """\
static inline void copied(uint8_t *to, const uint8_t *from, int64_t nbytes) {
  for (int64_t i = 0; i < nbytes; i++) to[i] = from[i];
}
"""
