"""Axes that are dropped or merged before a form runs: its kernel, and the results of views.

A reference is the interpreter, which knows nothing of merged axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from agreement import disagreements
from alpenglow.ir.graph import Graph, Value, infer
from alpenglow.ir.op import Op
from alpenglow.ir.target import Facts
from alpenglow.ir.types import TensorType
from alpenglow.kernel.text import print_kernel
from alpenglow.loops import build
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Mul
from alpenglow.ops.reduction.layer_norm import LayerNorm, RMSNorm
from alpenglow.ops.reduction.reduction import (
    ArgMax,
    ArgMin,
    ReduceMax,
    ReduceMean,
    ReduceProd,
    ReduceSum,
)
from alpenglow.ops.reduction.scan import CumProd, CumSum, LinearScan
from alpenglow.ops.reduction.softmax import Hardmax, Softmax
from alpenglow.ops.tensor.gather import ScatterNd
from alpenglow.ops.tensor.movement import Broadcast, Slice, Transpose
from alpenglow.ops.tensor.order import TopK
from alpenglow.program.instr import Instr, whole

SAME: list[tuple[Op, Sequence[str], Op, Sequence[str]]] = [
    (ReduceSum((1, 2)), ["f32[4,30,2]"], ReduceSum((1,)), ["f32[4,60]"]),
    (ReduceMax((0, 1), False), ["i8[300,4]"], ReduceMax((0,), False), ["i8[1200]"]),
    (ReduceMax((1,)), ["i32[26,90,1]"], ReduceMax((1,)), ["i32[26,90]"]),
    (ReduceProd((1,), False), ["f32[2,6,50,1]"], ReduceProd((1,), False), ["f32[2,6,50]"]),
    (ReduceMean((2, 3, 4)), ["f32[20,1,9,24,1]"], ReduceMean((1,)), ["f32[20,216]"]),
    (ReduceSum((0, 2)), ["f32[3,1,4,5]"], ReduceSum((0,)), ["f32[12,5]"]),
    (ReduceSum((1,)), ["f32[3,1,5]"], ReduceSum(()), ["f32[15]"]),
    (ReduceSum((0, 2)), ["f32[3,4,5]"], ReduceSum((0, 2), False), ["f32[3,4,5]"]),
    (ArgMax(1), ["f32[3,90,1]"], ArgMax(1, False), ["f32[3,90]"]),
    (ArgMin(0), ["f32[9,4,5]"], ArgMin(0, False), ["f32[9,20]"]),
    (Softmax(2), ["f32[4,5,36,1]"], Softmax(1), ["f32[20,36]"]),
    (Softmax(1), ["f32[4,5,3,2]"], Softmax(1), ["f32[4,5,6]"]),
    (CumSum(0), ["f32[12,10,8,1]"], CumSum(0), ["f32[12,80]"]),
    (CumSum(1), ["i32[1,16,12,2]"], CumSum(0), ["i32[16,24]"]),
    (LinearScan(0), ["f32[6,5,2]"] * 2, LinearScan(0), ["f32[6,10]"] * 2),
    (TopK(1, 3), ["f32[4,9,5,2]"], TopK(1, 3), ["f32[4,9,10]"]),
    (LayerNorm(1), ["f32[7,6,5,1]"], LayerNorm(1), ["f32[7,30]"]),
    (LayerNorm(2), ["f32[7,6,5,2]", "f32[5,2]"], LayerNorm(1), ["f32[42,10]", "f32[10]"]),
    (RMSNorm(2), ["f32[7,6,1]"], RMSNorm(1), ["f32[42,1]"]),
    (ScatterNd("max"), ["i64[60,8,5,1]", "i64[9,1]", "i64[9,8,5,1]"],
     ScatterNd("max"), ["i64[60,40]", "i64[9,1]", "i64[9,40]"]),
    (ScatterNd(), ["f32[6,7,5,2]", "i64[3,4,2]", "f32[3,4,5,2]"],
     ScatterNd(), ["f32[6,7,10]", "i64[12,2]", "f32[12,10]"]),
]  # fmt: skip


def kernel(op: Op, types: Sequence[TensorType]) -> str:
    outs = tuple(whole(f"y{i}", t) for i, t in enumerate(infer(op, list(types))))
    ins = tuple(whole(f"x{i}", t) for i, t in enumerate(types))
    return print_kernel(build("kernel", Instr(op, outs, ins), Facts(lanes=8)).done())


@pytest.mark.parametrize("case", SAME, ids=lambda c: f"{c[0]}-{c[1][0]}"[:60])
def test_a_kernel_is_the_kernel_of_merged_axes(case: tuple[Any, ...]) -> None:
    op, types, merged, few = case

    assert kernel(op, [*map(TensorType.parse, types)]) == kernel(
        merged, [*map(TensorType.parse, few)]
    )


OPERATORS = (
    ReduceSum((1, 2)), ReduceSum((0, 2), False), ReduceMax((0, 1, 2)), ReduceMean((1,)),
    ReduceProd((2,), False), ArgMax(1), ArgMin(2, False, True), ArgMax(0), Softmax(1), Softmax(-1),
    CumSum(1), CumProd(0, True, True), TopK(1, 1), LayerNorm(1), LayerNorm(2), Hardmax(1),
)  # fmt: skip


def views(g: Graph, shape: tuple[int, ...]) -> list[Value]:
    """Return values of one shape that are views with other steps."""
    text = ",".join(map(str, shape))
    made = [g.input("x", f"f32[{text}]")]
    for n, perm in enumerate([(0, 2, 1), (2, 1, 0), (1, 0, 2), (2, 0, 1)]):
        turned = ",".join(str(shape[perm.index(a)]) for a in range(3))
        made.append(g(Transpose(perm), g.input(f"t{n}", f"f32[{turned}]")))
    for axis in range(3):
        wide = [d * 2 + 1 if a == axis else d for a, d in enumerate(shape)]
        starts, steps = ([int(a == axis) * k + m for a in range(3)] for k, m in ((1, 0), (1, 1)))
        long = g.input(f"s{axis}", f"f32[{','.join(map(str, wide))}]")
        made.append(g(Slice(tuple(starts), shape, tuple(steps)), long))
        thin = [1 if a == axis else d for a, d in enumerate(shape)]
        flat = g.input(f"b{axis}", f"f32[{','.join(map(str, thin))}]")
        made.append(g(Broadcast(shape), flat))
    return made


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 9, 2), (2, 33, 1), (5, 2, 17)], ids=str)
@pytest.mark.parametrize("op", OPERATORS, ids=str)
@pytest.mark.sampled(4)
def test_results_of_views(op: Op, shape: tuple[int, ...]) -> None:
    g = Graph("f")
    for i, x in enumerate(views(g, shape)):
        if isinstance(op, LayerNorm) and isinstance(x.producer and x.producer.op, Broadcast):
            continue  # rows of equal elements: rounding errors divided by next to nothing
        for n, y in enumerate(g.add(op, [x]).results):
            g.output(f"y{i}_{n}", y)
        if not isinstance(op, TopK):
            fused = g(op, g(Mul(), g(Abs(), x), x))
            g.output(f"z{i}", g(Add(), fused, fused))

    assert disagreements(g) == []


OPEN = (
    ReduceSum((1, 2)), ReduceMax((0, 2), False), ReduceMean((1,)), ArgMax(1),
    ArgMin(2, False, True), Softmax(1), CumSum(0), LayerNorm(1), Hardmax(2), TopK(1, 1),
)  # fmt: skip


@pytest.mark.parametrize("op", OPEN, ids=str)
@pytest.mark.sampled(4)
def test_a_dynamic_extent_of_1_may_be_another_later(op: Op) -> None:
    g = Graph("f")
    for i, y in enumerate(g.add(op, [g.input("x", "f32[A,B,C]")]).results):
        g.output(f"y{i}", y)
    compiled, reference = ag.compile(g), ag.compile(g, "interpreter")
    random = np.random.default_rng(0)
    for shape in ((1, 1, 1), (4, 1, 9), (1, 9, 4), (3, 70, 1), (1, 600, 1), (5, 6, 70), (0, 3, 2)):
        x = random.standard_normal(shape, dtype=np.float32)
        for y, expected in zip(compiled.run({"x": x}).values(), reference.run({"x": x}).values(),
                               strict=True):  # fmt: skip
            np.testing.assert_allclose(y, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("rest", [(), (1,), (3,), (8,), (100,), (4, 33), (300, 1)], ids=str)
@pytest.mark.sampled(8)
def test_scattered_slices_are_combined_in_order(reduction: str, rest: tuple[int, ...]) -> None:
    """Indices repeat, and each slice counts."""
    random = np.random.default_rng(0)
    data = random.integers(1, 5, (7, *rest)).astype(np.float32)
    updates = random.integers(1, 5, (40, *rest)).astype(np.float32)
    indices = random.integers(-7, 7, (40, 1))
    expected = data.copy()
    ufunc = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
    for (i,), update in zip(indices, updates, strict=True):
        expected[i] = update if reduction == "none" else ufunc[reduction](expected[i], update)
    for text in (",".join(map(str, (7, *rest))), ",".join(["N", *map(str, rest)])):
        g = Graph("f")
        x, i = g.input("x", f"f32[{text}]"), g.input("i", "i64[M,1]")
        u = g.input("u", f"f32[{','.join(['M', *map(str, rest)])}]")
        g.output("y", g(ScatterNd(reduction), x, i, u))
        y = ag.compile(g)(data, indices, updates)

        np.testing.assert_array_equal(y, expected)
