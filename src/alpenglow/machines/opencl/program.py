"""Programs: OpenCL C text that a device's runtime has compiled, kept for the next process.

A text begins with ``// OpenCL C 3.0`` if it needs that, and is OpenCL C 1.2 otherwise.  What is
kept is found by the text, the options and all that names device and driver.  A runtime that does
not take back what it gave compiles the text again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_int32, c_size_t, c_void_p
from typing import Any

from alpenglow.base.errors import DeviceError
from alpenglow.base.store import Store
from alpenglow.machines.opencl.devices import DeviceFacts, handles
from alpenglow.machines.opencl.library import ask, check, library, named, number, text
from alpenglow.machines.opencl.runtimes import VARIABLES
from alpenglow.render.opencl.operations import NEWER

FORMAT = 1
"""The version of what is kept."""

MOST_LINES = 12
"""How much of a compiler's log is told."""

_BUILD_LOG, _BINARY_SIZES, _BINARIES = 0x1183, 0x1165, 0x1166
_BUILD_FAILED, _BAD_OPTIONS = -11, -43
_EXACT = "-cl-fp32-correctly-rounded-divide-sqrt"


def build(context: int, facts: DeviceFacts, name: str, source: str, store: Store) -> int:
    """Return the program of a text, which holds the kernel `name`.

    Raises DeviceError with the runtime's log if it is refused.
    """
    key = _key(facts, source)
    kept = store.get(key)
    program = None if kept is None else _from_binary(context, facts, kept)
    if program is None:
        program = _from_text(context, facts, name, source)
        if binary := _binary(program):
            store.put(key, binary)
    return program


def options(facts: DeviceFacts, source: str) -> Iterator[str]:
    """Yield the options to build with, the best first.

    Some runtimes divide exactly if asked to, but do not say that they can, and some refuse.
    """
    standard = "-cl-std=CL3.0" if source.startswith(NEWER) else "-cl-std=CL1.2"
    yield f"{standard} {_EXACT}"
    if not facts.exact_division:
        yield standard


def release(program: int) -> None:
    """Give a program back."""
    library().clReleaseProgram(program)


def _key(facts: DeviceFacts, source: str) -> str:
    device = (facts.name, facts.version, facts.driver, facts.platform, facts.platform_version)
    wanted = (*options(facts, source), *VARIABLES.items())
    return f"opencl {FORMAT}\n{device}\n{facts.extensions}\n{wanted}\n{source}"


def _from_binary(context: int, facts: DeviceFacts, binary: bytes) -> int | None:
    cl, device = library(), c_void_p(handles(facts)[1])
    size, data = c_size_t(len(binary)), ctypes.create_string_buffer(binary, len(binary))
    where = c_void_p(ctypes.addressof(data))
    status, code = c_int32(), c_int32()
    program: int | None = cl.clCreateProgramWithBinary(
        context, 1, byref(device), byref(size), byref(where),
        byref(status), byref(code),
    )  # fmt: skip
    if code.value or status.value or not program:
        return None
    if cl.clBuildProgram(program, 1, byref(device), None, None, None):
        release(program)
        return None
    return program


def _from_text(context: int, facts: DeviceFacts, name: str, source: str) -> int:
    cl, device = library(), c_void_p(handles(facts)[1])
    data, code = ctypes.c_char_p(source.encode()), c_int32()
    program: int = cl.clCreateProgramWithSource(context, 1, byref(data), None, byref(code))
    check(code.value, f"make a program of kernel '{name}'")
    built, log = 0, ""
    for wanted in options(facts, source):
        built = cl.clBuildProgram(program, 1, byref(device), wanted.encode(), None, None)
        if not built:
            return program
        log = log or text(ask(cl.clGetProgramBuildInfo, program, device, about=_BUILD_LOG))
    release(program)
    told = _shortened(log) or named(built)
    raise DeviceError(
        f"{facts.target} ('{facts.name}') refuses kernel '{name}': {told}",
        hint="update the device's driver, or leave this device out",
    )


def _shortened(log: str) -> str:
    """Return the lines of a log that begin at its first error."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if "error" in line.lower()), 0)
    told = lines[first : first + MOST_LINES]
    more = len(lines) - first - len(told)
    return " | ".join(told) + (f" | … {more} more lines" if more > 0 else "")


def _binary(program: int) -> bytes:
    """Return what a program was compiled to; b"" if its runtime does not tell."""
    cl = library()
    size = number(ask(cl.clGetProgramInfo, program, about=_BINARY_SIZES))
    if not size:
        return b""
    data = ctypes.create_string_buffer(size)
    where = c_void_p(ctypes.addressof(data))
    code: Any = cl.clGetProgramInfo(program, _BINARIES, ctypes.sizeof(where), byref(where), None)
    return b"" if code else data.raw
