"""Executables of graphs with open extents: code is made as kinds of extents are met."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from alpenglow.base.errors import (
    FeedError,
    ModelError,
    SessionError,
    TypeRuleError,
    UnsupportedError,
)
from alpenglow.base.locks import new_lock
from alpenglow.base.mapped import maps_of
from alpenglow.ir.dims import bind, holds
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ir.text import print_graph
from alpenglow.ir.types import Array
from alpenglow.machines.api import Artifact
from alpenglow.program.instr import CAPACITY
from alpenglow.runtime.archive import archive
from alpenglow.runtime.call import feeds
from alpenglow.runtime.call.calls import Call
from alpenglow.runtime.call.extents import Reader
from alpenglow.runtime.device.layout import layout_of
from alpenglow.runtime.executables.executor import Executable
from alpenglow.runtime.executables.in_process import InProcess
from alpenglow.runtime.memory.layout import Layout, Place
from alpenglow.runtime.session.held import Held, check_rows

Make = Callable[[Mapping[str, int]], Artifact]
"""Compiles for values of the open extents."""

MOST_LAYOUTS = 16
"""For how many kinds of extents code is kept."""


def own_passes(treated: str, hint: str) -> UnsupportedError:
    """Return what is wrong with an archive of what compiles as a caller's own passes say."""
    return UnsupportedError(
        f"a model compiled with passes=… cannot be {treated}: the process that opens it lacks the "
        "passes",
        hint=hint,
    )


class OpenExecutable(InProcess):
    """What `make` makes of `graph` for the extents that calls bring.

    `reader` tells what they are in a call; where there is none, `execute` is told by its caller.
    `otherwise` runs calls of which the guards of the graph do not hold.  `artifacts` are what was
    made before; `settings` say how, for an archive, which cannot be written without.  If `make`
    `makes_all`, it serves extents of which the guards of the graph do not hold, too.
    """

    is_open = True

    def __init__(
        self,
        graph: Graph,
        target: Target,
        make: Make,
        threads: int | None = None,
        *,
        reader: Reader | None = None,
        otherwise: Executable | None = None,
        artifacts: Iterable[Artifact] = (),
        settings: Mapping[str, Any] | None = None,
        makes_all: bool = False,
    ) -> None:
        inputs, outputs = (
            {name: v.type for name, v in values.items()}
            for values in (graph.callers_inputs(), graph.callers_outputs())
        )
        super().__init__(graph.name, graph.metadata, target, threads, inputs, outputs)
        self.otherwise = otherwise
        self.graph = graph
        self._initial, self._growing = graph.initial, graph.growing
        after = {name: graph.outputs.get(name, v) for name, v in graph.initial.items()}
        self._rows_before = {n: graph.inputs[n].type.shape[a] for n, a in graph.growing.items()}
        self._rows_after = {n: after[n].type.shape[axis] for n, axis in graph.growing.items()}
        self._make = make
        self._reader = reader
        self._settings = settings
        self._makes_all = makes_all
        self._files = maps_of(v.array for v in graph.constants())
        self._compiling = new_lock()
        self._kept = list(artifacts) if not self._runs_here else []
        self._layouts = [layout_of(a) for a in artifacts] if self._runs_here else []

    @property
    def artifacts(self) -> list[Artifact]:
        others = [] if self.otherwise is None else self.otherwise.artifacts
        return [*self._kept, *(x.artifact for x in self._layouts), *others]

    def archived(self, treated: str = "saved") -> archive.OpenGraph:
        if self._settings is None:
            raise own_passes(treated, "bind the extents: compile(…, shapes={'NAME': (…)})")
        compiled = (*self._kept, *(x.artifact for x in self._layouts))
        return archive.OpenGraph(self.graph, self.target, self._settings, compiled)

    def place(self, values: Mapping[str, int]) -> Place:
        for layout in self._layouts:
            if layout.serves(values):
                return layout, layout.bound(values)
        with self._compiling:
            for layout in self._layouts:
                if layout.serves(values):
                    return layout, layout.bound(values)
            self._check_files()
            layout = layout_of(self._make(values))
            self._check_files()
            self._layouts = [layout, *self._layouts[: MOST_LAYOUTS - 1]]
            self._known.clear()  # it should not keep code alive that is in no list any more
        return layout, layout.bound(values)

    def _check_files(self) -> None:
        """Raise ModelError if a file that weights are mapped from was written into."""
        for file in self._files:
            file.check()

    def layout(self, values: Mapping[str, int]) -> Layout | None:
        return next((x for x in self._layouts if x.serves(values)), None)

    def serving(self, arrays: Mapping[str, Array], held: Held | None = None) -> Place | None:
        assert self._reader is not None, "a part is run by what knows its extents"
        rows = dict.fromkeys(self._growing, 0) if held is None else held.rows
        values, unfit = self._reader.values(arrays, rows)
        if unfit in self._growing:
            check_rows(rows, self._rows_before)
            raise SessionError(
                f"variable '{unfit}' has {rows[unfit]} rows, expected another number"
            )
        if unfit:
            return None
        if self._growing:
            values[CAPACITY] = self._room(values, None if held is None else held.length)
        return None if self._is_other(values) else self._place_for(arrays, values)

    def place_of(self, arrays: Mapping[str, Any]) -> Place | None:
        """Return where a call with these arrays would run; None if in parts, or not at all."""
        return self.serving(self._arrays.fit(arrays))

    def _room(self, values: Mapping[str, int], length: int | None) -> int:
        """Return how many rows variables that grow have room for; by themselves, for this call.

        Raises FeedError where that is too few.
        """
        needed = max(self._grown(values).values())
        if length is not None and needed > length:
            raise FeedError(
                f"this call needs {needed} rows of state, but the session has room for {length}",
                hint="session(length=…) with more, or session.trim(rows) or reset() before",
            )
        return max(needed, 1) if length is None else length

    def _grown(self, values: Mapping[str, int]) -> dict[str, int]:
        """Return how many rows variables that grow have after a call."""
        # Caches of all layers grow alike: an extent is computed once.
        extents = dict.fromkeys(self._rows_after.values())
        rows = {d: bind(d, values) for d in extents}
        return {name: int(rows[d]) for name, d in self._rows_after.items()}

    def _run(
        self,
        arrays: Mapping[str, Any],
        out: Mapping[str, Any],
        call: Call | None,
        held: Held | None = None,
    ) -> dict[str, Any]:
        if not self._growing:
            return super()._run(arrays, out, call, held)
        inputs = self._arrays.fit(arrays)
        state = held or Held(self._initial, self._growing)
        place = self.serving(inputs, state)
        if place is None:
            raise self._unserved(inputs, rows=state.rows)
        for name in self._growing:
            state.make_room(name, *place[1].forms[name])
        results = self._run_place(place, inputs, out, call, state)
        # Only now do rows that were written count as there.
        values = place[1].values
        state.rows = self._grown(values)
        return results

    def fingerprint(self) -> str:
        return hashlib.sha256(print_graph(self.graph).encode()).hexdigest()

    def _ran(self, arrays: Sequence[Array], place: Place) -> None:
        self._known.keep(arrays, place)

    def _is_other(self, values: Mapping[str, int]) -> bool:
        """Return True if the graph was not imported for these extents."""
        if self._makes_all or not self.graph.guards:
            return False
        if any(layout.serves(values) for layout in self._layouts):
            return False
        return not holds(self.graph.guards, values)

    def _run_otherwise(
        self, arrays: Mapping[str, Array], out: Mapping[str, Any], call: Call | None
    ) -> dict[str, Any]:
        """Run on extents that break a guard of the graph, or that an input cannot have.

        Raises FeedError if there is no other way to run the model.
        """
        if self.otherwise is None:
            raise self._unserved(arrays)
        try:
            return self.otherwise._run(arrays, out, call)
        except (FeedError, ModelError) as error:
            refusal = self._unserved(arrays, error.message)
            raise refusal.located(file=error.file, node=error.node) from error

    def _unserved(
        self, arrays: Mapping[str, Array], why: str = "", rows: Mapping[str, int] | None = None
    ) -> FeedError:
        assert self._reader is not None, "a part is run by what knows its extents"
        none = dict.fromkeys(self._growing, 0)
        values, unfit = self._reader.values(arrays, none if rows is None else rows)
        return feeds.unserved(self.inputs, arrays, values, unfit, self.graph.guards, why)

    def _place_for(self, arrays: Mapping[str, Array], values: Mapping[str, int]) -> Place:
        """Do what `place` does; what is wrong is wrong with the inputs that told these extents."""
        try:
            return self.place(values)
        except (TypeRuleError, ModelError) as error:
            raise feeds.unfit(error, arrays) from error

    def _warm(self, stand_in: Mapping[str, Array]) -> None:
        if self.serving(stand_in) is not None:
            return
        if self.otherwise is None:
            raise self._unserved(stand_in)
        raise UnsupportedError(
            "the model is imported anew for these dimensions, which only a call does",
            hint="call it once with such arrays",
        )

    def cancel(self) -> None:
        super().cancel()
        if self.otherwise is not None:
            self.otherwise.cancel()
