"""The register tile: how rows are split into tiles, and how many steps its loop body has."""

import pytest

from alpenglow.ir.target import Target
from alpenglow.kernel.build import Builder
from alpenglow.machines.vector.templates.tile import Tile, split_rows


@pytest.mark.parametrize("name", ["x86-64-v4", "x86-64-v3", "aarch64"])
@pytest.mark.parametrize("cols", [1, 2, 3, 4])
def test_a_tile_and_what_it_multiplies_fit_into_the_registers(name: str, cols: int) -> None:
    target = Target.parse(name)
    for extent in range(1, 200):
        tiles = split_rows(extent, cols, target)
        highest = max(rows for _, _, rows in tiles.sizes())

        # A broadcast that multiplies one vector can be read from memory where it is used.
        broadcast = 1 if cols > 1 else 0
        assert highest * cols + cols + broadcast <= target.facts.registers


@pytest.mark.parametrize("extent", [1, 13, 14, 15, 28, 127, 128, 129])
def test_tiles_cover_every_row_once(extent: int) -> None:
    tiles = split_rows(extent, 2, Target.parse("x86-64-v4"))

    assert sum((past - begin) * rows for begin, past, rows in tiles.sizes()) == extent


@pytest.mark.parametrize(
    ("rows", "cols", "steps"), [(1, 1, 4), (4, 4, 4), (28, 1, 1), (14, 2, 1), (6, 4, 1)]
)
def test_the_loop_body_of_a_large_tile_has_one_step(rows: int, cols: int, steps: int) -> None:
    tile = Tile(Builder("f"), rows, cols, 16, Target.parse("cpu"))

    assert tile.unroll == steps
