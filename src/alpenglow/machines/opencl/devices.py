"""The OpenCL devices of this machine, the facts about each, and how one is named.

They are numbered over all platforms, GPUs first, then accelerators, then CPUs, otherwise in the
order of the loader.
"""

from __future__ import annotations

from ctypes import byref, c_uint32, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Literal

from alpenglow.base.errors import DeviceError
from alpenglow.base.words import told
from alpenglow.machines.opencl.library import (
    INSTALL,
    ask,
    library,
    number,
    numbers,
    platforms,
    text,
)

Kind = Literal["gpu", "accelerator", "cpu"]

_KINDS: tuple[tuple[int, Kind], ...] = ((4, "gpu"), (8, "accelerator"), (2, "cpu"))
_EVERY_KIND = 0xFFFFFFFF
_DENORMALS, _EXACT_DIVISION = 1 << 0, 1 << 7


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a device says of itself.

    `most_threads` is how many a group has at most, `lanes` the width of its vectors of f32, and
    `preferred_lanes` that of vectors in kernels, 1 where threads are put together instead.
    `cache_nbytes` is its cache of memory, 0 where it does not say.  `subgroups` are the sizes that
    it forms; () where it does not say.  `alignment` is that of buffers, in bytes.
    """

    index: int
    name: str
    platform: str
    platform_version: str
    vendor: str
    driver: str
    version: str
    c_version: str
    kind: Kind
    units: int
    megahertz: int
    memory_nbytes: int
    largest_nbytes: int
    cache_nbytes: int
    local_nbytes: int
    most_threads: int
    lanes: int
    preferred_lanes: int
    subgroups: tuple[int, ...]
    alignment: int
    exact_division: bool
    denormals: bool
    fp64: bool
    fp16: bool
    integer_dot: bool
    command_buffers: bool
    extensions: tuple[str, ...]

    @property
    def target(self) -> str:
        """The name of the target that is this device."""
        return f"opencl:{self.index}"


def devices() -> list[DeviceFacts]:
    """Return what is here.  Raises DeviceError, which says what to install, if that is nothing."""
    return list(_devices())


def find(words: str) -> DeviceFacts:
    """Return a device by its number or a part of its platform's or its own name; "" is the first.

    A platform's name is that of the driver, so it goes first: two of them may drive one device.
    Raises DeviceError where there is none.
    """
    here, asked = devices(), words.strip().lower()
    if asked.isascii() and asked.isdecimal():
        matching = [d for d in here if d.index == int(asked[:9])]
    else:
        matching = [d for d in here if asked in f"{d.platform}\n{d.platform_version}".lower()]
        matching += [d for d in here if asked in d.name.lower()]
    if matching:
        return matching[0]
    listed = ", ".join(f"{d.index} ('{d.name}', {d.platform})" for d in here)
    raise DeviceError(f"OpenCL device is '{told(words)}', expected one of {listed}")


def handles(facts: DeviceFacts) -> tuple[int, int]:
    """Return the platform and the device themselves."""
    return _handles()[facts.index]


@cache
def _devices() -> tuple[DeviceFacts, ...]:
    return tuple(_facts(i, *pair) for i, pair in enumerate(_handles()))


@cache
def _handles() -> tuple[tuple[int, int], ...]:
    pairs = [(p, d) for p in platforms() for d in _listed(p)]
    usable = [(p, d) for p, d in pairs if _kind(d) and _says(d, AVAILABLE) and _says(d, COMPILER)]
    if not usable:
        names = ", ".join(
            text(ask(library().clGetPlatformInfo, p, about=NAME)) for p in platforms()
        )
        raise DeviceError(f"OpenCL is here ({names}), but no device that can be used", hint=INSTALL)
    order = [kind for _, kind in _KINDS]
    return tuple(sorted(usable, key=lambda pair: order.index(_kind(pair[1]) or "cpu")))


def _listed(platform: int) -> list[int]:
    """Return the devices of a platform; of one that has none, or fails, there are none."""
    cl, count = library(), c_uint32()
    if cl.clGetDeviceIDs(platform, _EVERY_KIND, 0, None, byref(count)) or not count.value:
        return []
    listed = (c_void_p * count.value)()
    code = cl.clGetDeviceIDs(platform, _EVERY_KIND, count.value, listed, None)
    return [] if code else [d for d in listed if d]


def _kind(device: int) -> Kind | None:
    bits = number(_answer(device, TYPE))
    return next((kind for bit, kind in _KINDS if bits & bit), None)


def _answer(device: int, about: int) -> bytes:
    return ask(library().clGetDeviceInfo, device, about=about)


def _says(device: int, about: int) -> bool:
    return bool(number(_answer(device, about)))


def _facts(index: int, platform: int, device: int) -> DeviceFacts:
    """Ask a device for all that there is to know."""

    def words(about: int) -> str:
        return text(_answer(device, about))

    def count(about: int) -> int:
        return number(_answer(device, about))

    kind = _kind(device)
    assert kind is not None, "other devices are not listed"
    extensions = tuple(sorted(set(words(EXTENSIONS).split())))
    floats = count(SINGLE_CONFIG)
    return DeviceFacts(
        index=index,
        name=words(DEVICE_NAME),
        platform=text(ask(library().clGetPlatformInfo, platform, about=NAME)),
        platform_version=text(ask(library().clGetPlatformInfo, platform, about=VERSION)),
        vendor=words(VENDOR),
        driver=words(DRIVER),
        version=words(DEVICE_VERSION),
        c_version=_latest_c(device),
        kind=kind,
        units=count(UNITS),
        megahertz=count(MEGAHERTZ),
        memory_nbytes=count(MEMORY),
        largest_nbytes=count(LARGEST),
        cache_nbytes=count(CACHE),
        local_nbytes=count(LOCAL),
        most_threads=count(THREADS),
        lanes=max(1, count(NATIVE_FLOATS)),
        preferred_lanes=max(1, count(PREFERRED_FLOATS)),
        subgroups=_subgroups(device),
        alignment=max(1, count(ALIGNMENT_BITS) // 8),
        exact_division=bool(floats & _EXACT_DIVISION),
        denormals=bool(floats & _DENORMALS),
        fp64=bool(count(DOUBLE_CONFIG)) or "cl_khr_fp64" in extensions,
        fp16="cl_khr_fp16" in extensions,
        integer_dot="cl_khr_integer_dot_product" in extensions,
        command_buffers="cl_khr_command_buffer" in extensions,
        extensions=extensions,
    )


def _latest_c(device: int) -> str:
    """Return the latest version of OpenCL C that a device takes: ``1.2``."""
    versions = _answer(device, C_VERSIONS)  # each 4 bytes of version, 64 of name
    numbered = [int.from_bytes(versions[i : i + 4], "little") for i in range(0, len(versions), 68)]
    if numbered:
        return f"{max(numbered) >> 22}.{max(numbered) >> 12 & 0x3FF}"
    return text(_answer(device, C_VERSION)).removeprefix("OpenCL C ").split(" ")[0]


def _subgroups(device: int) -> tuple[int, ...]:
    """Return the sizes of subgroups, which each vendor has a question of its own for."""
    sizes = numbers(_answer(device, SUBGROUPS_INTEL))
    if not sizes:
        sizes = tuple(number(_answer(device, about)) for about in (WARP_NVIDIA, WAVEFRONT_AMD))
    return tuple(sorted({n for n in sizes if n}))


NAME, VERSION = 0x0902, 0x0901  # of a platform
TYPE, UNITS, THREADS, MEGAHERTZ, LARGEST = 0x1000, 0x1002, 0x1004, 0x100C, 0x1010
ALIGNMENT_BITS, SINGLE_CONFIG, CACHE, MEMORY, LOCAL = 0x1019, 0x101B, 0x101E, 0x101F, 0x1023
AVAILABLE, COMPILER = 0x1027, 0x1028
DEVICE_NAME, VENDOR, DRIVER, DEVICE_VERSION, EXTENSIONS = 0x102B, 0x102C, 0x102D, 0x102F, 0x1030
DOUBLE_CONFIG, PREFERRED_FLOATS, NATIVE_FLOATS = 0x1032, 0x100A, 0x103A
C_VERSION, C_VERSIONS = 0x103D, 0x1066
SUBGROUPS_INTEL, WARP_NVIDIA, WAVEFRONT_AMD = 0x4108, 0x4003, 0x4043
