"""Loops that the runtime turns round, and what holds them to ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

import alpenglow as ag
from alpenglow.runtime.staged.staged import StagedExecutable
from staged_cases import F32, GOES, GOES_ON, I64, ITERATION, Feeds, graph, info, model, node


def compiled(made: onnx.ModelProto, threads: int | None = None) -> StagedExecutable:
    exe = ag.compile(made, threads=threads)
    assert isinstance(exe, StagedExecutable)
    return exe


def check(made: onnx.ModelProto, calls: Sequence[Feeds], threads: int | None = None) -> None:
    """Hold calls to ONNX Runtime; the second time they compile nothing and give the same bits."""
    exe = compiled(made, threads)
    peer = onnxruntime.InferenceSession(made.SerializeToString())
    found = [exe.run(f) for f in calls]
    for got, feeds in zip(found, calls, strict=True):
        for want, array in zip(peer.run(None, feeds), got.values(), strict=True):
            assert (want.dtype, want.ndim, want.size) == (array.dtype, array.ndim, array.size)
            assert array.flags.c_contiguous
            if want.size:  # ONNX Runtime takes open extents of no rows to be 0
                np.testing.assert_allclose(array, want, rtol=1e-4, atol=1e-5)
    artifacts = len(exe.artifacts)
    for want, feeds in zip(found, calls, strict=True):
        again = exe.run(feeds)
        assert all(again[n].tobytes() == a.tobytes() for n, a in want.items())
    assert len(exe.artifacts) == artifacts


def looping(
    nodes: Sequence[Any],
    carried: Sequence[Any],
    results: Sequence[Any],
    constants: dict[str, Any] | None = None,
    collected: int = 0,
    inputs: Sequence[Any] = (),
    goes: Any = GOES_ON,
    trips: str = "n",
) -> onnx.ModelProto:
    """Return a Loop over inputs a0, a1, …; outputs are y0, y1, … and what is collected, s0, …."""
    body = graph([*nodes, *([goes] if goes else [])], [*ITERATION, *carried], [GOES, *results])
    starts = [f"a{i}" for i in range(len(carried))]
    outs = [f"y{i}" for i in range(len(carried))] + [f"s{i}" for i in range(collected)]
    codes = [c.type.tensor_type.elem_type for c in carried]
    shapes = [_ranks(c) for c in carried]
    given = [info(n, s, c) for n, s, c in zip(starts, shapes, codes, strict=True)]
    types = [info(n, None, r.type.tensor_type.elem_type if not isinstance(r, str) else F32)
             for n, r in zip(outs, results, strict=True)]  # fmt: skip
    trip = [info("n", (), I64)] if trips else []
    return model([node("Loop", [trips, "", *starts], outs, body=body)],
                 [*trip, *given, *inputs], types, constants)  # fmt: skip


def _ranks(value: Any) -> list[str] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [f"{value.name}{i}" for i in range(len(tensor.shape.dim))]
