"""The functions of OpenCL, called through the loader that the system or a wheel brings.

Nothing of OpenCL is needed to build or to import this: the loader is opened when it is first asked
for.  Functions have the names of the specification.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any

from alpenglow.base.errors import DeviceError
from alpenglow.machines.opencl.runtimes import intel_folder, prepared, without_runtime

# Short names for the table: handle or address, code, count, size, bits, text.
_H, _C, _N, _Z, _B, _T = c_void_p, c_int32, c_uint32, c_size_t, c_uint64, c_char_p
_COMMAND = (_N, _H, _H)  # of each command the last: how many events it waits for, these, its own

FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "clGetPlatformIDs": (_C, _N, _H, _H),
    "clGetPlatformInfo": (_C, _H, _N, _Z, _H, _H),
    "clGetDeviceIDs": (_C, _H, _B, _N, _H, _H),
    "clGetDeviceInfo": (_C, _H, _N, _Z, _H, _H),
    "clCreateContext": (_H, _H, _N, _H, _H, _H, _H),
    "clCreateCommandQueue": (_H, _H, _H, _B, _H),
    "clFlush": (_C, _H),
    "clFinish": (_C, _H),
    "clCreateBuffer": (_H, _H, _B, _Z, _H, _H),
    "clReleaseMemObject": (_C, _H),
    "clCreateProgramWithSource": (_H, _H, _N, _H, _H, _H),
    "clCreateProgramWithBinary": (_H, _H, _N, _H, _H, _H, _H, _H),
    "clBuildProgram": (_C, _H, _N, _H, _T, _H, _H),
    "clGetProgramInfo": (_C, _H, _N, _Z, _H, _H),
    "clGetProgramBuildInfo": (_C, _H, _H, _N, _Z, _H, _H),
    "clReleaseProgram": (_C, _H),
    "clCreateKernel": (_H, _H, _T, _H),
    "clSetKernelArg": (_C, _H, _N, _Z, _H),
    "clGetKernelWorkGroupInfo": (_C, _H, _H, _N, _Z, _H, _H),
    "clReleaseKernel": (_C, _H),
    "clEnqueueNDRangeKernel": (_C,),
    "clEnqueueWriteBuffer": (_C, _H, _H, _N, _Z, _Z, _H, *_COMMAND),
    "clEnqueueReadBuffer": (_C, _H, _H, _N, _Z, _Z, _H, *_COMMAND),
    "clEnqueueCopyBuffer": (_C, _H, _H, _H, _Z, _Z, _Z, *_COMMAND),
    "clEnqueueMigrateMemObjects": (_C, _H, _N, _H, _B, *_COMMAND),
    "clEnqueueMarkerWithWaitList": (_C, _H, *_COMMAND),
    "clWaitForEvents": (_C, _N, _H),
    "clGetEventInfo": (_C, _H, _N, _Z, _H, _H),
    "clGetEventProfilingInfo": (_C, _H, _N, _Z, _H, _H),
    "clReleaseEvent": (_C, _H),
}
"""What a function returns, then what it takes; all have been there since OpenCL 1.2.

Kernels are launched with arguments that are made once and need no conversion, which takes 0.5 µs.
"""

OUT_OF_MEMORY = frozenset({-4, -5, -6, -61})
"""Codes with which runtimes refuse memory: for objects, resources, on the host, too large."""

NOT_FOUND, NO_PLATFORM = -1, -1001


def names() -> tuple[str, ...]:
    """Return what loaders are called on this system, the likeliest first."""
    match sys.platform:
        case "win32":
            return ("OpenCL.dll",)
        case "darwin":
            return ("/System/Library/Frameworks/OpenCL.framework/OpenCL",)
    beside = intel_folder()
    wheel = () if beside is None else (str(beside / "libOpenCL.so.1"),)
    return ("libOpenCL.so.1", "libOpenCL.so", *wheel)


@cache
def library() -> Any:
    """Return the loader with all functions declared.  Raises DeviceError if there is none."""
    return opened(names())


def opened(candidates: Sequence[str]) -> Any:
    """Return the first library that can be opened and has all functions."""
    for name in candidates:
        try:
            loader = ctypes.CDLL(name)
            for function, (result, *takes) in FUNCTIONS.items():
                declared = getattr(loader, function)
                declared.restype, declared.argtypes = result, takes or None
        except (OSError, AttributeError):
            continue
        return loader
    raise DeviceError(
        f"there is no OpenCL on this machine: no {candidates[0]} can be opened", hint=INSTALL
    )


def check(code: int, what: str) -> None:
    """Raise DeviceError unless a call succeeded; `what` was to be done."""
    if code:
        reason = named(code)
        raise DeviceError(f"OpenCL cannot {what}: {reason}")


def named(code: int) -> str:
    """Return what the specification calls a code."""
    return CODES.get(code, f"code {code}")


def ask(function: Callable[..., int], *handles: Any, about: int) -> bytes:
    """Return what a function of the form clGet…Info tells; b"" if it does not know.

    Devices answer a question of a later version, or of an extension that they lack, with a code.
    """
    size = c_size_t()
    if function(*handles, about, 0, None, byref(size)) or not size.value:
        return b""
    answer = ctypes.create_string_buffer(size.value)
    return b"" if function(*handles, about, size.value, answer, None) else answer.raw


def text(answer: bytes) -> str:
    """Return an answer as text."""
    return answer.split(b"\0")[0].decode(errors="replace").strip()


def number(answer: bytes) -> int:
    """Return an answer as a number; 0 where there is none."""
    return int.from_bytes(answer[:8], "little")


def numbers(answer: bytes) -> tuple[int, ...]:
    """Return an answer of several sizes, or addresses."""
    return struct.unpack(f"{len(answer) // 8}Q", answer[: len(answer) // 8 * 8])


@cache
def platforms() -> tuple[int, ...]:
    """Return the platforms that the loader finds.  Raises DeviceError if there are none."""
    with prepared():
        cl, count = library(), c_uint32()
        code = cl.clGetPlatformIDs(0, None, byref(count))
    if code == NO_PLATFORM or not (code or count.value):
        raise DeviceError(
            f"OpenCL is here, but no driver for any device{without_runtime()}", hint=INSTALL
        )
    check(code, "list its platforms")
    handles = (c_void_p * count.value)()
    check(cl.clGetPlatformIDs(count.value, handles, None), "list its platforms")
    return tuple(filter(None, handles))


INSTALL = (
    "install the driver of the GPU, which brings OpenCL, or a runtime for the CPU: pip install "
    "intel-opencl-rt intel-cmplr-lib-rt, or apt-get install ocl-icd-libopencl1 pocl-opencl-icd"
)

CODES = {
    -1: "CL_DEVICE_NOT_FOUND", -2: "CL_DEVICE_NOT_AVAILABLE", -3: "CL_COMPILER_NOT_AVAILABLE",
    -4: "CL_MEM_OBJECT_ALLOCATION_FAILURE", -5: "CL_OUT_OF_RESOURCES", -6: "CL_OUT_OF_HOST_MEMORY",
    -7: "CL_PROFILING_INFO_NOT_AVAILABLE", -8: "CL_MEM_COPY_OVERLAP",
    -11: "CL_BUILD_PROGRAM_FAILURE", -12: "CL_MAP_FAILURE", -13: "CL_MISALIGNED_SUB_BUFFER_OFFSET",
    -14: "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", -15: "CL_COMPILE_PROGRAM_FAILURE",
    -16: "CL_LINKER_NOT_AVAILABLE", -17: "CL_LINK_PROGRAM_FAILURE", -30: "CL_INVALID_VALUE",
    -31: "CL_INVALID_DEVICE_TYPE", -32: "CL_INVALID_PLATFORM", -33: "CL_INVALID_DEVICE",
    -34: "CL_INVALID_CONTEXT", -35: "CL_INVALID_QUEUE_PROPERTIES", -36: "CL_INVALID_COMMAND_QUEUE",
    -37: "CL_INVALID_HOST_PTR", -38: "CL_INVALID_MEM_OBJECT", -42: "CL_INVALID_BINARY",
    -43: "CL_INVALID_BUILD_OPTIONS", -44: "CL_INVALID_PROGRAM",
    -45: "CL_INVALID_PROGRAM_EXECUTABLE", -46: "CL_INVALID_KERNEL_NAME",
    -47: "CL_INVALID_KERNEL_DEFINITION", -48: "CL_INVALID_KERNEL", -49: "CL_INVALID_ARG_INDEX",
    -50: "CL_INVALID_ARG_VALUE", -51: "CL_INVALID_ARG_SIZE", -52: "CL_INVALID_KERNEL_ARGS",
    -53: "CL_INVALID_WORK_DIMENSION", -54: "CL_INVALID_WORK_GROUP_SIZE",
    -55: "CL_INVALID_WORK_ITEM_SIZE", -56: "CL_INVALID_GLOBAL_OFFSET",
    -57: "CL_INVALID_EVENT_WAIT_LIST", -58: "CL_INVALID_EVENT", -59: "CL_INVALID_OPERATION",
    -61: "CL_INVALID_BUFFER_SIZE", -63: "CL_INVALID_GLOBAL_WORK_SIZE", -64: "CL_INVALID_PROPERTY",
    -1001: "CL_PLATFORM_NOT_FOUND_KHR", -1138: "CL_INVALID_COMMAND_BUFFER_KHR",
    -1139: "CL_INVALID_SYNC_POINT_WAIT_LIST_KHR", -1140: "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR",
}  # fmt: skip
