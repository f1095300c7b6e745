"""Long kernels that can be stopped do what they did, and stay within bounds when they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.ir.op import Op
from alpenglow.kernel import stoppable as limits
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import Load
from alpenglow.kernel.parse import parse_kernel
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.stoppable import STOP, stoppable
from alpenglow.kernel.text import print_kernel
from alpenglow.machines.proof import proved
from alpenglow.machines.registry import kernels
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Transpose
from alpenglow.ops.tensor.order import TopK
from kernel_cases import Case, statements

Array = NDArray[Any]
STEPS = {"tiny": (1, 4, 1, 32), "small": (16, 64, 4, 64)}
"""Statements of a long kernel, of a piece, beside a look, and how many pieces are many."""

pytestmark = pytest.mark.usefixtures("no_cache")


@pytest.fixture(params=STEPS)
def small_limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Take kernels for long that are not."""
    lower(monkeypatch, request.param)
    return str(request.param)


def lower(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    names = ("LONG", "PIECE", "LEAST", "MOST_PIECES")
    for name, value in zip(names, STEPS[how], strict=True):
        monkeypatch.setattr(limits, name, value)


@pytest.mark.parametrize("case", list(statements()), ids=lambda case: case.kernel.name)
def test_a_kernel_that_is_not_stopped_does_the_same(case: Case, small_limits: str) -> None:
    kernel = stoppable(case.kernel)
    expected = evaluated(case.kernel, case)
    actual = evaluated(kernel, case)

    for name, array in expected.items():
        assert array.tobytes() == actual[name].tobytes(), name
    text = print_kernel(kernel)
    assert print_kernel(parse_kernel(text)) == text


def test_the_cases_are_cut(small_limits: str) -> None:
    cut = [case.kernel.name for case in statements() if stoppable(case.kernel) is not case.kernel]

    assert {"sums", "collatz"} <= set(cut)


@pytest.mark.parametrize("case", list(statements()), ids=lambda case: case.kernel.name)
def test_a_kernel_that_is_stopped_stays_within_bounds(case: Case, small_limits: str) -> None:
    """The evaluator raises an error where an address is outside of its buffer."""
    evaluated(stoppable(case.kernel), case, stop=1)


def evaluated(kernel: Kernel, case: Case, stop: int = 0) -> dict[str, Array]:
    arrays = {name: a.copy() for name, a in case.operands.items()}
    evaluate(kernel, {**arrays, STOP.name: np.array([stop])}, case.extents)
    return arrays


def test_a_loop_of_very_many_turns_runs_out_soon() -> None:
    """Stopped, 2^40 turns are a few hundred looks at the word: pieces are cut into pieces."""
    b = Builder("sum")
    x, y = b.buffer("x", "f32"), b.buffer("y", "f32", True)
    with b.loop(1 << 40) as i:
        b.store(y, 0, Load(y, i // (1 << 40)) + Load(x, i % 4))
    kernel = stoppable(b.done())
    arrays = {"x": np.ones(4, np.float32), "y": np.zeros(1, np.float32), "stop": np.array([1])}
    evaluate(kernel, arrays)

    assert arrays["y"][0] == 0


def test_what_a_loop_leaves_behind_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A register that a loop sets first, and that is read after it, must be set."""
    monkeypatch.setattr(limits, "LONG", 1)
    monkeypatch.setattr(limits, "PIECE", 4)
    monkeypatch.setattr(limits, "LEAST", 1)
    b = Builder("last")
    x, y = b.buffer("x", "f32"), b.buffer("y", "f32", True)
    with b.loop(64) as i:
        last = b.var(Load(x, i))
        b.store(y, i, last)
    b.store(y, 0, last)
    kernel = b.done()

    assert print_kernel(stoppable(kernel)).count("stop[0]") == 0


OPS: dict[str, tuple[Op, list[str]]] = {
    "product": (MatMul(), ["f32[70,130]", "f32[130,50]"]),
    "conv": (Conv(), ["f32[2,5,9,9]", "f32[6,5,3,3]"]),
    "sum": (ReduceSum((1,)), ["f32[7,1000]"]),
    "exp": (Exp(), ["f32[37,300]"]),
    "softmax": (Softmax(1), ["f32[9,130]"]),
    "largest": (TopK(1, 5), ["f32[6,90]"]),
    "turned": (Transpose((1, 0)), ["f32[70,33]"]),
}


def graph(op: Op, types: list[str]) -> ag.Graph:
    g = ag.Graph("one")
    node = g.add(op, [g.input(f"x{i}", t) for i, t in enumerate(types)])
    for i, value in enumerate(node.results):
        g.output(f"y{i}", value)
    return g


def numbers(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@pytest.mark.parametrize("how", STEPS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", OPS)
@pytest.mark.sampled(6)
def test_compiled_kernels_have_the_same_bits(
    name: str, threads: int, how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    op, types = OPS[name]
    expected = ag.compile(graph(op, types))
    lower(monkeypatch, how)
    exe = ag.compile(graph(op, types), threads=threads)
    x = {n: numbers(*t.extents) for n, t in exe.inputs.items()}
    exe.save(tmp_path / "one.ago")

    assert all(e.stops for e in exe.artifact.table if e.kernel)
    for run in (exe, ag.open(tmp_path / "one.ago", threads)):
        for y, array in expected.run(x).items():
            np.testing.assert_array_equal(run.run(x)[y], array)


@pytest.mark.parametrize("how", STEPS)
@pytest.mark.parametrize("name", ["product", "sum", "exp", "softmax", "turned"])
@pytest.mark.sampled(4)
def test_kernels_of_open_extents_have_the_same_bits(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    op, types = OPS[name]
    opened = ["[n,".join([t.partition("[")[0], t.partition(",")[2]]) if i == 0 else t
              for i, t in enumerate(types)]  # fmt: skip
    expected = ag.compile(graph(op, opened), threads=1)
    shape = {n: t.shape[1:] for n, t in expected.inputs.items()}
    lower(monkeypatch, how)
    exe = ag.compile(graph(op, opened), threads=2)
    for rows in (40, 41, 130):
        x = {n: numbers(rows if n == "x0" else types_of(types[1]), *rest)
             for n, rest in shape.items()}  # fmt: skip
        for y, array in expected.run(x).items():
            np.testing.assert_array_equal(exe.run(x)[y], array)

    assert any(e.stops for a in exe.artifacts for e in a.table)


def types_of(text: str) -> int:
    """Return the first extent of a type."""
    return int(text.partition("[")[2].partition(",")[0])


@pytest.mark.parametrize("name", OPS)
@pytest.mark.sampled(7)
def test_addresses_of_cut_kernels_are_proved(name: str, small_limits: str) -> None:
    op, types = OPS[name]
    exe = ag.compile(graph(op, types))
    for instr, kernel in kernels(exe.artifact.program, exe.target):
        cut = stoppable(kernel)
        before = [a for a in proved(kernel, instr) if not a.proved]
        lost = [a for a in proved(cut, instr) if not a.proved]

        assert cut is not kernel and len(lost) == len(before)


def test_kernels_that_are_not_long_are_left_as_they_are() -> None:
    made = {name: ag.compile(graph(*of)) for name, of in OPS.items()}
    stops = {name: [e.stops for e in exe.artifact.table] for name, exe in made.items()}

    assert not any(map(any, stops.values()))
