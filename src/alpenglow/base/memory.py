"""Memory that begins where vectors like it, and when Python looks for what nobody needs."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.base.locks import new_rlock

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector of any target."""

MOST_NBYTES = 1 << 40
"""A tensor of more bytes than this is a mistake in a file: no machine at hand can hold it."""

LARGE_NBYTES = 1 << 29
"""So much memory is asked for in small pages: making huge ones of what is scattered takes seconds a
gigabyte, and who reads so much at a time waits for memory however it is paged."""

HUGE_PAGE = 1 << 21
"""A page of x86-64 and AArch64 that one entry maps.  What is as large begins at one: who goes
through megabytes spends a tenth of the time on looking up small pages."""

MADV_HUGEPAGE, MADV_NOHUGEPAGE = 14, 15


COPIED_NBYTES = 64 << 20
"""Files of compiled code and weights up to this size are copied into memory, others are mapped."""


def rounded_up(nbytes: int) -> int:
    """Return the smallest multiple of ALIGNMENT that is no less."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def aligned_bytes(nbytes: int) -> NDArray[np.uint8]:
    """Return `nbytes` bytes of memory that begins at a multiple of ALIGNMENT; they are not set."""
    if nbytes < HUGE_PAGE:
        return _at_multiple(np.empty(nbytes + ALIGNMENT, np.uint8), ALIGNMENT)[:nbytes]
    memory = _at_multiple(np.empty(nbytes + 2 * HUGE_PAGE, np.uint8), HUGE_PAGE)
    if sys.platform == "linux":
        # NumPy asks for huge pages from 4 MB on.  What the system refuses changes nothing.
        advice = MADV_HUGEPAGE if nbytes < LARGE_NBYTES else MADV_NOHUGEPAGE
        length = -(-nbytes // HUGE_PAGE) * HUGE_PAGE
        libc = ctypes.CDLL(None)
        libc.madvise(ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(length), advice)
    return memory[:nbytes]


def _at_multiple(raw: NDArray[np.uint8], of: int) -> NDArray[np.uint8]:
    return raw[-raw.ctypes.data % of :]


def sealed(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array after making it, and each array it is a view of, read-only."""
    part: Any = array
    while isinstance(part, np.ndarray):
        part.flags.writeable = False
        part = part.base
    return array


def bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of a dense array, in place."""
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)


def forget(array: NDArray[Any]) -> None:
    """Let the system drop the pages of an array that lies in a file, mapped for reading.

    It may be read again all the same: the pages come back from the file.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:  # what was written into a private map would be gone
            return
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if not isinstance(base, mmap.mmap) or not hasattr(base, "madvise"):
        return
    low = array.ctypes.data - np.frombuffer(base, np.uint8).ctypes.data
    # Pages that are shared with what lies beside come back, too.
    first = low // mmap.PAGESIZE * mmap.PAGESIZE
    with contextlib.suppress(OSError, ValueError):
        base.madvise(mmap.MADV_DONTNEED, first, low + array.nbytes - first)


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array itself if it is dense and begins at a multiple of ALIGNMENT, else a copy."""
    if array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
        return array
    place = aligned_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    place[...] = array
    return place


def copied(array: NDArray[Any]) -> NDArray[Any]:
    """Return a dense copy of an array in memory of its own; axes that repeat elements stay so."""
    repeats = (slice(0, 1) if step == 0 else slice(None) for step in array.strides)
    once = array[(*repeats, ...)]
    if once.dtype.hasobject or once.nbytes < mmap.PAGESIZE:
        copy = once.copy()
    else:  # begins where constants of compiled code do, so that it is not copied again
        copy = aligned_bytes(once.nbytes).view(once.dtype).reshape(once.shape)
        copy[...] = once
    return copy if copy.shape == array.shape else np.broadcast_to(copy, array.shape)


FEW = 10_000
"""So many objects may lie about that nobody needs."""

_resting = new_rlock()
_resters: dict[object, int] = {}
"""Blocks in which the collector rests, and their threads."""
_was_on = True
_kept = 0
_enough = FEW


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Let Python's collector of cycles rest meanwhile, and collect what was made since at the end.

    It goes through all there is whenever there is a quarter more.  A graph in the making is all
    cycles, and still needed: of 100,000 nodes, that took as long as compiling them.  As nothing
    grows old meanwhile, what compiling left in cycles is among the young at the end.  What it
    returned may be dropped any time later: with a quarter more of that, all is gone through.
    """
    global _was_on
    rester = object()
    try:
        with _resting:
            if not _resters:
                _was_on = gc.isenabled()
            _resters[rester] = threading.get_ident()
            gc.disable()
        yield
    finally:
        with _resting:
            try:
                _resters.pop(rester, None)
                young = gc.get_count()[0]
            finally:  # whatever interrupts that, the collector does not rest for ever
                awake = not _resters and _was_on
                if awake:
                    gc.enable()
            if awake:
                _collect(young)


def _collect(young: int) -> None:
    """Collect what was made while the collector rested: so many young objects."""
    global _kept, _enough
    _kept += young - gc.collect(0)
    if _kept > _enough:
        gc.collect()
        _kept = 0
        # Counting them takes as long as going through them, so it is done but here.
        _enough = max(FEW, len(gc.get_objects()) // 4)


def _forget_others() -> None:
    """Drop the blocks of threads that a fork has left behind."""
    for rester, thread in list(_resters.items()):
        if thread != threading.get_ident():
            del _resters[rester]
    if not _resters and _was_on:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_others)
