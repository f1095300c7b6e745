"""Contents of buffers: which bytes hold elements of which type, on every path to an instruction.

A branch starts from the contents before it, and where two paths meet, buffers hold what both paths
wrote.  A loop begins with what is there before it *and* after each iteration, so `Paths` asks for
another pass if an iteration leaves less than it began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from alpenglow.ir.types import PARTS
from alpenglow.program.footprint import EMPTY, Footprint, Map


def stored(dtype: str) -> str:
    """Return the element type that memory holds: of complex numbers, the type of their parts."""
    return PARTS.get(dtype, dtype)


class Contents:
    """The elements in a buffer: of one stored type, in all of it or at some footprints."""

    def __init__(self, nbytes: int, dtype: str = "", complete: bool = False) -> None:
        self.nbytes = nbytes
        self.dtype = stored(dtype)
        self.complete = complete
        self.written: dict[Footprint, None] = {}
        self._map: Map | None = None
        self._unmarked: list[Footprint] = []

    def write(self, dtype: str, place: Footprint) -> None:
        dtype = stored(dtype)
        if dtype != self.dtype:  # what was there is elements of this type no longer
            self.complete, self.written, self._map = False, {}, None
        self.dtype = dtype
        self.complete |= place.dense and place.end - place.begin == self.nbytes
        self.written[place] = None
        self._unmarked.append(place)

    def holds(self, dtype: str, place: Footprint) -> bool:
        """Return True if all of a footprint was written as elements of this type."""
        if place.empty:
            return True
        if stored(dtype) != self.dtype:
            return False
        if self.complete or place in self.written:
            return True
        if self._map is None or not self._map.fits(place, *self._unmarked):
            self._map = Map(self.nbytes, (place, *self.written))
            self._unmarked = list(self.written)
        for f in self._unmarked:
            self._map.mark(f)
        self._unmarked = []
        self.complete = self._map.full()
        return self.complete or self._map.has(place)

    def copy(self) -> Contents:
        same = Contents(self.nbytes, self.dtype, self.complete)
        same.written, same._unmarked = dict(self.written), list(self.written)
        return same

    def covers(self, other: Contents) -> bool:
        """Return True if all that `other` holds is here, too."""
        return all(self.holds(other.dtype, f) for f in other._held())

    def met(self, other: Contents) -> Contents:
        """Return the contents that are here and in `other`."""
        both = Contents(self.nbytes, self.dtype)
        if self.dtype == other.dtype:
            for f in (*self._held(), *other._held()):
                if self.holds(self.dtype, f) and other.holds(self.dtype, f):
                    both.write(self.dtype, f)
        return both

    def _held(self) -> Iterable[Footprint]:
        whole = Footprint(0, ((self.nbytes, 1),)) if self.nbytes else EMPTY
        return [whole] if self.complete else list(self.written)


State = dict[str, Contents]
"""The contents of each buffer."""


class Paths:
    """The states that jumps carry to the instructions that they lead to, by number."""

    def __init__(self, initial: State, heads: Iterable[int]) -> None:
        self._initial = initial
        self._heads = frozenset(heads)
        self._before: dict[int, State] = {}
        self._back: dict[int, State] = {}
        self._ahead: dict[int, State] = {}
        self.is_settled = True

    def begin(self) -> State:
        """Return the state before the first instruction, for a pass over all of them."""
        self._ahead, self.is_settled = {}, True
        return _copied(self._initial)

    def reach(self, number: int, state: State | None) -> State:
        """Return the state before an instruction; `state` is None if the one before it jumps off.

        Before an instruction that no path leads to, the state is the initial one.
        """
        for other in (self._ahead.pop(number, None), self._back.get(number)):
            if other is not None:
                state = _copied(other) if state is None else _met(state, other)
        if state is None:
            state = _copied(self._initial)
        if number in self._heads:
            self._before[number] = _copied(state)
        return state

    def jump(self, to: int, state: State, is_back: bool) -> None:
        """Take the state to another instruction; a jump back that loses contents needs a pass."""
        if not is_back:
            known = self._ahead.get(to)
            self._ahead[to] = _copied(state) if known is None else _met(known, state)
        elif not all(state[name].covers(c) for name, c in self._before[to].items()):
            self._back[to] = _met(self._before[to], state)
            self.is_settled = False


def _copied(state: Mapping[str, Contents]) -> State:
    return {name: c.copy() for name, c in state.items()}


def _met(a: State, b: State) -> State:
    return {name: c.met(b[name]) for name, c in a.items()}
