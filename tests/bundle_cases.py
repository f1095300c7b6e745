"""Bundles under test: made of models, built by C compilers, run on this machine or an emulator."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.bundles import Bundle

Array = NDArray[Any]
Feeds = Mapping[str, Array]

DRIVER = Path(__file__).resolve().parent / "data" / "bundle_driver.c"
STRICT = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror")
LINKED = (DRIVER.parent / "linked.ll").read_text()
"""A module that refers to its own functions and constants in every way that our code does."""


BOARD = """
MEMORY
{
    flash (rx) : ORIGIN = 0x00000000, LENGTH = 4M
    ram (rw) : ORIGIN = 0x20000000, LENGTH = 4M
    external (r) : ORIGIN = 0x21000000, LENGTH = 16M
}
SECTIONS
{
    .text : { KEEP(*(.vectors)) *(.text* .rodata*) } > flash
    .ARM.exidx : { *(.ARM.exidx*) } > flash
    .weights : { *(.weights) } > external
    .bss (NOLOAD) : { *(.bss* COMMON) } > ram
    .stack (NOLOAD) : { . = ALIGN(8); stack_end = .; . += 4K; stack_top = .; } > ram
}
"""
"""Where a program for the board lies, with weights behind its own memory."""


class MissingToolError(Exception):
    """A tool that cross tests need is not there; .ci/run installs it."""


def tool(name: str) -> str:
    """Return the path of a tool; tests that need one fail without it."""
    found = shutil.which(name)
    if found is None:
        raise MissingToolError(f"'{name}' is missing; .ci/run installs what these tests need")
    return found


def run(*args: str | Path, cwd: Path | None = None, timeout: float = 300) -> str:
    """Run a program that must succeed; return what it prints."""
    program, *rest = map(str, args)
    if "/" not in program:
        program = tool(program)
    done = subprocess.run(
        [program, *rest], cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, f"{program}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def on_board(folder: Path, source: str, known: Mapping[str, object], *objects: str) -> str:
    """Run a program of tests/data with bundles on the emulated board; return what it says.

    `known` are the macros that it is compiled with; objects lie in the folder.
    """
    (folder / "board.ld").write_text(BOARD)
    run(
        "arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16",
        "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-nostdlib", "-I.",
        *(f"-D{name}={value}" for name, value in known.items()), DRIVER.parent / source, *objects,
        "-T", "board.ld", "-z", "noexecstack", "-o", "board.elf", "-lgcc", cwd=folder,
    )  # fmt: skip
    return run(
        "qemu-system-arm", "-M", "mps2-an386", "-kernel", "board.elf", "-nographic",
        "-semihosting-config", "enable=on,target=native", cwd=folder, timeout=280,
    ).strip()  # fmt: skip


def driver(made: Bundle, compiler: Sequence[str], to: Path, flags: Sequence[str] = ()) -> Path:
    """Build the driver with a bundle."""
    (routine,) = made.routines
    dynamic = "alpenglow_bundle.h" in made.files
    first = routine.outputs[0].offset
    macros = {
        "HEADER": f'"{made.name}.h"',
        "ENTRY": routine.entry,
        "ALIGNMENT": f"{made.name.upper()}_ALIGNMENT",
        "CONSTANTS": made.constants_nbytes,
        "MUTABLE": routine.mutable_nbytes,
        "SCRATCH": routine.scratch_nbytes,
        "INPUTS": first,
    }
    sources = [DRIVER, *((made.folder / "alpenglow_threads.c",) if dynamic else ())]
    run(
        *compiler,
        *STRICT,
        *(f"-D{name}={value}" for name, value in macros.items()),
        *(("-DDYNAMIC", "-pthread") if dynamic else ()),
        "-I",
        made.folder,
        *sources,
        *(made.folder / file for file in made.files if file.endswith((".o", ".so"))),
        *flags,
        "-o",
        to,
    )
    return to


def drive(
    made: Bundle, program: Sequence[str | Path], feeds: Sequence[Feeds], threads: int | None = None
) -> tuple[list[dict[str, Array]], str]:
    """Run the driver on inputs; return the outputs for each, and what was printed."""
    (routine,) = made.routines
    folder = made.folder.parent
    first = routine.outputs[0].offset
    with (folder / "inputs.bin").open("wb") as file:
        for feed in feeds:
            region = bytearray(first)
            for s in routine.inputs:
                content = np.ascontiguousarray(feed[s.name]).tobytes()
                region[s.offset : s.offset + len(content)] = content
            file.write(region)
    text = run(
        *program,
        made.folder / f"{made.name}.weights.bin",
        folder / "inputs.bin",
        folder / "outputs.bin",
        str(len(feeds)),
        *(() if threads is None else (str(threads),)),
    )
    written = (folder / "outputs.bin").read_bytes()
    size = routine.mutable_nbytes - first
    found = []
    for i in range(len(feeds)):
        region = bytearray(written[i * size : (i + 1) * size])
        found.append(
            {
                s.name: np.frombuffer(region, s.type.numpy, s.type.size, s.offset - first).reshape(
                    s.type.extents
                )
                for s in routine.outputs
            }
        )
    return found, text


def same_bits(found: Mapping[str, Array], expected: Mapping[str, Array]) -> bool:
    """Whether outputs have the same names, types, shapes and bits."""
    return found.keys() == expected.keys() and all(
        (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        for a, b in ((found[k], expected[k]) for k in found)
    )


def compiled(path: Path, target: str, shapes: Mapping[str, Sequence[int]]) -> ag.Executable:
    """Return what compiles the same model to run here."""
    return ag.compile(path, target, 1, shapes)
