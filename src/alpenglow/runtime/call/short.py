"""Short calls: what a call of an Executable comes to once its shapes have been met.

Nothing is decided here: arrays of the right types and shapes are put into the argument table, and
the code walks its table.  Whatever else is given is left to `Executable.run`, which says what is
wrong with it, converts it, or compiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from alpenglow.base.cpus import default_threads
from alpenglow.ir.types import Array
from alpenglow.machines.registry import this_process
from alpenglow.runtime.call.calls import Call, StopWord
from alpenglow.runtime.memory.layout import Context, Place, address_of
from alpenglow.runtime.session.held import Held

NO_VARIABLES: Mapping[str, int] = MappingProxyType({})

MOST_KNOWN = 64
"""For how many shapes of inputs an Executable keeps in mind which code served them."""


class ShortPlaces:
    """Where short calls ran, by the shapes of their inputs."""

    def __init__(self) -> None:
        self._places: dict[tuple[tuple[int, ...], ...], Place] = {}

    def place(self, arrays: Sequence[Any]) -> Place | None:
        """Return where a short call with inputs of these shapes ran, if there was one."""
        if not self._places:
            return None
        try:
            return self._places.get(tuple([array.shape for array in arrays]))
        except (AttributeError, TypeError):
            return None  # it is no array, and not for a short call

    def keep(self, arrays: Sequence[Array], place: Place) -> None:
        """Keep in mind where a call ran, if it was a short one."""
        layout, bound = place
        if layout.is_table and not bound.is_long:
            if len(self._places) >= MOST_KNOWN:
                self._places.clear()
            self._places[tuple([array.shape for array in arrays])] = place

    def clear(self) -> None:
        self._places.clear()


def run(
    place: Place,
    arrays: Sequence[Any],
    threads: int | None,
    running: set[StopWord | Call],
    call: Call | None = None,
    held: Held | None = None,
) -> list[Array] | None:
    """Return the outputs in order for arrays in input order; None if this is no short call.

    `held` is what variables hold, where there are any; none of them grows.
    Where extents are open, the stop word is in `running` meanwhile.
    """
    layout, bound = place
    inputs, outputs = bound.inputs, bound.outputs
    if (
        bound.is_long
        or len(arrays) != len(inputs)
        or (layout.remembers and held is None)
        or (call is not None and call.deadline is not None)
    ):
        return None
    context = layout.take(bound)
    stop = context.stop
    if layout.symbols:
        running.add(stop)
    try:
        if call is not None:
            call.begin(stop)
        words = context.words
        for array, (dtype, shape, slots) in zip(arrays, inputs, strict=True):
            if (
                type(array) is not np.ndarray
                or array.dtype is not dtype
                or array.shape != shape
                or not (flags := array.flags).c_contiguous
                or not flags.aligned
            ):
                return None
            address = address_of(array)
            for slot, offset in slots:
                words[slot] = address + offset
        results = []
        for dtype, shape, slots in outputs:
            array = np.empty(shape, dtype)
            address = address_of(array)
            for slot, offset in slots:
                words[slot] = address + offset
            results.append(array)
        if layout.remembers and held is not None:
            _walk_with(held, place, context, threads)
        else:
            _walk(place, context, threads)
    finally:
        if call is not None:
            call.end()
        if layout.symbols:
            running.discard(stop)
        layout.give_back(bound, context)
    return results


class Prepared:
    """A short call of a part of a model, on values by name: made once, and run often.

    The values have the types and shapes of the place.
    """

    __slots__ = ("_inputs", "_outputs", "_threads", "layout", "place")

    def __init__(self, place: Place, threads: int | None) -> None:
        self.place = place
        self.layout, bound = place
        self._threads = threads
        sources = zip(self.layout.artifact.program.inputs, bound.inputs, strict=True)
        self._inputs = [(name, slots) for name, (_, _, slots) in sources if slots]
        self._outputs = list(zip(self.layout.results, bound.outputs, strict=True))

    def run(self, env: dict[str, Any], call: Call) -> bool:
        """Run as a part of `call`, and add the outputs to the values; False: no short call."""
        layout, bound = self.place
        if bound.is_long or call.deadline is not None or not layout.is_plain:
            return False
        context = layout.take(bound)
        try:
            call.begin(context.stop)
            words = context.words
            for name, slots in self._inputs:
                array = env[name]
                flags = array.flags
                if not (flags.c_contiguous and flags.aligned):
                    return False
                address = address_of(array)
                for slot, offset in slots:
                    words[slot] = address + offset
            results = {}
            for name, (dtype, shape, slots) in self._outputs:
                array = results[name] = np.empty(shape, dtype)
                address = address_of(array)
                for slot, offset in slots:
                    words[slot] = address + offset
            _walk(self.place, context, self._threads)
        finally:
            call.end()
            layout.give_back(bound, context)
        env |= results
        return True


def run_at(
    place: Place,
    inputs: Sequence[int],
    outputs: Sequence[int],
    threads: int | None,
    running: set[StopWord | Call],
    variables: Mapping[str, int] = NO_VARIABLES,
) -> None:
    """Run on memory at these addresses, dense and of the types and shapes of the place.

    `variables` are those of the buffers of variables, by name.  Whoever calls has seen to all that,
    and that the place is a table and not long.
    """
    layout, bound = place
    context = layout.take(bound)
    stop = context.stop
    if layout.symbols:
        running.add(stop)
    try:
        words = context.words
        for address, (_, _, slots) in zip(inputs, bound.inputs, strict=True):
            for slot, offset in slots:
                words[slot] = address + offset
        for address, (_, _, slots) in zip(outputs, bound.outputs, strict=True):
            for slot, offset in slots:
                words[slot] = address + offset
        for name, address in variables.items():
            for slot, offset in bound.slots[name]:
                words[slot] = address + offset
        _walk(place, context, threads)
    finally:
        if layout.symbols:
            running.discard(stop)
        layout.give_back(bound, context)


def _walk_with(held: Held, place: Place, context: Context, threads: int | None) -> None:
    """Let the code walk its table on what variables hold, and keep what it assigns."""
    program = place[0].artifact.program
    held.put_addresses(place, context.args)
    ran = False
    try:
        _walk(place, context, threads)
        ran = True
        held.advance(program)
    except BaseException as error:
        held.blame(program, ran, error)
        raise


def _walk(place: Place, context: Context, threads: int | None) -> None:
    """Let the code walk its table; the argument table holds all addresses."""
    layout, bound = place
    widest = bound.widest
    count = 1 if widest == 1 else threads or default_threads()
    if count > widest:
        count = widest
    this_process().run(context.base, layout.entries, count, context.stop.address)
    if context.stop.word.value:
        context.stop.check()
