"""Files that are mapped into memory, and the check that a mapped file was not written into.

The pages of a mapped file are whatever the file holds when they are read, and reading behind its
end is a signal that ends the process.  So a file is mapped only where that was asked for, all
others are read into memory, and a computation with a map calls `check` before and after.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alpenglow.base.errors import ModelError

TICK_NS = 20_000_000
"""How long two writes may have one time in a file system: a tick of its clock, and some more."""

HINT = "replace a file that is open by another one (save, mv), do not write into it"


class Stamp(NamedTuple):
    """Device, inode, size and time of modification: the identity of a file and its contents."""

    device: int
    number: int
    nbytes: int
    time_ns: int

    @staticmethod
    def of(status: os.stat_result) -> Stamp:
        return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def stamp_of(descriptor: int) -> Stamp:
    """Return the stamp of an open file, from which that after any later write differs."""
    status = os.fstat(descriptor)
    # A write in the same tick as the last one would leave the same time.
    if 0 <= (age := time.time_ns() - status.st_mtime_ns) < TICK_NS:
        time.sleep((TICK_NS - age) / 1e9)
        status = os.fstat(descriptor)
    return Stamp.of(status)


class Mapped(mmap.mmap):
    """A file, mapped for reading, as it is now: `check` raises ModelError once it is another.

    A file that is replaced, by a rename, stays as it is for those who have mapped it.
    """

    _descriptor = -1

    def __new__(cls, descriptor: int, path: str) -> Mapped:
        """Map the file that is open as `descriptor`, which is not empty."""
        stamp = stamp_of(descriptor)
        new = super().__new__(cls, descriptor, stamp.nbytes, access=mmap.ACCESS_READ)
        new._descriptor = os.dup(descriptor)
        new._nbytes, new._time, new._path = stamp.nbytes, stamp.time_ns, path
        return new

    def __init__(self, descriptor: int, path: str) -> None:
        self._path: str
        self._nbytes: int
        self._time: int
        self.address = int(np.frombuffer(self, np.uint8).ctypes.data)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def check(self) -> None:
        """Raise ModelError if the file was written into since it was mapped."""
        status = os.fstat(self._descriptor)
        if status.st_mtime_ns != self._time or status.st_size != self._nbytes:
            raise self._changed(status.st_size)

    def read_into(self, offset: int, to: memoryview) -> None:
        """Read bytes from an offset on; raise ModelError if they are not there any more."""
        try:
            done = read_into(self._descriptor, offset, to)
        except OSError as error:
            raise ModelError(f"cannot read the file: {error.strerror}", file=self._path) from error
        if done < len(to):
            raise self._changed(offset + done)

    def reads_ahead(self) -> None:
        """Tell the system that `read_into` goes through the file from its start to its end."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def _changed(self, nbytes: int) -> ModelError:
        size = f"it has {nbytes:,} bytes, and had {self._nbytes:,}" if nbytes != self._nbytes else (
            "its time of modification is another"
        )  # fmt: skip
        return ModelError(
            f"the file was written into while its weights were mapped: {size}",
            file=self._path, hint=HINT,
        )  # fmt: skip


def read_into(descriptor: int, offset: int, to: memoryview) -> int:
    """Read from an offset of an open file; return how many bytes there were, if not all."""
    done = 0
    while done < len(to) and (count := _read(descriptor, offset + done, to[done:])):
        done += count
    return done


def _read(descriptor: int, offset: int, to: memoryview) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [to], offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    with open(descriptor, "rb", buffering=0, closefd=False) as stream:
        return stream.readinto(to) or 0


def map_of(array: NDArray[Any]) -> Mapped | None:
    """Return the file that an array is a view of, if it is one."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, Mapped) else None


def maps_of(arrays: Iterable[NDArray[Any] | None]) -> tuple[Mapped, ...]:
    """Return the files that arrays are views of, each once."""
    found = {id(m): m for a in arrays if a is not None and (m := map_of(a)) is not None}
    return tuple(found.values())
