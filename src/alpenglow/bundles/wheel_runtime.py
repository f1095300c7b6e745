"""Calling a model that is compiled into a shared library, with NumPy and nothing else.

Every wheel that Alpenglow writes has a copy of this file beside its library.  Calls may come from
several threads at once: each works in memory of its own, which is kept for the next.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ALIGNMENT = 64
"""The library takes memory that begins at a multiple of this many bytes."""


OUT_OF_RANGE = 3
"""What functions return if an index was out of range."""


class Tensor(NamedTuple):
    """An input or output: name, elements, shape, and where in a workspace it lies.

    `dtype` is NumPy's.  Elements that NumPy does not have are in arrays of their bits, and `kind`
    is what they are; otherwise both are the same.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def __str__(self) -> str:
        return f"{self.name}: {self.kind}[{','.join(map(str, self.shape))}]"


class SharedLibrary:
    """A shared library with the weights of a model, and code for some kind of processor."""

    def __init__(self, path: Path, constants: str, needed: Iterable[str]) -> None:
        """Load the library; raise ImportError if this processor lacks what it `needed`."""
        known = processor_flags()
        missing = sorted(set(needed) - known) if known else []
        if missing:
            raise ImportError(
                f"{path.name} was compiled for processors with {', '.join(missing)}, which this "
                "one lacks"
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
        self._mutable_nbytes, self._scratch_nbytes = mutable_nbytes, scratch_nbytes
        self._function = library.functions[entry]
        self._function.argtypes = [ctypes.c_void_p] * 3
        self._function.restype = ctypes.c_int
        self._free: deque[tuple[NDArray[np.uint8], NDArray[np.uint8]]] = deque()

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Return the output; a tuple if there are several.

        Raises TypeError or ValueError if the arrays are not those that `inputs` lists, and
        IndexError if an index in them, or computed from them, is out of range.
        """
        values = self.ordered(arrays, named)
        fitted = [self._fitting(t, a) for t, a in zip(self.inputs, values, strict=True)]
        mutable, scratch = self._workspace()
        for t, array in zip(self.inputs, fitted, strict=True):
            np.copyto(_place(mutable, t), array)
        for offset, nbytes in self._random.items():
            mutable[offset : offset + nbytes] = np.frombuffer(os.urandom(nbytes), np.uint8)
        status = self._function(self._constants, mutable.ctypes.data, scratch.ctypes.data)
        if status == OUT_OF_RANGE:
            index = int(mutable[self._out_of_range : self._out_of_range + 8].view(np.int64)[0])
            self._free.append((mutable, scratch))
            raise IndexError(f"{self._entry}: index {index} is out of range")
        assert status == 0, f"{self._entry} returned {status}"
        results = tuple(_place(mutable, t).copy() for t in self.outputs)
        self._free.append((mutable, scratch))
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
                f"{self._entry} takes {', '.join(names) or 'nothing'}, but was given {count}{more}"
            )
        return (*arrays, *(named[name] for name in behind))

    def _fitting(self, t: Tensor, value: Any) -> Array:
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
        if array.shape != t.shape:
            raise ValueError(
                f"{self._entry}: input '{t.name}' has shape {array.shape}, expected {t.shape}"
            )
        return array

    def _workspace(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        try:
            return self._free.pop()
        except IndexError:
            return _aligned(self._mutable_nbytes), _aligned(self._scratch_nbytes)


class Choice:
    """Several functions of one model for other shapes: the one that fits is called."""

    def __init__(self, *routines: Routine) -> None:
        self.routines = routines

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Return the output; a tuple if there are several."""
        first = self.routines[0]
        shapes = [np.shape(value) for value in first.ordered(arrays, named)]
        for routine in self.routines:
            if shapes == [t.shape for t in routine.inputs]:
                return routine(*arrays, **named)
        known = "\n  ".join(map(repr, self.routines))
        raise ValueError(f"no function takes arrays of shapes {shapes}; there are\n  {known}")

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.routines))


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


def _place(mutable: NDArray[np.uint8], t: Tensor) -> Array:
    nbytes = np.dtype(t.dtype).itemsize * int(np.prod(t.shape, dtype=np.int64))
    return mutable[t.offset : t.offset + nbytes].view(t.dtype).reshape(t.shape)


def _aligned(nbytes: int) -> NDArray[np.uint8]:
    raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    # NumPy gives arrays of nothing the address that it likes.
    return raw[skip : skip + max(nbytes, 1)]
