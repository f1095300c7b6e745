"""ONNX's node tests through OpenCL: a fixed sample on each runtime, in both ways.

`make conformance-opencl` runs them all and writes docs/conformance-opencl.md.
"""

from __future__ import annotations

from functools import cache

import pytest

from alpenglow.frontends.onnx.node_tests import UNDECIDED, NodeTest, node_tests
from alpenglow.ir.target import Target
from alpenglow.report.conformance import try_node

pytestmark = pytest.mark.opencl

PARTS = 10
"""The number of pytest cases that a sample is cut into."""

EVERY = {"opencl-cpu": 10, "opencl-gpu": 60}
"""One node test of so many runs, and one of `FEWER` times as many unless `--sample` is 1."""

FEWER = 3


@cache
def decided() -> list[NodeTest]:
    return [t for t in node_tests() if t.name not in UNDECIDED]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("runtime", ["intel", "pocl"])
@pytest.mark.parametrize("way", EVERY)
def test_nodes_give_what_onnx_expects(
    way: str,
    runtime: str,
    part: int,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")  # what checks passes and proofs runs on the CPU
    target = Target.parse(f"{way}:{runtime}")
    every = EVERY[way] * (1 if pytestconfig.getoption("--sample") == 1 else FEWER)
    sample = decided()[::every][part::PARTS]
    outcomes = [try_node(test, target) for test in sample]

    assert outcomes
    assert not [o for o in outcomes if o.verdict not in ("equal", "near") or o.interpreted]
