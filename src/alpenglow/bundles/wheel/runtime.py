"""Calling a model that is compiled into a shared library, with NumPy and nothing else.

Every wheel that Alpenglow writes has a copy of this file beside its library.  Calls may come from
several threads at once: each works in memory of its own, which is kept for the next.  A model that
has state is called in sessions, each of which has a state of its own, and one call at a time.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ALIGNMENT = 64
"""The library takes memory that begins at a multiple of this many bytes."""


OUT_OF_RANGE = 3
"""What functions return if an index was out of range."""

NO_STATE, NO_ROOM = 4, 5
"""What they return if there is no state, or no room in it for the rows of a call."""


class Tensor(NamedTuple):
    """An input or output: name, elements, shape, and where in a workspace it lies.

    `dtype` is NumPy's.  Elements that NumPy does not have are in arrays of their bits, and `kind`
    is what they are; otherwise both are the same.  Where the shape depends on how many rows of
    state there are, `now` says what it is, and `shape` is text.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int | str, ...]
    offset: int
    now: Callable[[int], tuple[int, ...]] | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.kind}[{','.join(map(str, self.shape))}]"

    def at(self, rows: int) -> tuple[int, ...]:
        """Return the shape where there are so many rows of state."""
        return self.now(rows) if self.now is not None else tuple(map(int, self.shape))


class SharedLibrary:
    """A shared library with the weights of a model, and code for some kind of processor."""

    def __init__(self, path: Path, constants: str, needed: Iterable[str]) -> None:
        """Load the library; raise ImportError if this processor lacks what it `needed`."""
        known = processor_flags()
        missing = sorted(set(needed) - known) if known else []
        if missing:
            raise ImportError(
                f"{path.name} is not supported by this processor, which lacks "
                f"{', '.join(missing)}"
            )
        self.functions = ctypes.CDLL(str(path))
        self.constants = ctypes.addressof(ctypes.c_char.in_dll(self.functions, constants))


class Routine:
    """A function of arrays.  Call it with arrays in input order, or by name."""

    def __init__(
        self,
        library: SharedLibrary,
        entry: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        *,
        mutable_nbytes: int,
        scratch_nbytes: int,
        random: Mapping[int, int],
        out_of_range: int,
    ) -> None:
        """Find the function `entry`; `random` says where it takes how many random bytes.

        At `out_of_range` in its memory it leaves an index that is.
        """
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._entry, self._random, self._out_of_range = entry, dict(random), out_of_range
        self._constants = library.constants
        self.mutable_nbytes, self.scratch_nbytes = mutable_nbytes, scratch_nbytes
        self._function = library.functions[entry]
        self._function.argtypes = [ctypes.c_void_p] * 3
        self._function.restype = ctypes.c_int
        self._free: deque[tuple[NDArray[np.uint8], NDArray[np.uint8]]] = deque()

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Return the output; a tuple if there are several.

        Raises TypeError or ValueError if the arrays are not those that `inputs` lists, and
        IndexError if an index in them, or computed from them, is out of range.
        """
        mutable, scratch = self._workspace()
        try:
            return self.run(mutable, scratch, self.ordered(arrays, named))
        finally:
            self._free.append((mutable, scratch))

    def run(
        self, mutable: NDArray[np.uint8], scratch: NDArray[np.uint8], values: Sequence[Any],
        rows: int = 0,
    ) -> Any:  # fmt: skip
        """Return the output for what is given for each input, with so many rows of state."""
        fitted = [self._fitting(t, a, rows) for t, a in zip(self.inputs, values, strict=True)]
        for t, array in zip(self.inputs, fitted, strict=True):
            np.copyto(_place(mutable, t, rows), array)
        for offset, nbytes in self._random.items():
            mutable[offset : offset + nbytes] = np.frombuffer(os.urandom(nbytes), np.uint8)
        status = self._function(self._constants, mutable.ctypes.data, scratch.ctypes.data)
        if status == OUT_OF_RANGE:
            index = int(mutable[self._out_of_range : self._out_of_range + 8].view(np.int64)[0])
            raise IndexError(f"{self._entry}: index is {index}, expected one within its axis")
        if status == NO_STATE:
            raise RuntimeError(f"{self._entry}: a call that failed lost the state; try: reset()")
        if status == NO_ROOM:
            raise RuntimeError(f"{self._entry}: the state is full, expected at most {rows} rows")
        assert status == 0, f"{self._entry} returned {status}"
        results = tuple(_place(mutable, t, rows).copy() for t in self.outputs)
        return results[0] if len(results) == 1 else results

    def __repr__(self) -> str:
        takes = ", ".join(map(str, self.inputs))
        return f"{self._entry}({takes}) -> {', '.join(map(str, self.outputs))}"

    def ordered(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what is given for each input; raise TypeError unless all have something."""
        names = [t.name for t in self.inputs]
        behind = names[len(arrays) :]
        if len(arrays) > len(names) or set(behind) != set(named):
            count = f"{len(arrays)} arrays" if len(arrays) != 1 else "1 array"
            more = f" and {', '.join(named)}" if named else ""
            raise TypeError(
                f"{self._entry}: given {count}{more}, expected {', '.join(names) or 'none'}"
            )
        return (*arrays, *(named[name] for name in behind))

    def _fitting(self, t: Tensor, value: Any, rows: int) -> Array:
        """Return what is given for an input as an array of its elements and shape."""
        array = np.asarray(value)
        if array.dtype.name == t.kind and t.kind != t.dtype:
            array = array.view(t.dtype)
        if array.dtype != t.dtype:
            hint = f" that hold the bits of {t.kind}" if t.kind != t.dtype else ""
            raise TypeError(
                f"{self._entry}: input '{t.name}' has elements {array.dtype}, expected "
                f"{t.dtype}{hint}"
            )
        if array.shape != t.at(rows):
            raise ValueError(
                f"{self._entry}: input '{t.name}' has shape {array.shape}, expected {t.at(rows)}"
            )
        return array

    def _workspace(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        try:
            return self._free.pop()
        except IndexError:
            return _aligned(self.mutable_nbytes), _aligned(self.scratch_nbytes)


class Choice:
    """Several functions of one model for other shapes: the one that fits is called."""

    def __init__(self, *routines: Routine) -> None:
        self.routines = routines

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Return the output; a tuple if there are several."""
        return self.fitting(arrays, named)(*arrays, **named)

    def fitting(self, arrays: Sequence[Any], named: Mapping[str, Any], rows: int = 0) -> Routine:
        """Return the function whose shapes these are; raise ValueError if there is none."""
        first = self.routines[0]
        if len(self.routines) == 1:
            return first  # it says what is wrong with a shape
        shapes = [np.shape(value) for value in first.ordered(arrays, named)]
        for routine in self.routines:
            if shapes == [t.at(rows) for t in routine.inputs]:
                return routine
        known = "\n  ".join(map(repr, self.routines))
        raise ValueError(f"shapes are {shapes}, expected the shapes of\n  {known}")

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.routines))


class Session:
    """Calls that share a state, one after another.  Sessions share code and weights, nothing else.

    What grows in it has room for `length` rows (0: nothing grows), of which there are `rows`.
    """

    def __init__(self, library: SharedLibrary, name: str, routines: Choice, length: int) -> None:
        self.length = length
        self._name, self._library, self._choice = name, library, routines
        self._turn = threading.Lock()
        every = routines.routines
        self._mutable = _aligned(max(r.mutable_nbytes for r in every))
        self._scratch = _aligned(max(r.scratch_nbytes for r in every))
        self.reset()

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Return the output for arrays in input order or by name; a tuple if there are several.

        Raises RuntimeError if there is no room for the rows of the call, and what a function of a
        model without state raises; the state is what it was then, or says that it was lost.
        """
        with self._alone():
            rows = self._rows()
            routine = self._choice.fitting(arrays, named, rows)
            values = routine.ordered(arrays, named)
            return routine.run(self._mutable, self._scratch, values, rows)

    def __repr__(self) -> str:
        rows = f"{self._rows()} of {self.length} rows; " if self.length else ""
        return f"Session({self._name}; {rows}{self._choice!r})"

    @property
    def rows(self) -> int:
        """How many rows there are; 0 if the state was lost."""
        with self._alone():
            return self._rows()

    def reset(self) -> None:
        """Make the state what it is before the first call."""
        with self._alone():
            status = self._asked("reset", ctypes.c_void_p(self._library.constants), self._memory())
            assert status == 0, f"{self._name}_reset returned {status}"

    def trim(self, rows: int) -> None:
        """Keep the first `rows` rows, as if no more had been computed.

        Raises ValueError if there are not as many, or nothing grows.
        """
        with self._alone():
            there = self._rows()
            if isinstance(rows, bool) or not isinstance(rows, int) or not 0 <= rows <= there:
                raise ValueError(f"trim to {rows!r} rows, expected 0 to {there} of them")
            if rows != there:
                self._asked("trim", self._memory(), ctypes.c_int64(rows))

    def _rows(self) -> int:
        return max(self._asked("length", self._memory()), 0) if self.length else 0

    def _memory(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._mutable.ctypes.data)

    def _asked(self, what: str, *arguments: Any) -> int:
        """Call one of the functions that handle the state."""
        function = self._library.functions[f"{self._name}_{what}"]
        function.restype = ctypes.c_int64 if what == "length" else ctypes.c_int
        return int(function(*arguments))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._turn.locked():
            raise RuntimeError(f"this session of {self._name} is already in another call")
        with self._turn:  # an interrupt behind an `acquire` would leave it locked
            yield


def processor_flags() -> set[str]:
    """Return what Linux says that this processor has; nothing where it does not say."""
    try:
        return flags_in(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return set()


def flags_in(text: str) -> set[str]:
    """Return the flags in a description of processors by Linux: those of the first."""
    for line in text.splitlines():
        title, _, flags = line.partition(":")
        if title.strip() in ("flags", "Features"):
            return set(flags.split())
        if title.strip() == "isa":
            # One letter for each of the first extensions: rv64imafdc_zba_zbb.
            first, *others = flags.strip().split("_")
            return {*first[len("rv64") :], *others}
    return set()


def _place(mutable: NDArray[np.uint8], t: Tensor, rows: int) -> Array:
    shape = t.at(rows)
    nbytes = np.dtype(t.dtype).itemsize * int(np.prod(shape, dtype=np.int64))
    return mutable[t.offset : t.offset + nbytes].view(t.dtype).reshape(shape)


def _aligned(nbytes: int) -> NDArray[np.uint8]:
    raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    # NumPy gives arrays of nothing the address that it likes.
    return raw[skip : skip + max(nbytes, 1)]
