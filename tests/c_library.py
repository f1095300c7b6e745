"""Kernels in C as a shared library in this process."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path

from alpenglow.ir.types import Array
from alpenglow.kernel.stmt import Kernel

WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror")


def shared_library(text: str, folder: Path, *flags: str, compiler: str = "gcc") -> ctypes.CDLL:
    source, made = folder / "kernels.c", folder / "kernels.so"
    source.write_text(text)
    command = [compiler, *WARNINGS, *(flags or ("-O1",)), "-fPIC", "-shared", "-nostdlib"]
    done = subprocess.run(
        [*command, "-o", str(made), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(made))


def call(
    library: ctypes.CDLL,
    kernel: Kernel,
    operands: Mapping[str, Array],
    extents: Mapping[str, int],
    part: tuple[int, int] | None,
) -> None:
    slots = [ctypes.c_void_p(operands[b.name].ctypes.data) for b in kernel.buffers]
    numbers = [extents[n.name] for n in kernel.extents] + list(part or ())
    getattr(library, kernel.name)(*slots, *map(ctypes.c_ssize_t, numbers))
