"""A bundle sums flash and RAM, and is not written if it exceeds a limit of either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
import growing_cases
from alpenglow.base.errors import MemoryLimitError, OptionError
from alpenglow.ops.product.contraction import MatMul

WEIGHTS = 16 * 8 * 4
"""Bytes of the weights."""


def matmul() -> ag.Graph:
    g = ag.Graph("matmul")
    w = g.constant(np.full((16, 8), 0.5, np.float32))
    g.output("y", g(MatMul(), g.input("x", "f32[4,16]"), w))
    return g


def test_flash_and_ram_are_sums_of_the_parts(tmp_path: Path) -> None:
    made = ag.bundle(matmul(), tmp_path / "out", target="cortex-m4")
    [routine] = made.routines
    needs = made.needs

    assert made.flash_nbytes == needs.code_nbytes + needs.data_nbytes + made.constants_nbytes
    assert made.flash_nbytes > WEIGHTS
    assert made.ram_nbytes == (
        routine.mutable_nbytes + routine.scratch_nbytes + needs.stack_nbytes
    )
    assert routine.multiply_adds == 4 * 16 * 8
    assert f"{made.flash_nbytes:,}   code and constants" in str(made)


def test_the_entry_point_that_needs_most_decides_about_ram(tmp_path: Path) -> None:
    def ram(name: str, **options: Any) -> int:
        return ag.bundle(
            open_matmul(), tmp_path / name, entry="f", target="cortex-m4", **options
        ).ram_nbytes

    both = ram("both", variants={"small": {"x": (2, 16)}, "large": {"x": (64, 16)}})

    assert both == ram("large", shapes={"x": (64, 16)}) > ram("small", shapes={"x": (2, 16)})


def open_matmul() -> ag.Graph:
    g = ag.Graph("f")
    w = g.constant(np.full((16, 8), 0.5, np.float32))
    g.output("y", g(MatMul(), g.input("x", "f32[N,16]"), w))
    return g


@pytest.mark.parametrize("limit", ["flash", "ram"])
def test_a_bundle_above_a_limit_is_not_written(tmp_path: Path, limit: str) -> None:
    made = ag.bundle(matmul(), tmp_path / "free", target="cortex-m4")
    needed = getattr(made, f"{limit}_nbytes")

    with pytest.raises(MemoryLimitError, match=rf"is {needed:,} bytes \(.*, expected at") as error:
        ag.bundle(matmul(), tmp_path / "out", target="cortex-m4", **{limit: needed - 1})
    ag.bundle(matmul(), tmp_path / "fits", target="cortex-m4", **{limit: f"{needed}B"})

    assert error.value.least == needed
    assert not (tmp_path / "out").exists() and (tmp_path / "fits").exists()


def test_source_code_counts_constants_only(tmp_path: Path) -> None:
    made = ag.bundle(matmul(), tmp_path / "out", format="c", portable=True)

    assert made.flash_nbytes == made.constants_nbytes
    assert "a C compiler decides the size of the code" in str(made)


def test_a_limit_is_a_number_of_bytes(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="flash is 'much', expected a whole number of bytes"):
        ag.bundle(matmul(), tmp_path / "out", flash="much")


def test_multiply_adds_of_growing_state_are_those_with_most_rows(tmp_path: Path) -> None:
    def work(length: int) -> int:
        made = ag.bundle(
            growing_cases.decoder(), tmp_path / str(length), entry="n",
            shapes={"x": (1, 1, 8)}, state=True, length=length,
        )  # fmt: skip
        return made.routines[0].multiply_adds

    short, middle, long = work(4), work(8), work(12)

    assert long - middle == middle - short > 0
