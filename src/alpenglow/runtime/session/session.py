"""Sessions: calls of an Executable that remember what its variables hold.

A session owns the memory of variables (`runtime.session.held`).  Where a call that failed may have
left neither an old value nor a new one there, it says so until it is reset: nobody computes with
half a value.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from alpenglow.base.errors import FeedError, SessionError
from alpenglow.ir.graph import Value
from alpenglow.ir.structure import Structure, without
from alpenglow.ir.types import FLOATS, Array, TensorType
from alpenglow.runtime.call import calls, feeds
from alpenglow.runtime.call.calls import Call
from alpenglow.runtime.call.feeds import Places
from alpenglow.runtime.session import kept_state
from alpenglow.runtime.session.held import Held, check_rows

NO_ARRAYS: Mapping[str, Array] = MappingProxyType({})


class Remembers(Protocol):
    """What a session asks of an Executable."""

    name: str
    inputs: dict[str, TensorType]
    outputs: dict[str, TensorType]

    @property
    def initial(self) -> Mapping[str, Value]:
        """What variables hold before the first call, by name."""
        ...

    @property
    def growing(self) -> Mapping[str, int]:
        """The axes along which variables grow."""
        ...

    @property
    def structure(self) -> Structure | None:
        """How arguments and results are made of tensors."""
        ...

    def run_some(
        self,
        arrays: Mapping[str, Any],
        out: Places | None,
        outputs: Sequence[str] | None,
        call: Call | None,
        held: Held | None = None,
    ) -> dict[str, Array]:
        """Return the outputs that are wanted; `held` is what variables hold."""
        ...

    def run_short(
        self, feeds: Mapping[str, Any], held: Held | None = None
    ) -> dict[str, Array] | None:
        """Return the outputs if a call with such inputs is short and known, else None."""
        ...

    def fingerprint(self) -> str:
        """Return what tells this model from others."""
        ...


class Session:
    """Keep the variables of an Executable from call to call.

    Each session has its own variables, and sessions may be called at the same time.  One thread at
    a time calls a session: a second call meanwhile raises SessionError.

    A failed call leaves all variables as they were, except if a timeout, `cancel`, an interrupt or
    an index out of range stopped the code while it computed a variable in place.  All further calls
    then raise SessionError until `reset`.

    Attributes:
        name: the name of the model.
        inputs: the types of the inputs that calls pass: all without the ones given to
            `Executable.session`.
        length: the number of rows that fit into variables that grow; a call that needs more raises
            FeedError and changes nothing.
        variables: copies of the current values by name; assignment sets a variable.

    Example:
        >>> g = ag.Graph("counter")
        >>> step = g.input("step", "i64[1]")
        >>> before = g.variable("total", np.zeros(1, np.int64))
        >>> after = ag.functions.add(ag.Expression(g, before), ag.Expression(g, step)).value
        >>> g.assign("total", after)
        >>> _ = g.output("sum", after)
        >>> session = ag.compile(g).session()
        >>> session(np.array([2])), session(np.array([3]))
        (array([2]), array([5]))
        >>> session.variables["total"]
        array([5])
    """

    def __init__(
        self,
        source: Remembers,
        length: int | None,
        lasting: Mapping[str, Array] = NO_ARRAYS,
        held: Held | None = None,
    ) -> None:
        """Remember what calls of `source` assign; arrays that last fit its inputs."""
        self.name, self.length = source.name, length
        self.inputs = {name: t for name, t in source.inputs.items() if name not in lasting}
        self._source, self._lasting = source, lasting
        self._structure = source.structure and without(source.structure, lasting.keys())
        self._initial, self._growing = source.initial, source.growing
        self._held = held or Held(self._initial, self._growing, length)
        self._lock = threading.Lock()
        _sessions.add(self)
        self._calls = 0
        self._warned = False
        self.variables: MutableMapping[str, Any] = Variables(self)

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {v.type}" for name, v in self._initial.items())
        rows = f"{self.rows} of {self.length} rows; " if self._growing else ""
        given = f"; given {', '.join(self._lasting)}" if self._lasting else ""
        return f"Session({self.name}; {rows}{types or 'no variables'}{given})"

    @property
    def rows(self) -> int:
        """The number of rows in the variables that grow: the largest of all variables."""
        return max(self._held.rows.values(), default=0)

    def __call__(
        self,
        *arrays: Any,
        out: Places | None = None,
        outputs: Sequence[str] | None = None,
        **by_name: Any,
    ) -> Array | Any:
        """Run the model and return its output, or a tuple if there are several outputs.

        Args:
            arrays: arrays in input order.
            out: arrays to write outputs into; see `Executable.run`.
            outputs: the names of the outputs to return; None: all.
            by_name: the other inputs by name.

        Returns:
            An array; a tuple of arrays if there are several outputs.

        Raises:
            SessionError: while another call runs, or if variables were lost.
        """
        self._refuse_again(by_name)
        if self._structure is not None:
            fed = self._structure.feeds(arrays, by_name)
            named = self.run(fed, out, outputs=outputs)
            return self._structure.results(named) if outputs is None else tuple(named.values())
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
        """Run the model, keep the new values of variables, and return the outputs by name.

        Args:
            feeds: an array for each input of `inputs` by name.
            out: arrays to write outputs into; see `Executable.run`.
            timeout: the limit of the call in seconds; None: no limit.
            outputs: the names of the outputs to return; None: all.

        Returns:
            The outputs by name.

        Raises:
            SessionError: while another call runs, or if variables were lost.
            FeedError: if an array does not fit, or variables would grow beyond `length` rows.
        """
        call = None if timeout is None else Call(calls.deadline_of(timeout))
        fed = self._fed(feeds) if self._lasting else feeds
        is_usual = call is None and out is None and outputs is None and not self._growing
        with self._turn():
            held = self._usable()
            results = self._source.run_short(fed, held) if is_usual and type(fed) is dict else None
            if results is None:
                results = self._source.run_some(fed, out, outputs, call, held)
            self._calls += 1
            if self._growing and not self._warned:
                self._warn_of_nan(results)
            return results

    def _fed(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a call gives, with what lasts; raise FeedError where names do not fit."""
        if isinstance(arrays, Mapping):
            self._refuse_again(arrays)
        return {**self._lasting, **feeds.named(arrays, self.inputs)}

    def _refuse_again(self, arrays: Mapping[str, Any]) -> None:
        """Raise FeedError if a call gives what lasts."""
        if again := [name for name in self._lasting if name in arrays]:
            raise FeedError(
                f"input '{again[0]}' was given to this session, and lasts as long as that",
                hint="leave it out, or begin another: executable.session(inputs=…)",
            )

    def _warn_of_nan(self, results: Mapping[str, Array]) -> None:
        """Warn, once, of the first NaN: a row that is computed from it is there from now on."""
        for name, array in results.items():
            if self._source.outputs[name].dtype not in FLOATS or not np.isnan(array).any():
                continue
            self._warned = True
            at = [int(i) for i in np.argwhere(np.isnan(array))[0]]
            warnings.warn(
                f"output '{name}' of {self.name} is NaN at {at} in call {self._calls} of this "
                "session, for the first time; what later calls compute from it is NaN, too",
                RuntimeWarning, stacklevel=3,
            )  # fmt: skip
            return

    def reset(self) -> None:
        """Set all variables to their initial values; variables that grow become empty."""
        with self._turn():
            self._held = Held(self._initial, self._growing, self.length)

    def trim(self, rows: int) -> None:
        """Keep the first rows of the variables that grow, and drop the others.

        Other variables stay as they are.

        Args:
            rows: the number of rows to keep, for example of accepted tokens.

        Raises:
            SessionError: if there are fewer rows, or no variable grows.
        """
        if not self._growing:
            raise SessionError(f"{self.name} has no rows to trim, expected a variable that grows")
        with self.owned() as held:
            least = min(held.rows.values())
            if isinstance(rows, bool) or not isinstance(rows, int) or not 0 <= rows <= least:
                raise SessionError(f"trim to {rows!r} rows, expected 0 to {least}, which there are")
            held.rows = dict.fromkeys(held.rows, rows)

    def fork(self) -> Session:
        """Return a new session with copies of the variables.

        Returns:
            The session; it shares the arrays given to `Executable.session`.
        """
        with self.owned() as held:
            return Session(self._source, self.length, self._lasting, held.copy())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all variables to a file, by convention `NAME.npz`, that `load` reads.

        The file does not hold the arrays given to `Executable.session`.  It is complete or not
        there at all.

        Args:
            path: the file to write or replace.

        Raises:
            OSError: if the file cannot be written.
        """
        with self.owned() as held:
            kept_state.write(Path(path), held, self._source.fingerprint())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Set all variables to the values that `save` wrote.

        The sessions may differ in `length`.

        Args:
            path: the file.

        Raises:
            ModelError: if `save` did not write the file.
            SessionError: if the file belongs to another model, or has more rows than fit.
        """
        with self._turn():
            held = Held(self._initial, self._growing, self.length)
            types = {name: v.type for name, v in self._initial.items()}
            kept_state.read(Path(path), held, self._source.fingerprint(), types)
            self._held = held

    def _turn(self) -> threading.Lock:
        """Return the lock of a block, of which one runs at a time; raise SessionError if one runs.

        The lock itself is entered, so that no interrupt comes between.  Of two threads that ask
        in the same instant, one may wait for the other instead.
        """
        if self._lock.locked():
            raise SessionError(
                "another call of this session is running, expected one call at a time",
                hint="give each thread a session of its own: executable.session()",
            )
        return self._lock

    @contextmanager
    def owned(self) -> Iterator[Held]:
        """Yield what variables hold in a block during which nobody else has it."""
        with self._turn():
            yield self._usable()

    def _usable(self) -> Held:
        """Return what variables hold; raise SessionError if that means nothing."""
        if self._held.lost:
            raise SessionError(
                f"the variables of this session hold nothing any more: {self._held.lost}",
                hint="session.reset() gives them their initial values",
            )
        return self._held


class Variables(MutableMapping[str, Any]):
    """The variables of a session: copies to read, and checked where they are written.

    One that grows is set to rows in place of its own; a call wants as many of all that grow
    together.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._types = {name: v.type for name, v in session._initial.items()}

    def __getitem__(self, name: str) -> Array:
        self._check(name)
        with self._session.owned() as held:
            return held.kept(name).copy()

    def __setitem__(self, name: str, value: Any) -> None:
        array = self._fitted(name, value)
        with self._session.owned() as held, held.set_together():
            held.put(name, array)

    def update(self, other: Any = (), /, **by_name: Any) -> None:
        """Set several variables, or none if one does not fit.

        Raises SessionError where those that grow together would have other numbers of rows.
        """
        arrays = {n: self._fitted(n, x) for n, x in dict(other, **by_name).items()}
        growing = self._session._growing
        rows = {n: x.shape[growing[n]] for n, x in arrays.items() if n in growing}
        with self._session.owned() as held:
            extents = {n: self._types[n].shape[axis] for n, axis in growing.items()}
            check_rows({**held.rows, **rows}, extents)
            with held.set_together():
                for name, array in arrays.items():
                    held.put(name, array)

    def _fitted(self, name: str, value: Any) -> Array:
        """Return what a variable is set to as a dense array; raise FeedError if it does not fit."""
        self._check(name)
        t, axis = self._types[name], self._session._growing.get(name)
        try:
            array = feeds.fitting(name, value, t, t.numpy, t.extents if axis is None else None)
        except FeedError as error:
            raise FeedError(f"variable '{name}' cannot be set: {error.message}") from None
        if not t.admits(array.shape):
            raise FeedError(f"variable '{name}' is set to shape {array.shape}, expected {t}")
        length = self._session.length
        if axis is not None and length is not None and array.shape[axis] > length:
            raise FeedError(
                f"variable '{name}' cannot be set to {array.shape[axis]} rows: the session has "
                f"room for {length}",
                hint="session(length=…) with more",
            )
        return array

    def __delitem__(self, name: str) -> None:
        raise SessionError(f"variable '{name}' cannot be deleted", hint="session.reset()")

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def _check(self, name: str) -> None:
        if name not in self._types:
            known = ", ".join(self._types) or "none"
            raise FeedError(f"variable is '{name}', expected one of {known}")


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _lose_others() -> None:
    """Give the child of a fork sessions that it can use: those in a call hold nothing."""
    for session in list(_sessions):
        if session._lock.locked():
            session._held.lost = "the process was forked while a call ran"
            session._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lose_others)
