"""Executables: an artifact installed in this process, ready to be called.

A call takes an arena from a pool, writes the addresses of inputs and outputs into the argument
table, and lets compiled code walk the table.  Instructions without a kernel are interpreted on
the same memory.  A call that may be long, or is given a time, waits for a thread that runs the code
(`runtime.calls`); whether it is long is measured.  Calls from several threads run side by side,
each in an arena of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from alpenglow.backends.api import Artifact
from alpenglow.base.errors import (
    FeedError,
    ModelError,
    OptionError,
    TypeRuleError,
    UnsupportedError,
)
from alpenglow.ir.dims import Guards, holds
from alpenglow.ir.graph import HIDDEN, Graph
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array, TensorType
from alpenglow.program.interpret import step
from alpenglow.runtime import ahead, archive, calls, describe, feeds, short, signature, timing
from alpenglow.runtime.calls import Call, StopWord
from alpenglow.runtime.cpus import check_threads, default_threads
from alpenglow.runtime.describe import Description
from alpenglow.runtime.extents import Reader
from alpenglow.runtime.feeds import Places
from alpenglow.runtime.layout import Bound, Context, Layout, Place, address_of, dense
from alpenglow.runtime.team import Team


def open(
    path: str | os.PathLike[str] | archive.Content,
    threads: int | None = None,
    *,
    mmap: bool | None = None,
    key: signature.Key | None = None,
) -> Executable:
    """Return the Executable that `Executable.save` wrote to `path`, without compiling anything.

    Instead of a path, the bytes of such a file may be given; they are copied.
    An archive of up to 64 MiB is copied; weights of a larger one are mapped from the file, which
    must then be replaced, never written into.  `mmap` says which of the two, whatever the size.
    Raises ModelError if the file is no archive or damaged, and IncompatibleError if this version
    or this machine cannot run it; both before any of its code is loaded.  An archive is a program:
    open only what you would run.  `key`, a public Ed25519 key (a PEM file, or its bytes), must have
    signed it: else there is a SignatureError.
    """
    check_threads(threads)
    if mmap is not None and not isinstance(mmap, bool):
        raise OptionError(f"mmap is {mmap!r}, expected True, False or None")
    return Executable(archive.read(path, mmap, key), threads)


Make = Callable[[Mapping[str, int]], Artifact]
"""Compiles for values of the open extents."""

MOST_LAYOUTS = 16
"""How many kinds of extents an Executable keeps code for."""


class Executable:
    """A compiled model.  Call it with arrays in input order or by name, or `run` it with a dict.

    `inputs` and `outputs` are the types by name, `name` is the model's, `metadata` what its file
    says of itself, `target` what the code is for, `threads` how many a call may use (None: as many
    as there is CPU time for).  Threads may call it at the same time.  One that was compiled for
    another machine can be saved, but not run.
    """

    _runs_here = True

    _plain: Place | None = None
    """Where all calls run, if there is one table for them, with nothing interpreted or hidden."""

    def __init__(
        self,
        artifact: Artifact | None,
        threads: int | None = None,
        *,
        graph: Graph | None = None,
        target: Target | None = None,
        make: Make | None = None,
        reader: Reader | None = None,
        otherwise: Executable | None = None,
    ) -> None:
        """Install an artifact; where extents are open, what `make` makes of `graph` for them.

        `reader` tells what they are in a call; where there is none, `execute` is told by its
        caller.  `otherwise` runs calls of which the guards of the graph do not hold.
        """
        self.threads = threads
        self._make = make
        self._reader = reader
        self._otherwise = otherwise
        self._guards: Guards = () if graph is None else graph.guards
        self._layouts: list[Layout] = []
        self._known = short.Known()
        self._compiling = threading.Lock()
        self._running: set[StopWord | Call] = set()
        if artifact is not None:
            program = artifact.program
            self.name, self.metadata = program.name, artifact.metadata
            self.artifact = artifact
            self.target = artifact.target
            self.inputs: dict[str, TensorType] = _types(artifact, program.inputs)
            # Inside, outputs go by the names of their buffers; the caller may call them otherwise.
            made = _types(artifact, program.outputs)
            self.outputs = {program.names.get(name, name): t for name, t in made.items()}
        else:
            assert graph is not None and target is not None, "there is nothing to execute"
            self.name, self.metadata = graph.name, graph.metadata
            self.target = target
            self.inputs = {name: v.type for name, v in graph.inputs.items()}
            self.outputs = {name: v.type for name, v in graph.outputs.items()}
        self._hidden = [n for n in self.inputs if n.startswith(HIDDEN)]
        self.inputs = {n: t for n, t in self.inputs.items() if not n.startswith(HIDDEN)}
        self._forms = {n: (t.numpy, None if t.symbols() else t.extents)
                       for n, t in self.inputs.items()}  # fmt: skip
        self._runs_here = self.target.is_host_compatible() or (
            artifact is not None and not artifact.objects)  # fmt: skip
        self._ready: Place | None = None
        if artifact is not None and self._runs_here:
            layout = Layout(artifact)
            self.artifact = layout.artifact
            self._layouts.append(layout)
            self._ready = layout, layout.bound({})
            if layout.is_plain:
                self._plain = self._ready

    def __repr__(self) -> str:
        return str(self._description())

    def _repr_html_(self) -> str:
        return self._description().html()

    def _description(self) -> Description:
        head = describe.head(self.name, self.target, self.threads or default_threads())
        code = describe.code(self.artifacts, is_open=self._make is not None)
        return Description("Executable", head, self.inputs, self.outputs, code)

    @property
    def artifacts(self) -> list[Artifact]:
        """What has been compiled so far: one, or one for each kind of extents met."""
        if self._make is None:
            return [self.artifact]
        others = [] if self._otherwise is None else self._otherwise.artifacts
        return [*(x.artifact for x in self._layouts), *others]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write this Executable to `path` (by custom, `.ago`) for `open` to read.

        The file is complete or not there at all.  Raises OSError where it cannot be written.
        """
        archive.write(self._whole("saved"), path)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the archive: unpickling runs what is in it, as `open` does.

        Raises UnsupportedError where there is none (open extents, graphs that depend on data).
        """
        return open, (archive.to_bytes(self._whole("pickled or copied")), self.threads)

    def _whole(self, treated: str) -> Artifact:
        """Return the artifact; raise UnsupportedError if more may be compiled as this runs."""
        if self._make is not None:
            raise UnsupportedError(
                f"an Executable with open extents compiles as it runs and cannot be {treated}",
                hint="bind them: compile(…, shapes={'NAME': (…)})"
                + ("" if treated == "saved" else ", or compile the model where it is to run"),
            )
        return self.artifact

    def place(self, values: Mapping[str, int]) -> Place:
        """Return where `execute` runs for these values of all symbols; compile if need be."""
        return self._ready or self._bound(values)

    def execute(self, env: dict[str, Any], place: Place) -> Layout:
        """Run on arrays of the right types by name, and add those of the outputs to them.

        Returns the layout whose code ran.
        """
        layout, bound = place
        call, program = calls.current(), layout.artifact.program
        if layout.is_plain and not bound.is_long:
            arrays = [env[n] for n in program.inputs]
            plain = short.run(place, arrays, self.threads, self._running, call)
            if plain is not None:
                env.update(zip(layout.results, plain, strict=True))
                return layout
        given = {name: dense(env[name]) for name in self.inputs}
        for name in self._hidden:
            given[name] = feeds.random_key()
        made = [np.empty(shape, dtype) for dtype, shape, _ in bound.outputs]
        results = dict(zip(program.outputs, made, strict=True))
        self._run_code(layout, bound, given, results, call)
        env.update(zip(layout.results, made, strict=True))
        return layout

    def layout(self, values: Mapping[str, int]) -> Layout | None:
        """Return the layout whose code serves these extents; None where none is compiled yet."""
        if self._ready is not None:
            return self._ready[0]
        return next((x for x in self._layouts if x.serves(values)), None)

    def _bound(self, values: Mapping[str, int]) -> Place:
        """Return the layout that serves these extents; compile one if need be."""
        assert self._make is not None, "all extents are known"
        for layout in self._layouts:
            if layout.serves(values):
                return layout, layout.bound(values)
        with self._compiling:
            for layout in self._layouts:
                if layout.serves(values):
                    return layout, layout.bound(values)
            layout = Layout(self._make(values))
            self._layouts = [layout, *self._layouts[: MOST_LAYOUTS - 1]]
            self._known.clear()  # it should not keep code alive that is in no list any more
        return layout, layout.bound(values)

    def _is_other(self, values: Mapping[str, int]) -> bool:
        """Whether the graph was not imported for these extents."""
        if not self._guards or any(layout.serves(values) for layout in self._layouts):
            return False
        return not holds(self._guards, values)

    def _run_otherwise(
        self,
        values: Mapping[str, int],
        unfit: str,
        given: Mapping[str, Array],
        out: Mapping[str, Array],
        call: Call | None,
    ) -> dict[str, Array]:
        """Run on extents that break a guard of the graph, or of which input `unfit` is not true.

        Raises FeedError if there is no other way to run the model.
        """
        if self._otherwise is None:
            raise feeds.unserved(self.inputs, given, values, unfit, self._guards)
        try:
            return self._otherwise._run(given, out, call)
        except (FeedError, ModelError) as error:
            found = feeds.unserved(self.inputs, given, values, unfit, self._guards, error.message)
            raise found.located(file=error.file, node=error.node) from error

    def __call__(
        self,
        *arrays: Any,
        out: Places | None = None,
        outputs: Sequence[str] | None = None,
        **by_name: Any,
    ) -> Array | Any:
        """Return the output for arrays in input order; a tuple if there are several outputs.

        Which of the two is known when it runs, so its type is an array or anything: a union with
        tuples would have to be taken apart at every use.
        Inputs may be given by name instead, behind those in order: ``exe(x, mask=m)``; one that is
        called `out` or `outputs` only in order.  These two are as for `run`.
        """
        made = None
        if not by_name and out is None and outputs is None:
            place = self._plain or self._known.place(arrays)
            made = None if place is None else short.run(place, arrays, self.threads, self._running)
        if made is None:
            given = feeds.given(self.inputs, arrays, by_name)
            made = list(self.run(given, out, outputs=outputs).values())
        return made[0] if len(made) == 1 else tuple(made)

    def run(
        self,
        feeds: Mapping[str, Any],
        out: Places | None = None,
        timeout: float | None = None,
        outputs: Sequence[str] | None = None,
    ) -> dict[str, Array]:
        """Return the outputs by name.

        `feeds` holds an array (or anything with DLPack or the array interface) for each input.
        `outputs` names those that are wanted, in that order; all are computed.  `out` holds arrays
        to write outputs into: the one array of the only output wanted, arrays by name, or a list
        with an array or None for each output wanted.

        Raises FeedError where names, shapes or element types do not fit, TimeLimitError once
        `timeout` seconds have passed, and CancelledError if `cancel` ends the call; then arrays in
        `out` hold anything.
        """
        call = None if timeout is None else Call(calls.deadline_of(timeout))
        self._check_host()
        usual = call is None and out is None and outputs is None
        if usual and type(feeds) is dict and len(feeds) == len(self.inputs):
            arrays = [feeds.get(n) for n in self.inputs]
            place = self._plain or self._known.place(arrays)
            made = None if place is None else short.run(place, arrays, self.threads, self._running)
            if place is not None and made is not None:
                return dict(zip(place[0].results, made, strict=True))
        return self._run_some(feeds, out, outputs, call)

    async def arun(
        self,
        feeds: Mapping[str, Any],
        out: Places | None = None,
        timeout: float | None = None,
        outputs: Sequence[str] | None = None,
    ) -> dict[str, Array]:
        """Do what `run` does on a thread of asyncio's, while the event loop goes on.

        Cancelling the task ends the call, and returns when its code has ended.  `timeout` counts
        the time that is spent waiting for a thread, too.
        """
        self._check_host()
        call = Call(calls.deadline_of(timeout))
        run = partial(self._run_some, feeds, out, outputs, call)
        awaited = import_module("alpenglow.runtime.awaited")
        results: dict[str, Array] = await awaited.run(call, run)
        return results

    def _check_host(self) -> None:
        """Raise UnsupportedError if this process cannot run the code."""
        if not self._runs_here:
            raise UnsupportedError(
                f"code for target '{self.target}' does not run on this machine",
                hint="compile with target='cpu' to run here, or save it, with fixed shapes, and "
                "open it there",
            )

    def _run_some(
        self,
        arrays: Mapping[str, Any],
        out: Places | None,
        outputs: Sequence[str] | None,
        call: Call | None,
    ) -> dict[str, Any]:
        """Return the outputs that are wanted, in order; `out` says where some go."""
        wanted = feeds.chosen(outputs, self.outputs)
        made = self._run(arrays, feeds.places(out, wanted, self.outputs), call)
        return made if outputs is None else {name: made[name] for name in wanted}

    def _run(
        self, arrays: Mapping[str, Any], out: Mapping[str, Any], call: Call | None
    ) -> dict[str, Any]:
        """Return all outputs by name, those that `out` names in the arrays there."""
        given = self._feeds(arrays)
        if self._ready is not None:
            layout, bound = self._ready
        else:
            assert self._reader is not None, "a part is run by what knows its extents"
            values, unfit = self._reader.values(given)
            if unfit or self._is_other(values):
                return self._run_otherwise(values, unfit, given, out, call)
            layout, bound = self._bound_for(given, values)
        for name in self._hidden:
            given[name] = feeds.random_key()
        results, direct = feeds.results(layout.artifact.program, bound.forms, out, given)
        told = [given[name] for name in self.inputs]
        self._run_code(layout, bound, given, direct, call)
        if self._ready is None:
            self._known.keep(told, (layout, bound))
        if out:
            for name, array in results.items():
                if array is not direct[name]:
                    array[...] = direct[name]
        called = layout.artifact.program.names
        return {called.get(name, name): array for name, array in results.items()}

    def _bound_for(self, given: Mapping[str, Array], values: Mapping[str, int]) -> Place:
        """Do what `_bound` does; what is wrong is wrong with the inputs that told these extents."""
        try:
            return self._bound(values)
        except (TypeRuleError, ModelError) as error:
            raise feeds.unfit(error, given) from error

    def warm(self, shapes: ahead.Shapes | Sequence[ahead.Shapes]) -> None:
        """Compile what calls with inputs of these shapes need, so that the first is not slow.

        `shapes` is a dict from names of inputs to shapes, or a list of such; inputs whose shapes
        follow from those of others may be left out.  Nothing is run.  Raises FeedError where
        shapes do not fit the inputs or the model, and UnsupportedError where what is compiled
        depends on data: there, call it with some.
        """
        self._check_host()
        for given in ahead.stand_ins(self.inputs, shapes):
            if self._reader is None:
                continue  # it was compiled for these alone
            values, unfit = self._reader.values(given)
            if self._otherwise is not None and (unfit or self._is_other(values)):
                raise UnsupportedError(
                    f"for {values} the model is imported anew, which is done in a call",
                    hint="call it once with such arrays",
                )
            if unfit or self._is_other(values):
                raise feeds.unserved(self.inputs, given, values, unfit, self._guards)
            self._bound_for(given, values)

    def timings(self, feeds: Mapping[str, Any], rounds: int = 20) -> timing.Timings:
        """Return how long each instruction takes on these arrays: medians of `rounds` runs.

        Each is timed by itself, in the order of a run, which costs a little more than the run does.
        Raises FeedError as `run` does, and UnsupportedError for models that run in parts.
        """
        return timing.timings(self, feeds, rounds)

    def cancel(self) -> None:
        """End all calls whose code is running now, from another thread: they raise CancelledError.

        Interpreted instructions and compiling are not interrupted, only what would follow them.
        """
        for running in list(self._running):
            running.stop(calls.CANCELLED)
        if self._plain is not None and self._ready is not None:
            self._ready[1].stop(calls.CANCELLED)
        if self._otherwise is not None:
            self._otherwise.cancel()

    def _run_code(
        self,
        layout: Layout,
        bound: Bound,
        given: Mapping[str, Array],
        results: Mapping[str, Array],
        call: Call | None,
    ) -> None:
        """Run the table on arrays, as a part of `call`; raise an error if that is stopped."""
        context = layout.take(bound)
        self._running.add(context.stop)
        try:
            with calls.part(context.stop, call):
                self._walk(layout, bound, context, given, results)
        finally:
            self._running.discard(context.stop)
            layout.give_back(bound, context)

    def _walk(
        self,
        layout: Layout,
        bound: Bound,
        c: Context,
        given: Mapping[str, Array],
        results: Mapping[str, Array],
    ) -> None:
        """Run the table on arrays, to its end or until the stop word of `c` is set."""
        begin = time.perf_counter()
        for name, array in (*given.items(), *results.items()):
            address = address_of(array)
            for slot, offset in bound.slots[name]:
                c.args[slot] = address + offset
            if c.memory is not None:
                c.memory.bytes[name] = _bytes_of(array)
        try:
            self._walk_spans(layout, bound, c)
        finally:
            if c.memory is not None:
                # The caller's arrays are not held on to.
                for name in bound.slots:
                    del c.memory.bytes[name]
        if not c.stop.is_set():
            bound.is_long = time.perf_counter() - begin > calls.LONG

    def _walk_spans(self, layout: Layout, bound: Bound, c: Context) -> None:
        """Run what is compiled and what is interpreted by turns."""
        threads = self._threads(bound)
        apart = bound.is_long or c.stop.deadline is not None
        team = Team.shared()
        for span in layout.spans:
            if c.stop.is_set():
                return
            if span.number >= 0:
                assert c.memory is not None
                step(c.memory, bound.interpreted[span.number])
                continue
            table = c.base + 24 * span.begin, span.end - span.begin
            if apart:
                calls.run_apart(partial(team.run, *table, threads, c.stop.address), c.stop)
            else:
                team.run(*table, threads, c.stop.address)

    def _threads(self, bound: Bound) -> int:
        """Return how many threads a call may use: no more than find something to do."""
        return 1 if bound.widest <= 1 else min(self.threads or default_threads(), bound.widest)

    def _feeds(self, arrays: Mapping[str, Any]) -> dict[str, Array]:
        given = feeds.named(arrays, self.inputs)
        return {name: self._feed(name, given[name], t) for name, t in self.inputs.items()}

    def _feed(self, name: str, value: Any, t: TensorType) -> Array:
        return feeds.fitting(name, value, t, *self._forms[name])


def _types(artifact: Artifact, names: Sequence[str]) -> dict[str, TensorType]:
    found = {}
    for name in names:
        t = artifact.program.buffers[name].type
        assert t is not None
        found[name] = t
    return found


def _bytes_of(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
