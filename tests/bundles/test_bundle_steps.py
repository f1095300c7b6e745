"""Nets that hear words, in integers, on an emulated board: what they put out and remember here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
import models
from alpenglow.ir.types import Array
from bundle_cases import run
from test_bundle_memory import BOARD

STEPS = 48
WAKEWORDS = ("alexa", "hey_jarvis", "hey_mycroft", "okay_nabu")


def drawn(nbytes: int) -> list[Array]:
    """Return the bytes that each step has on the board."""
    state, steps = 1, []
    for _ in range(STEPS):
        content = np.empty(nbytes, np.uint8)
        for i in range(nbytes):
            state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
            content[i] = state >> 24
        steps.append(content)
    return steps


def said_by_board(folder: Path, bundle: ag.Bundle, name: str) -> str:
    """Run a bundle that remembers on the emulated board, and return what it says."""
    (routine,) = bundle.routines
    (sound,), (heard,) = routine.inputs, routine.outputs
    assert routine.state is not None
    cells = ",".join(f"{{{c.offset},{c.type.nbytes}}}" for c in routine.state.cells)
    (folder / "board.ld").write_text(BOARD)
    known = {
        "HEADER": f'"{name}/{name}.h"', "WEIGHTS": f'"{name}/{name}.weights.bin"', "NAME": name,
        "STEPS": STEPS, "MUTABLE": routine.mutable_nbytes, "SCRATCH": routine.scratch_nbytes,
        "IN": sound.offset, "NBYTES": sound.type.nbytes,
        "OUT": heard.offset, "RESULTS": heard.type.nbytes, "CELLS": cells,
    }  # fmt: skip
    run(
        "arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16",
        "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-nostdlib", "-I.",
        *(f"-D{word}={value}" for word, value in known.items()),
        models.ROOT / "tests" / "data" / "bundle_steps.c", f"{name}/{name}.o", "-T", "board.ld",
        "-z", "noexecstack", "-o", "board.elf", "-lgcc", cwd=folder,
    )  # fmt: skip
    return run(
        "qemu-system-arm", "-M", "mps2-an386", "-kernel", "board.elf", "-nographic",
        "-semihosting-config", "enable=on,target=native", cwd=folder, timeout=280,
    ).strip()  # fmt: skip


@pytest.mark.cross
@pytest.mark.models
@pytest.mark.parametrize("rounding", ["reference", "xnnpack"])
@pytest.mark.parametrize("name", WAKEWORDS)
def test_a_net_that_hears_words_says_the_same_on_a_board(
    tmp_path: Path, name: str, rounding: str
) -> None:
    path = models.tflite_path(name)
    bundle = ag.bundle(
        path, tmp_path / name, target="cortex-m4", entry=name, freestanding=True, rounding=rounding
    )
    (routine,) = bundle.routines
    assert routine.state is not None
    session = ag.compile(path, rounding=rounding).session()
    (sound,) = session.inputs.values()

    said = said_by_board(tmp_path, bundle, name)

    wanted = []
    for x in drawn(sound.nbytes):
        y = session(x.view(np.int8).reshape(sound.extents))
        remembered = [session.variables[c.name] for c in routine.state.cells]
        wanted.append(f"{y.tobytes().hex()}/{hashed(remembered):08x}")
    assert said.split() == wanted
    assert len(set(wanted)) > STEPS // 2


def hashed(arrays: list[Array]) -> int:
    """Return the FNV-1a hash of the bytes of arrays."""
    value = 2166136261
    for byte in b"".join(a.tobytes() for a in arrays):
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value
