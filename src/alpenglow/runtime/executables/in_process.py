"""Executables whose code this process runs itself, on arrays as they are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.ir.metadata import Metadata
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array, TensorType
from alpenglow.machines.registry import device_for
from alpenglow.runtime.call import feeds, short
from alpenglow.runtime.call.calls import Call
from alpenglow.runtime.call.feeds import Inputs, drawn
from alpenglow.runtime.device.array import DeviceArray
from alpenglow.runtime.device.layout import DeviceLayout
from alpenglow.runtime.executables import timing
from alpenglow.runtime.executables.executor import Executable
from alpenglow.runtime.memory.layout import Layout, Place, dense
from alpenglow.runtime.memory.walk import run_code
from alpenglow.runtime.session.held import Held, lent


class InProcess(Executable):
    """An Executable that runs tables of code; `place` says which, for the extents of a call."""

    def __init__(
        self,
        name: str,
        metadata: Metadata,
        target: Target,
        threads: int | None,
        inputs: Mapping[str, TensorType],
        outputs: Mapping[str, TensorType],
    ) -> None:
        super().__init__(name, metadata, target, threads, inputs, outputs)
        self.device = device_for(target) if self._runs_here else None
        self._arrays = Inputs(inputs, self.device)

    @abstractmethod
    def place(self, values: Mapping[str, int]) -> Place:
        """Return where `execute` runs for these values of all symbols; compile if need be."""

    @abstractmethod
    def layout(self, values: Mapping[str, int]) -> Layout | None:
        """Return the layout whose code serves these extents; None where none is compiled yet."""

    @abstractmethod
    def serving(self, arrays: Mapping[str, Array]) -> Place | None:
        """Return where arrays are run, as the shapes of all of them say.

        None where the model is imported anew for them.
        """

    def prepared(self, values: Mapping[str, int]) -> short.Prepared:
        """Return the prepared short call for these values of all symbols; compile if need be."""
        return short.Prepared(self.place(values), self.threads)

    def execute(self, env: dict[str, Any], place: Place, call: Call) -> None:
        """Run on arrays of the right types by name, and add those of the outputs to them."""
        layout, bound = place
        program = layout.artifact.program
        inputs = {name: dense(env[name]) for name in self.inputs} | drawn(layout.hidden)
        fresh = [np.empty(shape, dtype) for dtype, shape, _ in bound.outputs]
        results = dict(zip(program.outputs, fresh, strict=True))
        run_code(place, inputs, results, self.threads, self._running, call)
        env.update(zip(layout.results, fresh, strict=True))

    def _run(
        self,
        arrays: Mapping[str, Any],
        out: Mapping[str, Any],
        call: Call | None,
        held: Held | None = None,
    ) -> dict[str, Any]:
        inputs = self._arrays.fit(arrays)
        place = self.serving(inputs)
        if place is None:
            return self._run_otherwise(inputs, out, call)
        told = list(inputs.values())
        results = self._run_place(place, inputs, out, call, held)
        self._ran(told, place)
        return results

    def begin(
        self, arrays: Mapping[str, Any], outputs: Sequence[str] | None, call: Call | None
    ) -> Mapping[str, DeviceArray]:
        wanted = feeds.chosen(outputs, self.outputs)
        inputs = self._arrays.fit(arrays)
        place = self.serving(inputs)
        if place is None:
            raise UnsupportedError("device=True is not supported for shapes that run in parts")
        layout, bound = place
        if not isinstance(layout, DeviceLayout):
            return super().begin(arrays, outputs, call)
        with lent(layout.artifact.program, None) as (entries, exits):
            before = {**inputs, **drawn(layout.hidden), **entries}
            results = layout.begin(bound, before, exits, wanted, self._running, call)
        return {name: results[name] for name in wanted}

    def _run_place(
        self,
        place: Place,
        inputs: Mapping[str, Array],
        out: Mapping[str, Any],
        call: Call | None,
        held: Held | None,
    ) -> dict[str, Any]:
        layout, bound = place
        program = layout.artifact.program
        results, direct = feeds.results(program, bound.forms, out, inputs)
        with lent(program, held) as (entries, exits):
            before = {**inputs, **drawn(layout.hidden), **entries}
            after = {**direct, **exits}
            run_code(place, before, after, self.threads, self._running, call)
        return feeds.handed_back(program, results, direct)

    def _ran(self, arrays: Sequence[Array], place: Place) -> None:
        """Take note of where arrays ran, so that others of these shapes go there quickly."""

    def _run_otherwise(
        self, arrays: Mapping[str, Array], out: Mapping[str, Any], call: Call | None
    ) -> dict[str, Any]:
        """Run arrays that no place serves."""
        raise AssertionError("code for numbers serves whatever fits its inputs")

    def timings(self, feeds: Mapping[str, Any], rounds: int = 20) -> timing.Timings:
        return timing.timings(self.timed(feeds, rounds))

    def timed(self, feeds: Mapping[str, Any], rounds: int) -> timing.Timing:
        """Run on arrays as a whole and in single instructions, by turns.

        Variables begin with their initial values: that is no call of anybody's session.  Raises
        UnsupportedError where a run is more than one table of instructions.
        """
        if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
            raise OptionError(f"rounds is {rounds!r}, expected a number, at least 1")
        self.run(feeds)
        arrays = self._arrays.fit(feeds)
        place = self.serving(arrays)
        if place is None:
            raise UnsupportedError(
                "timing instructions is not supported for shapes that run in parts"
            )
        inputs = arrays | drawn(place[0].hidden)
        held = Held(self._initial, self._growing)
        for name in self._growing:
            held.make_room(name, *place[1].forms[name])
        return timing.time_instructions(place, inputs, held, self.threads, rounds)
