"""Kernels that OpenCL C has no words for: their instructions are interpreted, and that is told."""

from __future__ import annotations

from typing import Any

import pytest

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.base.store import Store
from alpenglow.machines.api import Artifact
from alpenglow.machines.opencl import emit
from alpenglow.machines.opencl.emit import RefusedWarning
from alpenglow.machines.registry import machine_for
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.report.check import check, planned

TARGETS = [ag.Target.parse(name) for name in ("opencl-cpu", "opencl-gpu")]
WHY = "OpenCL C: a grid of 4 dimensions is not supported"


@pytest.fixture(autouse=True)
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have OpenCL C lack what a softmax needs."""
    render = emit.render_placed

    def refuse(kernel: Any, *rest: Any, **options: Any) -> str:
        if kernel.name.startswith("softmax"):
            raise UnsupportedError(f"{WHY} (kernel {kernel.name})")
        return render(kernel, *rest, **options)

    monkeypatch.setattr(emit, "render_placed", refuse)


def network() -> ag.Graph:
    g = ag.Graph("network")
    x = g.input("x", "f32[8,8]")
    g.output("y", g(Softmax(axis=1), g(MatMul(), x, x)))
    return g


def emitted(target: ag.Target) -> Artifact:
    program = planned(network(), target)
    return machine_for(target).emit(program, target, False, Store(None), lambda *_: None)


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_compiling_warns_of_a_refused_kernel(target: ag.Target) -> None:
    with pytest.warns(RefusedWarning, match=f"softmax is interpreted, since {WHY}"):
        artifact = emitted(target)

    kinds = [i.op.name for i, e in zip(artifact.program.instrs(), artifact.table, strict=True)
             if not e.kernel]  # fmt: skip
    assert kinds == ["softmax"]


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_check_says_why_a_kernel_is_refused(target: ag.Target) -> None:
    refused, *others = check(network(), target)

    assert (refused.operator, refused.how) == ("softmax", "interpreted")
    assert refused.reason.startswith(WHY)
    assert others and all(r.how == "compiled" for r in others)
