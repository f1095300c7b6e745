"""Sessions: calls of an Executable that remember what its variables hold.

A session owns an array for each variable.  A call reads it at entry; what is assigned is written
into another array, which takes its place when the call has succeeded.  Where the plan of memory has
both in one buffer (`program.share`) the one array is changed in place, and a call that is ended
before its time leaves neither the old value nor the new one there.  The session then says so until
it is reset: nobody computes with half a held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from alpenglow.base.errors import FeedError, SessionError
from alpenglow.base.memory import aligned_bytes
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array, TensorType
from alpenglow.program import Program
from alpenglow.runtime import calls, feeds
from alpenglow.runtime.calls import Call
from alpenglow.runtime.feeds import Places

Memory = tuple[dict[str, Array], dict[str, Array]]
"""The arrays that variables have at entry and those that they have at exit, by buffers."""


class Held:
    """What the variables of a session hold: for each an array, and one to write another into.

    `lost` tells what became of them, if they hold nothing that means anything.
    """

    def __init__(self, initial: Mapping[str, Value]) -> None:
        self.arrays = {name: _owned(_contents(v)) for name, v in initial.items()}
        self.spare: dict[str, Array] = {}
        self.lost = ""

    def memory(self, program: Program) -> Memory:
        """Return what a run of a program reads at entry and writes at exit.

        These are the same arrays where it works in place.
        """
        entries, exits = {}, {}
        for name, cell in program.variables.items():
            entries[name] = self.arrays[name]
            if cell.exit == name:
                exits[name] = self.arrays[name]
            elif cell.exit:
                if name not in self.spare:
                    self.spare[name] = _owned(self.arrays[name])
                exits[cell.exit] = self.spare[name]
        return entries, exits

    def advance(self, program: Program) -> None:
        """Let what a run has written be what the next one reads."""
        for name, cell in program.variables.items():
            if cell.exit not in ("", name):
                self.arrays[name], self.spare[name] = self.spare[name], self.arrays[name]


@contextmanager
def lent(program: Program, held: Held | None) -> Iterator[Memory]:
    """Lend the memory of variables to a run in a block, and keep what it assigned if that succeeds.

    Without any they have their initial values, and nothing is kept.
    """
    if not program.variables:
        yield {}, {}
        return
    if held is None:
        initial = {name: cell.initial for name, cell in program.variables.items()}
        yield Held(initial).memory(program)
        return
    try:
        yield held.memory(program)
    except BaseException as error:
        changed = [name for name, cell in program.variables.items() if cell.exit == name]
        if changed:
            why = f"{type(error).__name__}: {error}".removesuffix(": ")
            held.lost = f"{', '.join(changed)} may have changed in place, then came {why}"
        raise
    held.advance(program)


class Session:
    """Calls of an Executable, one after another, each of which reads what the last one assigned.

    `variables` holds copies of what they have now, by name, and takes what they shall have.  Other
    sessions have variables of their own, and may be called at the same time.  A session is called
    by one thread at a time: while a call runs, another, or one to `reset`, raises SessionError,
    for nobody could tell which comes first.

    A call that fails leaves all variables as they were.  Not so if one was being computed in place
    as the code was ended: by a timeout, `cancel`, an interrupt, or an index out of range.  Then all
    further calls raise SessionError until `reset`.
    """

    def __init__(
        self,
        name: str,
        inputs: Mapping[str, TensorType],
        initial: Mapping[str, Value],
        run: Callable[..., dict[str, Array]],
    ) -> None:
        """Take what an Executable is called, its inputs, its variables, and how it runs.

        `run` takes feeds, places, the outputs wanted, the call, and what variables hold.
        """
        self.name, self.inputs = name, inputs
        self._initial = initial
        self._run = run
        self._held = Held(initial)
        self._turn = threading.Lock()
        self.variables: MutableMapping[str, Any] = Variables(self)

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {v.type}" for name, v in self._initial.items())
        return f"Session({self.name}; {types or 'no variables'})"

    def __call__(
        self,
        *arrays: Any,
        out: Places | None = None,
        outputs: Sequence[str] | None = None,
        **by_name: Any,
    ) -> Array | Any:
        """Return the output for arrays in input order or by name, as a call of the Executable."""
        inputs = feeds.given(self.inputs, arrays, by_name)
        results = list(self.run(inputs, out, outputs=outputs).values())
        return results[0] if len(results) == 1 else tuple(results)

    def run(
        self,
        feeds: Mapping[str, Any],
        out: Places | None = None,
        timeout: float | None = None,
        outputs: Sequence[str] | None = None,
    ) -> dict[str, Array]:
        """Return the outputs by name, as `Executable.run`, and remember what is assigned.

        Raises SessionError while another call runs, or if variables were lost, and what
        `Executable.run` raises.
        """
        call = None if timeout is None else Call(calls.deadline_of(timeout))
        with self.owned() as held:
            return self._run(feeds, out, outputs, call, held)

    def reset(self) -> None:
        """Give all variables their initial values."""
        with self._alone():
            self._held = Held(self._initial)

    @contextmanager
    def owned(self) -> Iterator[Held]:
        """Yield what variables hold in a block during which nobody else has it."""
        with self._alone():
            if self._held.lost:
                raise SessionError(
                    f"the variables of this session hold nothing any more: {self._held.lost}",
                    hint="session.reset() gives them their initial values",
                )
            yield self._held

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._turn.acquire(blocking=False):
            raise SessionError(
                "another call of this session is running, and which comes first is not told",
                hint="give each thread a session of its own: executable.session()",
            )
        try:
            yield
        finally:
            self._turn.release()


class Variables(MutableMapping[str, Any]):
    """The variables of a session: copies to read, and checked where they are written."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._types = {name: v.type for name, v in session._initial.items()}

    def __getitem__(self, name: str) -> Array:
        self._check(name)
        with self._session.owned() as held:
            return held.arrays[name].copy()

    def __setitem__(self, name: str, value: Any) -> None:
        self._check(name)
        t = self._types[name]
        try:
            array = feeds.fitting(name, value, t, t.numpy, t.extents)
        except FeedError as error:
            raise FeedError(f"variable '{name}' cannot be set: {error.message}") from None
        with self._session.owned() as held:
            held.arrays[name] = _owned(array)

    def __delitem__(self, name: str) -> None:
        raise SessionError(f"variable '{name}' cannot be deleted, only reset")

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def _check(self, name: str) -> None:
        if name not in self._types:
            known = ", ".join(self._types) or "none"
            raise FeedError(f"there is no variable '{name}'; the variables are {known}")


def _contents(v: Value) -> Array:
    assert v.array is not None, "a variable begins with a constant"
    return v.array


def _owned(array: Array) -> Array:
    """Return a copy where vectors like it."""
    place = aligned_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    place[...] = array
    return place
