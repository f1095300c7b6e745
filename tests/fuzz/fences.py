"""Memory between pages that may not be touched, and calls of compiled code that survive a fault.

A *fence* is address space that nothing is mapped to.  A plot has one on each side, and opens as
many of its pages as something needs, at either end: one byte too many is a fault there, of the
instruction that asks for it.  `attempt` runs a function that may fault and says where it did.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import signal
import struct
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.ir.target import Target
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.machines.cpu.jit import Code

Bytes = NDArray[np.uint8]

PAGE = mmap.PAGESIZE

FENCE = 1 << 24
"""Bytes of a fence: more than the rows by which an index that is off by a few is off."""

SUPPORTED = sys.platform == "linux" and sys.maxsize > 1 << 32
"""Whether faults can be caught here: how signals are told is written down for 64-bit Linux."""

_NONE, _READ, _WRITE = 0, 1, 2
_ANYWHERE = 0x02 | 0x20 | 0x4000  # private, anonymous, nothing reserved


@dataclass(frozen=True, slots=True)
class Fault:
    """A signal that ended a call: its name, the address, and what was done there."""

    signal: str
    address: int
    access: str


class Plot:
    """Room for `nbytes` bytes between two fences."""

    def __init__(self, nbytes: int) -> None:
        self._room = -(-max(nbytes, 1) // PAGE) * PAGE
        self._size = self._room + 2 * FENCE
        self.base = _libc().mmap(None, self._size, _NONE, _ANYWHERE, -1, 0)
        assert self.base != ctypes.c_void_p(-1).value, "no address space is left"
        whole = (ctypes.c_uint8 * self._size).from_address(self.base)
        self._bytes: Bytes = np.frombuffer(whole, np.uint8)
        self._open = (0, 0)

    def __enter__(self) -> Plot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def room(self) -> int:
        return self._room

    def open(self, nbytes: int, at_end: bool) -> tuple[Bytes, Bytes]:
        """Open the pages of so many bytes that end, or begin, where a fence does.

        Returns these bytes, and all that can be touched: the others are the rest of a page.
        """
        assert nbytes <= self._room, "the plot is too small"
        pages = -(-nbytes // PAGE) * PAGE
        self.shut()
        begin = FENCE + (self._room - pages if at_end else 0)
        self._open = begin, pages
        self._protect(_READ | _WRITE)
        touchable = self._bytes[begin : begin + pages]
        return (touchable[pages - nbytes :] if at_end else touchable[:nbytes]), touchable

    def seal(self) -> None:
        """Let nobody write what is open."""
        self._protect(_READ)

    def shut(self) -> None:
        """Let nobody touch anything."""
        self._protect(_NONE)
        self._open = (0, 0)

    def holds(self, address: int) -> bool:
        """Whether an address lies in the plot or its fences."""
        return self.base <= address < self.base + self._size

    def close(self) -> None:
        """Give the address space back; no array in it may be used any more."""
        del self._bytes
        assert _libc().munmap(self.base, self._size) == 0

    def _protect(self, rights: int) -> None:
        begin, pages = self._open
        if pages:
            assert _libc().mprotect(self.base + begin, pages, rights) == 0, "out of mappings"


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None)
    size, pointer, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
    libc.mmap.restype = pointer
    libc.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    libc.munmap.argtypes = [pointer, size]
    libc.mprotect.argtypes = [pointer, size, number]
    libc.sigaction.argtypes = [number, pointer, pointer]
    return libc


# ── faults ──


def attempt(kernel: int, args: int, begin: int, end: int) -> Fault | None:
    """Call the kernel at an address; return the fault that ended it, if one did."""
    trap = _trap()
    trap.arm()
    try:
        failed = trap.call(kernel, args, begin, end)
    finally:
        trap.disarm()
    return trap.fault() if failed else None


SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)

_TRAP = """
@place = internal global [1024 x i8] zeroinitializer, align 16
@report = global [4 x i64] zeroinitializer

declare i32 @__sigsetjmp(ptr, i32) returns_twice
declare void @siglongjmp(ptr, i32) noreturn

define void @on_signal(i32 %number, ptr %info, ptr %context) {
  %code.at = getelementptr i8, ptr %info, i64 8
  %address.at = getelementptr i8, ptr %info, i64 16
  %error.at = getelementptr i8, ptr %context, i64 192
  %code = load i32, ptr %code.at
  %address = load i64, ptr %address.at
  %error = load i64, ptr %error.at
  %number.64 = zext i32 %number to i64
  %code.64 = sext i32 %code to i64
  %p1 = getelementptr i64, ptr @report, i64 1
  %p2 = getelementptr i64, ptr @report, i64 2
  %p3 = getelementptr i64, ptr @report, i64 3
  store i64 %number.64, ptr @report
  store i64 %code.64, ptr %p1
  store i64 %address, ptr %p2
  store i64 %error, ptr %p3
  call void @siglongjmp(ptr @place, i32 1)
  unreachable
}

define i64 @attempt(ptr %kernel, ptr %args, i64 %begin, i64 %end) noinline {
  %again = call i32 @__sigsetjmp(ptr @place, i32 1) returns_twice
  %first = icmp eq i32 %again, 0
  br i1 %first, label %run, label %failed
run:
  call void %kernel(ptr %args, i64 %begin, i64 %end)
  ret i64 0
failed:
  ret i64 1
}
"""
"""Of the context of a signal on x86-64, error code of the fault included, glibc and musl have the
same idea; elsewhere that field is something else and is not looked at."""


class _Trap:
    """Compiled code that calls compiled code and comes back from its faults.

    Its handlers stand only while it does: what else faults dies as ever.
    """

    def __init__(self) -> None:
        host = Target.parse("cpu")
        self._code = Code.install([assemble(_TRAP, host)], ["attempt", "on_signal", "report"])
        # The interpreter stays locked, so that no other thread of it can fault meanwhile.
        prototype = ctypes.PYFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)
        self.call = prototype(self._code.address("attempt"))
        self._report = (ctypes.c_int64 * 4).from_address(self._code.address("report"))
        self._has_access = host.architecture == "x86-64"
        # Handler, 128 bytes of mask, flags (SA_SIGINFO, SA_ONSTACK, SA_NODEFER), restorer.
        flags = 0x4 | 0x08000000 | 0x40000000
        on_signal = self._code.address("on_signal")
        self._ours = ctypes.create_string_buffer(struct.pack("<Q128xi4xQ", on_signal, flags, 0))
        self._theirs = [ctypes.create_string_buffer(len(self._ours)) for _ in SIGNALS]

    def arm(self) -> None:
        for number, kept in zip(SIGNALS, self._theirs, strict=True):
            assert _libc().sigaction(number, self._ours, kept) == 0

    def disarm(self) -> None:
        for number, kept in zip(SIGNALS, self._theirs, strict=True):
            assert _libc().sigaction(number, kept, None) == 0

    def fault(self) -> Fault:
        number, code, address, error = self._report
        name = signal.Signals(number).name
        # What the kernel sends itself has no address: an access that wants more alignment.
        if number == signal.SIGSEGV and code == 128:
            return Fault(name, 0, "misaligned or beyond all addresses")
        known = self._has_access and number == signal.SIGSEGV
        access = ("writes" if error & 2 else "reads") if known else "touches"
        return Fault(name, address % (1 << 64), access)


@functools.cache
def _trap() -> _Trap:
    return _Trap()
