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
from bundle_cases import on_board
from command import alpenglow
from mobile_net import MOBILE_NBYTES, quantised
from rolling_cases import network


def bundled(
    folder: Path, model: Path | ag.Graph, memory: int | None = None, **shapes: tuple[int, ...]
) -> ag.Bundle:
    """Make a bundle of a model, with a limit or without."""
    name = "unlimited" if memory is None else "limited"
    return ag.bundle(
        model, folder / name, target="cortex-m4", entry=name, shapes=shapes or None,
        freestanding=True, memory=memory,
    )  # fmt: skip


def said_by_board(folder: Path, free: ag.Bundle, scale: str) -> str:
    """Run the bundles of a model with a limit and without on the emulated board."""
    (routine,) = free.routines
    (image,), (scores,) = routine.inputs, routine.outputs
    assert image.offset == 0
    known = {
        "NBYTES": image.type.nbytes, "RESULTS": scores.type.nbytes, "AT": scores.offset,
        "SCALE": scale,
    }  # fmt: skip
    return on_board(folder, "bundle_memory.c", known, "unlimited/unlimited.o", "limited/limited.o")


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
    free = bundled(tmp_path, path, **shapes)
    half = free.routines[0].scratch_nbytes // 2
    limited = bundled(tmp_path, path, half, **shapes)

    assert limited.routines[0].scratch_nbytes <= half
    assert said_by_board(tmp_path, free, scale) == "same bits"


@pytest.mark.cross
@pytest.mark.slow
def test_mobilenet_of_224_rows_computes_the_same_bits_in_190_kb_on_a_board(tmp_path: Path) -> None:
    free = bundled(tmp_path, quantised(224))
    limited = bundled(tmp_path, quantised(224), MOBILE_NBYTES)
    (routine,), (other,) = limited.routines, free.routines

    assert other.scratch_nbytes > 8 * MOBILE_NBYTES
    assert routine.scratch_nbytes + limited.needs.stack_nbytes <= MOBILE_NBYTES
    assert said_by_board(tmp_path, free, "(1.0f / 16384)") == "same bits"


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

    assert "--memory-curve: expected one entry point" in done.output
