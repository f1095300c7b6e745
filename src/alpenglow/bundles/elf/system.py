"""The operating system that an object is for: Linux and bare metal, macOS, or Windows.

The system decides about the format of the object (ELF, Mach-O, COFF) and how functions are called;
kernels are the same on all.
"""

from __future__ import annotations

from dataclasses import replace

from alpenglow.base.errors import OptionError
from alpenglow.ir.target import Target
from alpenglow.machines.cpu.targets import LEVELS

SYSTEMS = ("linux", "macos", "windows")

_TRIPLES = {
    ("x86-64", "macos"): "x86_64-apple-macosx11.0.0",
    ("aarch64", "macos"): "arm64-apple-macosx11.0.0",
    ("x86-64", "windows"): "x86_64-pc-windows-msvc-coff",
    ("aarch64", "windows"): "aarch64-pc-windows-msvc-coff",
}

RUNTIME = {"windows": frozenset({"_fltused", "__chkstk"})}
"""What objects of a system refer to besides; its linker always has it."""


def for_system(target: Target, system: str) -> Target:
    """Return the target on another system; raise OptionError if there is no such machine."""
    level = LEVELS.get(target.name.split("+")[0])
    if system == "linux" and target.os == "linux":
        return target
    if system == "linux":
        triple = None if level is None or "linux" not in level.triple else level.triple
    else:
        triple = _TRIPLES.get((target.architecture, system))
    if triple is None:
        raise OptionError(
            f"no machine of target '{target}' runs {system}",
            hint="macos and windows run on x86-64 and aarch64, linux not on cortex-m",
        )
    return replace(target, triple=triple)


def twin(target: Target) -> Target:
    """Return the target whose objects are the same code in ELF, which can be looked into."""
    if target.os not in ("macosx", "windows"):
        return target
    return replace(target, triple=target.triple.removesuffix("-coff") + "-elf")
