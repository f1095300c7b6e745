"""Loop forms of gathering, scattering, ordering, resampling and recurrent layers.

Every example of each operator is run by the kernel evaluator, which refuses to read or write
outside of a buffer, and compiled for this machine; both are compared with the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpenglow.evaluate import apply
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Op, Primitive
from alpenglow.ir.types import Array, TensorType, type_of
from alpenglow.kernel.evaluate import evaluate
from alpenglow.ops.elementwise.activation import LeakyRelu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.fused import Fused
from alpenglow.ops.image.resize import Interpolate
from alpenglow.ops.sequence.recurrent_integer import LstmInteger
from alpenglow.ops.tensor.gather import (
    Gather,
    GatherElements,
    GatherNd,
    OneHot,
    ScatterElements,
    ScatterNd,
)
from alpenglow.ops.tensor.movement import Trilu
from alpenglow.ops.tensor.order import ReverseSequence, TopK
from alpenglow.program.instr import Instr, whole
from loop_forms import assert_same, check, drawn, results

OPERATORS: tuple[type[Primitive], ...] = (
    Gather, GatherElements, GatherNd, ScatterElements, ScatterNd, OneHot, TopK, ReverseSequence,
    Trilu, Interpolate, LstmInteger,
)  # fmt: skip

FAR = np.random.default_rng(1).integers(-300, 300, (40, 3))
LARGER: list[tuple[Any, ...]] = [
    (Gather(0), "f32[100,70]", FAR),
    (Gather(1), "f32[9,130,33]", FAR[0]),
    (GatherElements(1), "f32[40,200]", FAR),
    (GatherNd(), "i64[7,8,9]", FAR),
    (ScatterElements(1, "max"), "f32[40,200]", FAR, "f32[40,3]"),
    (ScatterNd("add"), "f32[7,8,9,20]", FAR, "f32[40,20]"),
    (TopK(1, 50), "f32[3,2000]"),
    (TopK(1, 2000, False), "i8[2,2000]"),
    (Trilu(-3), "f32[2,70,75]"),
]


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda c: c.name)
@pytest.mark.sampled(3)
def test_the_examples_agree_with_the_reference(cls: type[Primitive]) -> None:
    for op, *given in cls.examples():
        check(op, *given)


@pytest.mark.parametrize("case", LARGER, ids=lambda c: c[0].name)
@pytest.mark.sampled(6)
def test_larger_tensors_agree_with_the_reference(case: tuple[Any, ...]) -> None:
    check(*case, small=False)


@pytest.mark.parametrize(
    ("op", "indices"),
    [
        (Gather(1), np.array([3, -1, 99, 0])),
        (GatherElements(1), np.tile(np.array([3, -1, 99, 0]), (5, 1))),
        (GatherNd(), np.array([[3, 1], [-1, -99], [0, 0]])),
    ],
)
def test_producers_and_consumers_are_computed_on_the_way(op: Op, indices: Array) -> None:
    t, at = TensorType.parse("f32[5,37]"), type_of(indices)
    body = Graph("body")
    a, b, i = body.input("a", t), body.input("b", t), body.input("i", at)
    body.output("y", body(LeakyRelu(0.5), body(op, body(Add(), a, b), i)))
    arrays = [drawn(t), drawn(t) - 0.5, indices]
    out = whole("y0", body.outputs["y"].type)
    ins = (whole("x0", t), whole("x1", t), whole("x2", at))
    instr = Instr(Fused(), (out,), ins, body)

    assert_same(apply(Fused(), arrays, [body]), results(instr, arrays, 4, evaluate))
