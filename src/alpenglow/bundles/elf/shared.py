"""The format "shared": libNAME.so, an ELF shared library, and what C needs to use it."""

from __future__ import annotations

from alpenglow.base.errors import OptionError
from alpenglow.bundles.elf.library import shared_library
from alpenglow.bundles.elf.object import emit
from alpenglow.bundles.elf.writer import ElfObject
from alpenglow.bundles.job import Job, Needs
from alpenglow.ir.target import Target

_ARCHITECTURES = ("x86-64", "aarch64", "arm", "riscv64")
_NAMES = {"macosx": "macOS", "windows": "Windows"}


def library(job: Job) -> tuple[bytes, Needs]:
    """Return the library of a job, and what its code needs.

    It exports what the object does, and NAME_constants if weights are embedded.  It needs no other
    library, not even the C library.
    """
    refuse_library(job.layout.target)
    emitted = emit(job.layout, pic=True, api=job.api, freestanding=True, progress=job.progress)
    exports = sorted(ElfObject(emitted.image).defined())
    alignment = job.layout.alignment
    data = {}
    if job.embedded:
        data[f"{job.name}_constants"] = job.layout.weights() or bytes(alignment)
    image = shared_library(emitted.image, file_name(job.name), exports, data, alignment)
    return image, emitted.needs


def file_name(name: str) -> str:
    """Return the name of the library's file."""
    return f"lib{name}.so"


def refuse_library(target: Target) -> None:
    """Raise OptionError if nothing loads ELF libraries where a target's code runs."""
    if target.os in _NAMES:
        raise OptionError(
            f"shared libraries are written as ELF, and {_NAMES[target.os]} has another format",
            hint=f"format='object', which the linker of {_NAMES[target.os]} turns into a library",
            flags=f"--format object, which the linker of {_NAMES[target.os]} turns into a library",
        )
    if target.os in ("none", "unknown", "") or target.architecture not in _ARCHITECTURES:
        raise OptionError(
            f"nothing loads shared libraries on {target}",
            hint="format='object', or a target that has an operating system",
            flags="--format object, or a target that has an operating system",
        )
