"""Loop forms of reductions, scans, softmax, layer normalisation and their neighbours.

Every example of each operator is compiled for this machine and compared with its reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpenglow.evaluate import apply
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import TensorType
from alpenglow.ops.elementwise.activation import LeakyRelu
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.fused import Fused
from alpenglow.ops.reduction.layer_norm import LayerNorm
from alpenglow.ops.reduction.reduction import (
    ArgMax,
    ArgMin,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
)
from alpenglow.ops.reduction.scan import CumProd, CumSum, LinearScan
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.window.conv_transpose import Dilate
from alpenglow.ops.window.pooling import MaxPoolIndex
from alpenglow.program.instr import Instr, whole
from loop_forms import HOST, assert_same, check, drawn, results, run

OPERATORS = (
    ReduceSum, ReduceMean, ReduceProd, ReduceMax, ReduceMin, ArgMax, ArgMin, CumSum, CumProd,
    LinearScan, Softmax, LayerNorm, MaxPoolIndex, Dilate,
)  # fmt: skip
LARGER: list[tuple[Any, ...]] = [
    (ReduceSum((1,)), "f32[3,5000]"),
    (ReduceMean((2, 3)), "f32[2,40,7,7]"),
    (ReduceMean((1,)), "i8[2,300]"),
    (ReduceMax((0,)), "f32[130,70]"),
    (ReduceSum((0, 2), False), "f32[9,40,33]"),
    (ReduceMin((1,)), np.array([[1, np.nan] + [3] * 40, [2] * 42], np.float32)),
    (ArgMax(-1), np.array([[1, np.nan, 3, np.nan], [4, 4, 2, 2]], np.float32)),
    (ArgMin(-1, last=True), np.array([[1, np.nan, 3, np.nan], [4, 4, 2, 2]], np.float32)),
    (CumSum(1, True, True), "f16[3,40,21]"),
    (LinearScan(1, False, True), "f16[3,40,21]", "f16[3,40,21]"),
    (Softmax(-1), "f32[2,5000]"),
    (Softmax(-1), "f32[70,197]"),
    (Softmax(1), "f32[2,9,70]"),
    (Softmax(-1), np.array([[-np.inf, 1, 2], [1e30, 2, -1e30]], np.float32)),
    (LayerNorm(-1), "f32[30,768]", "f32[768]", "f32[768]"),
    (LayerNorm(1), "f32[3,7,9]"),
]


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda c: c.name)
@pytest.mark.sampled(6)
def test_the_examples_agree_with_the_reference(cls: type[Op]) -> None:
    for op, *given in cls.examples():
        check(op, *given, tolerance=1e-4)


@pytest.mark.parametrize("case", LARGER, ids=lambda c: f"{c[0].name}-{c[1]}"[:40])
def test_larger_tensors_agree_with_the_reference(case: tuple[Any, ...]) -> None:
    check(*case, small=False, tolerance=1e-4)


@pytest.mark.parametrize("op", [ReduceMean((1,)), Softmax(1), LayerNorm(1), CumSum(1), ArgMax(1)])
def test_producers_and_consumers_are_computed_on_the_way(op: Op) -> None:
    t = TensorType.parse("f32[5,37]")
    body = Graph("body")
    a, b = body.input("a", t), body.input("b", t)
    middle = body(op, body(Add(), a, b))
    last: Value = middle if middle.type.dtype == "i64" else body(LeakyRelu(), middle)
    body.output("y", body(Mul(), last, last))
    arrays = [drawn(t), drawn(t) - 0.5]
    out = whole("y0", body.outputs["y"].type)
    instr = Instr(Fused(), (out,), (whole("x0", t), whole("x1", t)), body)
    actual = results(instr, arrays, HOST.facts.lanes, run)

    assert_same(apply(Fused(), arrays, [body]), actual)
