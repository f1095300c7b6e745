"""Bundles under a limit of memory: on an emulated board, with the bits of those without."""

from __future__ import annotations

from pathlib import Path

import pytest

import alpenglow as ag
import models
from alpenglow.bundles import planned
from alpenglow.bundles.curve import curve
from alpenglow.ir.target import Target
from alpenglow.program import Program
from bundle_cases import run
from command import alpenglow
from rolling_cases import network

BOARD = """
MEMORY
{
    flash (rx) : ORIGIN = 0x00000000, LENGTH = 4M
    ram (rw) : ORIGIN = 0x20000000, LENGTH = 4M
}
SECTIONS
{
    .text : { KEEP(*(.vectors)) *(.text* .rodata*) } > flash
    .ARM.exidx : { *(.ARM.exidx*) } > flash
    .bss (NOLOAD) : { *(.bss* COMMON) } > ram
    .stack (NOLOAD) : { . = ALIGN(8); . += 4K; stack_top = .; } > ram
}
"""


@pytest.mark.cross
@pytest.mark.models
@pytest.mark.parametrize(
    ("model", "shapes", "scale"),
    [("mnist8", {}, "(1.0f / 256)"), ("squeezenet11_qdq", {"x": (1, 3, 227, 227)}, "(1.0f / 500)")],
)
def test_half_of_the_memory_gives_the_same_bits_on_a_board(
    tmp_path: Path, model: str, shapes: dict[str, tuple[int, ...]], scale: str
) -> None:
    path = models.model_path(model)
    made = {}
    for name, memory in (("unlimited", None), ("limited", True)):
        limit = made["unlimited"].routines[0].scratch_nbytes // 2 if memory else None
        made[name] = ag.bundle(
            path, tmp_path / name, target="cortex-m4", entry=name, shapes=shapes,
            freestanding=True, memory=limit,
        )  # fmt: skip
    (routine,), (free,) = made["limited"].routines, made["unlimited"].routines
    (image,), (scores,) = free.inputs, free.outputs
    (tmp_path / "board.ld").write_text(BOARD)
    run(
        "arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16",
        "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-nostdlib", "-I.",
        f"-DNBYTES={image.type.nbytes}", f"-DRESULTS={scores.type.nbytes}", f"-DAT={scores.offset}",
        f"-DSCALE={scale}", models.ROOT / "tests" / "data" / "bundle_memory.c",
        "unlimited/unlimited.o", "limited/limited.o", "-T", "board.ld", "-z", "noexecstack",
        "-o", "board.elf", "-lgcc", cwd=tmp_path,
    )  # fmt: skip
    said = run(
        "qemu-system-arm", "-M", "mps2-an386", "-kernel", "board.elf", "-nographic",
        "-semihosting-config", "enable=on,target=native", cwd=tmp_path, timeout=280,
    )  # fmt: skip

    assert image.offset == 0
    assert routine.scratch_nbytes <= free.scratch_nbytes // 2
    assert said.strip() == "same bits"


def test_the_curve_goes_down_to_the_least_and_writes_nothing() -> None:
    g = network(1)

    def plan(options: ag.Options) -> Program:
        program = planned(g, Target.parse("cortex-m4"), options)
        assert isinstance(program, Program)
        return program

    points = list(curve(ag.Options(), plan, lambda program: 0))
    sizes = [p.scratch_nbytes for p in points]

    assert len(sizes) > 1
    assert sizes == sorted(sizes, reverse=True)
    assert all(p.extra <= 0 for p in points)
    with pytest.raises(ag.errors.MemoryLimitError):
        plan(ag.Options(memory=sizes[-1] - 1))


@pytest.mark.parametrize("flag", ["--memory 1KB", "-o there", "--state"])
def test_the_curve_refuses_what_it_would_ignore(flag: str) -> None:
    done = alpenglow(f"bundle no.onnx --target cortex-m4 --memory-curve {flag}", 2)

    assert "--memory-curve is of one entry point" in done.output
