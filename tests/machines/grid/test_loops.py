"""Loop forms with a thread an element: what is proved of vectors is proved of these, too."""

from __future__ import annotations

import pytest

import alpenglow as ag
from alpenglow.compiler.pipeline import run_stages
from alpenglow.machines.proof import admitted
from alpenglow.machines.registry import kernels
from alpenglow.ops.tensor.movement import Pad
from alpenglow.program import Program

GRID = ag.Target.parse("opencl-gpu")


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [((0, 0, 1, 1), (0, 0, 1, 1)), ((0, 1, 2, 3), (0, 0, 3, 2))])
def test_padding_of_several_axes_stays_within_the_operand(
    mode: str, pads: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    g = ag.Graph("padded")
    g.output("y", g(Pad(*pads, mode), g.input("x", "f32[1,4,6,7]")))
    for _, stage in run_stages(g, GRID, ag.Options()):
        program = stage
    assert isinstance(program, Program)

    assert all(admitted(kernel, instr) for instr, kernel in kernels(program, GRID))
