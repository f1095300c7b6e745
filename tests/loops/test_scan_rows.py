"""Scans of rows as one kernel: what they compute, and which loops become one."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.compiler.options import Options
from alpenglow.compiler.pipeline import run_stages
from alpenglow.evaluate import evaluate
from alpenglow.ir.target import Target
from alpenglow.program import Program
from alpenglow.program.interpret import interpret
from alpenglow.program.text import parse_program, print_program, side_weights
from fuzz import guard
from loops.drawn_scans import DrawnScan


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sampled(20)
def test_drawn_scans_are_kernels_that_agree(seed: int) -> None:
    drawn = DrawnScan(seed)
    expected = evaluate(drawn.graph, drawn.feeds)
    exe = ag.compile(drawn.graph, threads=1)
    actual = guard.run(exe, drawn.feeds)

    assert not any(i.op.name == "jump" for i in exe.artifact.program.instrs())
    for name, y in actual.items():
        np.testing.assert_allclose(y, expected[name], 2e-5, 2e-5, err_msg=name)


@pytest.mark.parametrize("seed", range(6))
def test_each_stage_is_read_as_it_is_printed(seed: int) -> None:
    drawn = DrawnScan(seed)
    expected = evaluate(drawn.graph, drawn.feeds)
    for _, ir in run_stages(drawn.graph.copy(), Target.parse("cpu"), Options()):
        if not isinstance(ir, Program):
            continue
        text = print_program(ir)
        read = parse_program(text, side_weights(ir))

        assert print_program(read) == text
        for name, y in interpret(read, drawn.feeds).items():
            np.testing.assert_allclose(y, expected[name], 2e-5, 2e-5, err_msg=name)
