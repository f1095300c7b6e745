"""Loops to run turn by turn and in a row, and what compares the two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import onnx
import pytest

import alpenglow as ag
from alpenglow.runtime.staged.row import Ran
from alpenglow.runtime.staged.runner import Runner
from alpenglow.runtime.staged.staged import StagedExecutable
from staged_cases import F32, GOES, GOES_ON, I64, ITERATION, Feeds, graph, info, model, node


def compiled(made: onnx.ModelProto, threads: int | None = None) -> StagedExecutable:
    exe = ag.compile(made, threads=threads)
    assert isinstance(exe, StagedExecutable)
    return exe


@contextmanager
def watched(by_turns: bool = False) -> Iterator[list[int]]:
    """Yield how many turns each row has; if `by_turns`, let there be none in a row."""
    found: list[int] = []
    original = Runner.run_row

    def run_row(self: Runner, *given: Any) -> Ran | None:
        ran = None if by_turns else original(self, *given)
        if ran is not None:
            found.append(ran.turns)
        return ran

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runner, "run_row", run_row)
        yield found


def assert_same_bits(expected: Feeds, actual: Feeds) -> None:
    assert list(expected) == list(actual)
    for name, want in expected.items():
        got = actual[name]
        assert (want.dtype, want.shape) == (got.dtype, got.shape), name
        assert got.flags.c_contiguous, name
        assert want.tobytes() == got.tobytes(), name


def check(made: onnx.ModelProto, calls: Sequence[Feeds], threads: int | None = None) -> list[int]:
    """Compare calls with those turn by turn, the second time too; return the rows of the latter."""
    exe, slow = compiled(made, threads), compiled(made, threads)
    with watched(by_turns=True):
        expected = [slow.run(f) for f in calls]
    for want, feeds in zip(expected, calls, strict=True):
        assert_same_bits(want, exe.run(feeds))
    artifacts = len(exe.artifacts)
    with watched() as rows:
        for want, feeds in zip(expected, calls, strict=True):
            assert_same_bits(want, exe.run(feeds))
    assert len(exe.artifacts) == artifacts == len(slow.artifacts)
    return rows


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
