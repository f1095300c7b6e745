"""Executables: compiled models, ready to be called.

What a caller sees of one stands here; how it runs is said by what it is: an artifact in this
process (`runtime.executables.installed`), code for open extents that is made as these are met
(`runtime.executables.open_extents`), parts that depend on data (`runtime.staged.staged`), or an
artifact on a device with memory of its own (`runtime.device.remote`).
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

from alpenglow.base.cpus import default_threads
from alpenglow.base.errors import ModelError, OptionError, UnsupportedError
from alpenglow.base.words import shown
from alpenglow.ir.graph import Value
from alpenglow.ir.metadata import Metadata
from alpenglow.ir.structure import Structure, tensors
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array, TensorType
from alpenglow.machines.api import Artifact, Device
from alpenglow.machines.registry import device_for
from alpenglow.program import print_program
from alpenglow.runtime.archive import archive
from alpenglow.runtime.call import ahead, calls, feeds, short
from alpenglow.runtime.call.calls import Call, Queue, StopWord
from alpenglow.runtime.call.feeds import Places
from alpenglow.runtime.executables import describe
from alpenglow.runtime.executables.describe import Description
from alpenglow.runtime.executables.timing import Timings
from alpenglow.runtime.memory.layout import Place
from alpenglow.runtime.session import lasting
from alpenglow.runtime.session.held import Held
from alpenglow.runtime.session.session import Session

Restore = Callable[[Any, int | None], "Executable"]


PUBLIC = frozenset({
    "artifact", "artifacts", "arun", "cancel", "fingerprint", "inputs", "is_open", "metadata",
    "name", "outputs", "run", "save", "session", "submit", "target", "threads", "timed",
    "timings", "warm",
})  # fmt: skip
"""The names of an Executable that `dir` lists."""


class Executable(ABC):
    """Run a compiled model: call it with arrays, or `run` it with a dict of arrays.

    Several threads may call an Executable at the same time.  An Executable that was compiled for
    another machine can be saved, but not run.  Each call starts with the initial values of
    variables and discards their new values; a `session` keeps them.

    Attributes:
        name: the name of the model.
        inputs: the types of the inputs by name.
        outputs: the types of the outputs by name.
        metadata: what the model file states about itself.
        target: the Target that the code is for.
        threads: the number of threads of a call; None: one for each available CPU.

    Example:
        >>> exe = ag.compile("model.onnx", shapes={"x": (2, 8)})
        >>> exe.inputs, exe.outputs
        ({'x': f32[2,8]}, {'y': f32[2,4]})
    """

    is_open = False
    """True if more is compiled as it is called."""

    restore: Restore | None = None
    """A function of a module that makes an Executable of what its archive holds; it is pickled by
    name."""

    _table: Place | None = None
    """Where all calls run, if there is one table for them, with nothing interpreted or hidden."""

    _initial: Mapping[str, Value] = MappingProxyType({})

    _growing: Mapping[str, int] = MappingProxyType({})
    manager: Queue | None = None  # of requests, once there has been one
    device: Device | None = None  # with memory of its own, which runs the code

    def __init__(
        self,
        name: str,
        metadata: Metadata,
        target: Target,
        threads: int | None,
        inputs: Mapping[str, TensorType],
        outputs: Mapping[str, TensorType],
    ) -> None:
        self.name, self.metadata, self.target = name, metadata, target
        self.threads = threads
        self.inputs = dict(inputs)
        self.outputs = dict(outputs)
        self._structure = structured(metadata, inputs, outputs)
        self._runs_here = target.is_host_compatible()
        self._known = short.ShortPlaces()
        self._running: set[StopWord | Call] = set()

    def __repr__(self) -> str:
        return str(self._description())

    def __dir__(self) -> list[str]:
        """Return the names that callers need; the others are for modules of `alpenglow.runtime`."""
        return sorted({*PUBLIC, *(name for name in super().__dir__() if name.startswith("_"))})

    def _repr_html_(self) -> str:
        return self._description().html()

    def _description(self) -> Description:
        head = describe.head(self.name, self.target, self.threads or default_threads())
        code = describe.code(self.artifacts, is_open=self.is_open)
        return Description("Executable", head, self.inputs, self.outputs, code)

    @property
    @abstractmethod
    def artifacts(self) -> list[Artifact]:
        """The code compiled so far: one artifact, or one for each shape specialisation."""

    @property
    def artifact(self) -> Artifact:
        """The only artifact; raises UnsupportedError if calls may compile more."""
        if self.is_open:
            raise UnsupportedError(
                f"{shown(self.name)} is compiled as it is called, so it has several artifacts",
                hint="artifacts lists those compiled so far",
            )
        return self.artifacts[0]

    @abstractmethod
    def archived(self, treated: str = "saved") -> archive.Archived:
        """Return what its archive holds; raise UnsupportedError if it cannot be `treated` so."""

    @abstractmethod
    def _run(
        self,
        arrays: Mapping[str, Any],
        out: Mapping[str, Any],
        call: Call | None,
        held: Held | None = None,
    ) -> dict[str, Any]:
        """Return all outputs by name, those that `out` names in the arrays there.

        `held` is what variables hold; without it they have their initial values.
        """

    def short_place(self, arrays: Sequence[Any], lends: bool = False) -> Place | None:
        """Return where a call with inputs of these shapes runs quickly, if one has run there.

        `arrays` is anything with shapes, in input order.  Whoever `lends` gives the memory of
        variables, too.
        """
        place = self._table or self._known.place(arrays)
        if place is None or place[1].is_long or (place[0].remembers and not lends):
            return None
        return place

    @property
    def running(self) -> set[StopWord | Call]:
        """The calls whose code runs now."""
        return self._running

    def session(
        self, length: int | None = None, inputs: Mapping[str, Any] | None = None
    ) -> Session:
        """Return a new session, whose variables have their initial values.

        Args:
            length: the number of rows that fit into variables that grow, such as a KV cache; None
                if no variable grows.
            inputs: arrays of inputs that stay the same, by name.  They are checked and copied once,
                and calls pass the other inputs only.

        Returns:
            The session.

        Raises:
            OptionError: if `length` is missing, or no variable grows.
            FeedError: if an array does not fit its input.
        """
        if not self._growing and length is not None:
            raise OptionError(
                f"length is {length!r}, but no variable of {shown(self.name)} grows",
                hint="compile(…, state=True) makes caches of keys and values variables that do",
            )
        whole = isinstance(length, int) and not isinstance(length, bool)
        if self._growing and (not whole or length is None or length < 1):
            raise OptionError(
                f"length is {length!r}, expected 1 or more, the most rows of its state",
                hint="session(length=2048): one a token of a decoder",
            )
        return Session(self, length, lasting.fitted(self.inputs, {} if inputs is None else inputs))

    @property
    def initial(self) -> Mapping[str, Value]:
        """What variables hold before the first call, by name."""
        return self._initial

    @property
    def growing(self) -> Mapping[str, int]:
        """The axes along which variables grow, by name."""
        return self._growing

    @property
    def structure(self) -> Structure | None:
        """How arguments and results are made of tensors; None if they are arrays in order."""
        return self._structure

    def fingerprint(self) -> str:
        """Return a hash of what the model computes, weights included.

        Returns:
            64 hexadecimal digits (SHA-256).
        """
        texts = [print_program(a.program) for a in self.artifacts]
        return hashlib.sha256("\n".join(texts).encode()).hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an archive, by convention `NAME.ago`, that `open` reads.

        The archive holds the code compiled so far.  For a model whose graph depends on its data,
        only that code can be run later.  The file is complete or not there at all.

        Args:
            path: the file to write or replace.

        Raises:
            OSError: if the file cannot be written.
            UnsupportedError: if the compiled code cannot be saved.
        """
        archive.write(self.archived(), path)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the archive: unpickling runs what is in it, as `open` does."""
        content = archive.to_bytes(self.archived("pickled or copied"))
        assert self.restore is not None, f"what made {self.name} says what opens it again"
        return restored, (self.restore, content, self.threads)

    # A union of an array and tuples, as the result, would have to be taken apart at every use.
    def __call__(
        self,
        *arrays: Any,
        out: Places | None = None,
        outputs: Sequence[str] | None = None,
        **by_name: Any,
    ) -> Array | Any:
        """Run the model and return its output, or a tuple if there are several outputs.

        A model traced with dicts, lists or objects as arguments or results takes and returns these
        (`metadata.structure`).

        Args:
            arrays: arrays in input order.
            out: arrays to write outputs into; see `run`.
            outputs: the names of the outputs to return; see `run`.
            by_name: the other inputs by name: ``exe(x, mask=m)``.  Inputs named `out` or `outputs`
                can only be passed in order.

        Returns:
            An array; a tuple of arrays if there are several outputs.

        Raises:
            FeedError: if an array does not fit its input.
        """
        if self._structure is not None:
            fed = self._structure.feeds(arrays, by_name)
            results = self.run(fed, out, outputs=outputs)
            return self._structure.results(results) if outputs is None else tuple(results.values())
        reply = None
        if not by_name and out is None and outputs is None:
            place = self._table or self._known.place(arrays)
            reply = None if place is None else short.run(place, arrays, self.threads, self._running)
        if reply is None:
            inputs = feeds.given(self.inputs, arrays, by_name)
            reply = list(self.run(inputs, out, outputs=outputs).values())
        return reply[0] if len(reply) == 1 else tuple(reply)

    def run(
        self,
        feeds: Mapping[str, Any],
        out: Places | None = None,
        timeout: float | None = None,
        outputs: Sequence[str] | None = None,
        device: bool = False,
    ) -> dict[str, Any]:
        """Run the model and return its outputs by name.

        Args:
            feeds: an array for each input by name, or an object with DLPack or the array interface.
            out: arrays to write outputs into: the array of the only output, arrays by name, or a
                list with an array or None for each output.
            timeout: the limit of the call in seconds; None: no limit.
            outputs: the names of the outputs to return, in this order; None: all.  All are
                computed.
            device: True returns arrays in the memory of the device as soon as all work is queued;
                the next call may start meanwhile, and takes such arrays without a copy to the host.

        Returns:
            The outputs by name: arrays, or DeviceArrays with `device`.

        Raises:
            FeedError: if a name, a shape or an element type does not fit.
            TimeLimitError: after `timeout` seconds; arrays in `out` then have undefined contents.
            CancelledError: if `cancel` ends the call, with the same effect on `out`.
        """
        call = None if timeout is None else Call(calls.deadline_of(timeout))
        if device:
            self._check_host()
            if out is not None:
                raise OptionError("out is given with device=True, expected only one of them")
            return dict(self.begin(feeds, outputs, call))
        usual = call is None and out is None and outputs is None
        reply = self.run_short(feeds) if usual and type(feeds) is dict else None
        return self.run_some(feeds, out, outputs, call) if reply is None else reply

    def run_short(
        self, feeds: Mapping[str, Any], held: Held | None = None
    ) -> dict[str, Array] | None:
        """Return the outputs by name if a call with such inputs is short and known, else None.

        `held` is what variables hold, none of which grows.
        """
        if len(feeds) != len(self.inputs):
            return None
        arrays = [feeds.get(n) for n in self.inputs]
        place = self._table or self._known.place(arrays)
        if place is None:
            return None
        made = short.run(place, arrays, self.threads, self._running, None, held)
        return None if made is None else dict(zip(place[0].results, made, strict=True))

    def begin(
        self, arrays: Mapping[str, Any], outputs: Sequence[str] | None, call: Call | None
    ) -> Mapping[str, Any]:
        """Return the outputs that are wanted as arrays on the device, as soon as all is begun."""
        raise OptionError(
            f"device=True is not supported for target '{self.target}'",
            hint="leave out device=True: outputs are in memory of the host",
        )

    def submit(
        self,
        feeds: Mapping[str, Any],
        priority: int = 0,
        deadline: float | None = None,
        outputs: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> Future[dict[str, Any]]:
        """Queue a call and return a future of what `run` returns; calls run one after another.

        Calls start in order of priority, then of submission.  `cancel` ends the call, too.  The
        caller must not change the arrays before the future is done.

        Args:
            feeds: an array for each input by name.
            priority: calls of higher priority start first.
            deadline: a time of `time.monotonic()`; None: no deadline.  A call that is not done by
                then fails with TimeLimitError, and never starts if it still waits.
            outputs: the names of the outputs to return; None: all.
            timeout: the deadline in seconds from now.

        Returns:
            A future of the outputs by name; it also holds the errors of `run`.

        Raises:
            FeedError: if the names do not fit.
            BusyError: if too many calls wait.
            TimeLimitError: if the deadline has passed.
        """
        self._check_host()
        requests = import_module("alpenglow.runtime.call.requests")
        end = calls.end_of(deadline, timeout)
        future: Future[dict[str, Any]] = requests.submit(self, feeds, outputs, priority, end)
        return future

    async def arun(
        self,
        feeds: Mapping[str, Any],
        out: Places | None = None,
        timeout: float | None = None,
        outputs: Sequence[str] | None = None,
    ) -> dict[str, Array]:
        """Run the model on a thread of asyncio while the event loop continues.

        Cancelling the task ends the call; the task returns once the code has stopped.

        Args:
            feeds: an array for each input by name.
            out: arrays to write outputs into; see `run`.
            timeout: the limit in seconds, including the wait for a thread; None: no limit.
            outputs: the names of the outputs to return; None: all.

        Returns:
            The outputs by name.

        Raises:
            FeedError: if a name, a shape or an element type does not fit.
            TimeLimitError: after `timeout` seconds.
        """
        self._check_host()
        call = Call(calls.deadline_of(timeout))
        run = partial(self.run_some, feeds, out, outputs, call)
        awaited = import_module("alpenglow.runtime.call.awaited")
        results: dict[str, Array] = await awaited.run(call, run)
        return results

    def _check_host(self) -> None:
        """Raise UnsupportedError if this process cannot run the code, DeviceError if its device is
        not here."""
        if not self._runs_here:
            device_for(self.target)
            raise UnsupportedError(
                f"code for target '{self.target}' does not run on this machine",
                hint="compile with target='cpu' to run here, or save it and open it there",
            )

    def run_some(
        self,
        arrays: Mapping[str, Any],
        out: Places | None,
        outputs: Sequence[str] | None,
        call: Call | None,
        held: Held | None = None,
    ) -> dict[str, Any]:
        """Return the outputs that are wanted, in order; `out` says where some go."""
        self._check_host()
        wanted = feeds.chosen(outputs, self.outputs)
        results = self._run(arrays, feeds.places(out, wanted, self.outputs), call, held)
        return results if outputs is None else {name: results[name] for name in wanted}

    def warm(self, shapes: ahead.Shapes | Sequence[ahead.Shapes]) -> None:
        """Compile the code for inputs of these shapes, so that the first call is not slow.

        Nothing is run.

        Args:
            shapes: a dict from input names to shapes, or a list of dicts.  An input may be left out
                if its shape follows from the shapes of others.

        Raises:
            FeedError: if the shapes do not fit the inputs or the model.
            UnsupportedError: if the code depends on data; call the Executable with some instead.
        """
        self._check_host()
        for stand_in in ahead.stand_ins(self.inputs, shapes):
            self._warm(stand_in)

    def _warm(self, stand_in: Mapping[str, Array]) -> None:
        """Compile what a call with arrays of these shapes needs, where that is not there yet."""
        assert not self.is_open, "what is compiled as it is called says how"

    def timings(self, feeds: Mapping[str, Any], rounds: int = 20) -> Timings:
        """Measure the time of each instruction on these arrays.

        Each instruction is timed by itself, in the order of a run, so the sum is a little more than
        a run takes.  A device with memory of its own measures itself.

        Args:
            feeds: an array for each input by name.
            rounds: the number of runs, of which the medians are taken.

        Returns:
            The seconds of each instruction and of a run.

        Raises:
            FeedError: if a name, a shape or an element type does not fit.
            UnsupportedError: if the model runs in parts.
        """
        raise UnsupportedError(
            f"timing the instructions of target '{self.target}' is not supported"
        )

    def cancel(self) -> None:
        """End all running calls from another thread; they raise CancelledError.

        An instruction that runs in Python and a compilation finish first.
        """
        for running in list(self._running):
            running.stop(calls.CANCELLED)


def structured(
    metadata: Metadata, inputs: Iterable[str], outputs: Iterable[str]
) -> Structure | None:  # fmt: skip
    """Return how calls are structured; None where they take and return arrays in order.

    An output that is no part of the result, as an argument that is changed, is there by name alone.
    Raises ModelError if it names what is no input or output.
    """
    structure = metadata.structure
    if structure is None:
        return None
    fed = set[str]().union(*(tensors(tree) for _, tree in structure.parameters))
    returned = tensors(structure.result)
    if fed != set(inputs) or not returned <= set(outputs):
        raise ModelError(
            f"the structure of calls names {', '.join(sorted(fed ^ set(inputs) or returned))}, "
            "expected the inputs and outputs of the model"
        )
    return None if structure.is_plain and returned == set(outputs) else structure


def restored(restore: Restore, content: bytes, threads: int | None) -> Executable:
    """Return the Executable whose archive was pickled."""
    return restore(archive.read(content), threads)
