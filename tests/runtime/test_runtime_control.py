"""Executables with loops and branches: saved, opened, pickled, timed, and told of."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.cli.kernels import all_kernels
from alpenglow.ir.target import Target
from alpenglow.measure.flops import flops
from alpenglow.measure.profile import profile
from alpenglow.ops.control.jump import Jump
from alpenglow.report.check import check
from bundle_cases import same_bits
from control_cases import cases
from region_cases import rnn

CASES = cases()
TURN = 2 * 2 * 8 * 8
"""The floating-point operations of a turn of `rnn`."""


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
@pytest.mark.parametrize("name", CASES)
def test_archives_and_pickles_compute_the_same(name: str, target: str, tmp_path: Path) -> None:
    exe = ag.compile(CASES[name].graph, target)
    exe.save(tmp_path / "loop.ago")

    for other in (ag.open(tmp_path / "loop.ago"), pickle.loads(pickle.dumps(exe))):
        for feeds in CASES[name].feeds:
            assert same_bits(other.run(feeds), exe.run(feeds))


def test_weights_of_a_loop_are_not_read_ahead(tmp_path: Path) -> None:
    ag.compile(rnn()).save(tmp_path / "loop.ago")
    with pytest.raises(UnsupportedError, match="rnn has loops or branches"):
        ag.open(tmp_path / "loop.ago", weights="1MB")


@pytest.mark.parametrize("name", CASES)
def test_jumps_are_compiled_and_take_no_time(name: str) -> None:
    graph, feeds = CASES[name].graph, CASES[name].feeds[0]
    exe = ag.compile(graph, threads=1)
    parts = profile(exe, feeds, graph, 2).parts
    jumps = [p for p in parts if p.kind == "jump"]
    listed = {r.operator: r.how for r in check(graph, Target.parse("cpu"))}

    assert all(p.compiled for p in parts) and not any(p.seconds for p in jumps)
    assert jumps and "jump" not in listed
    assert set(listed.values()) == {"compiled"}
    assert "interpreted" not in repr(exe)


def test_without_kernels_jumps_alone_are_not_interpreted() -> None:
    artifact = ag.compile(CASES["nested"].graph, "interpreter").artifact
    instrs = list(artifact.program.instrs())

    assert artifact.interpreted() == [i for i in instrs if not isinstance(i.op, Jump)]


def test_tables_say_where_jumps_lead() -> None:
    program = ag.compile(CASES["branch"].graph).artifact.program
    lines = "\n".join(all_kernels(program, Target.parse("cpu"))).split("# table\n")[1].splitlines()
    jumps = [line.split("jump")[1].strip().split("  ")[0] for line in lines if " jump " in line]

    assert jumps[0].startswith("to 7 if false")
    assert sum(" if " not in jump for jump in jumps) == 3  # past the second region of each branch


def test_the_body_of_a_scan_counts_as_often_as_it_runs() -> None:
    assert flops(rnn(count=5)) == 5 * TURN
    assert flops(rnn(count=0)) == 0


def test_of_a_program_the_turns_count_that_are_laid_out() -> None:
    assert flops(ag.compile(rnn(count=5)).artifact.program) == 2 * TURN


def test_a_loop_that_never_begins_leaves_what_it_carries() -> None:
    g = rnn(count=0)
    h = np.ones((2, 8), np.float32)
    found = ag.compile(g).run({"h0": h, "xs": np.zeros((0, 2, 8), np.float32)})

    assert found["h"].tobytes() == h.tobytes() and found["ys"].shape == (0, 2, 8)
