"""Layouts: operators keep the layout of a tensor, or refuse it."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from alpenglow.base.errors import ParseError, TypeRuleError
from alpenglow.ir.graph import Graph, infer
from alpenglow.ir.op import Op
from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.ir.types import TensorType
from alpenglow.machines.vector.operators.layout import Blocked
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Slice, Transpose
from alpenglow.ops.window.conv_transpose import Dilate

X = "f32[2,20/16,6,16]"
ONES = (1, 1, 1, 1)
SIZES = (2, 2, 6, 16)


@pytest.mark.parametrize(
    ("op", "types"),
    [
        (MatMul(), (X, "f32[16,8]")),
        (MatMul(), ("f32[2,2,8,6]", X)),
        (Softmax(2), (X,)),
        (Transpose((0, 1, 3, 2)), (X,)),
        (Gather(0), ("f32[5]", "i64[2,20/16,16]")),
    ],
)
def test_an_operator_takes_row_major_operands_unless_it_says_otherwise(
    op: Op, types: tuple[str, ...]
) -> None:
    with pytest.raises(TypeRuleError, match="expected row-major order"):
        infer(op, [TensorType.parse(t) for t in types])


@pytest.mark.parametrize(
    ("op", "types"),
    [
        (Slice((0, 0, 0, 15), SIZES, (1, 1, 1, -1)), (X,)),
        (Slice((0, 1, 0, 0), (2, 1, 6, 16), ONES), (X,)),
        (Pad((0, 1, 0, 0), (0, -1, 0, 0)), (X,)),
        (Pad((0, 0, 0, 1), (0, 0, 0, -1)), (X,)),
        (Dilate((1, 1, 1, 2)), (X,)),
        (Gather(1), (X, "i64[2]")),
        (Gather(0), (X, "i64[]")),
        (ReduceSum((0,), False), (X,)),
        (ReduceSum((3,)), (X,)),
        (Concat(3), (X, X)),
        (Concat(1), (X, X)),
        (Concat(2), (X, "f32[2,21/16,6,16]")),
        (Concat(2), (X, "f32[2,2,6,16]")),
        (Concat(2), ("f32[2,2,6,16]", X)),
        (Broadcast(SIZES), (X,)),
    ],
)
def test_axes_that_a_layout_holds_stay_as_they_are(op: Op, types: tuple[str, ...]) -> None:
    with pytest.raises(TypeRuleError):
        infer(op, [TensorType.parse(t) for t in types])


@pytest.mark.parametrize(
    ("op", "types", "result"),
    [
        (Slice((1, 0, 5, 0), (1, 2, 3, 16), (1, 1, -2, 1)), (X,), "f32[1,20/16,3,16]"),
        (Pad((1, 0, 2, 0), (0, 0, 0, 0)), (X,), "f32[3,20/16,8,16]"),
        (Dilate((1, 1, 2, 1)), (X,), "f32[2,20/16,11,16]"),
        (Gather(2), (X, "i64[9]"), "f32[2,20/16,9,16]"),
        (Gather(0), (X, "i64[9]"), "f32[9,20/16,6,16]"),
        (ReduceSum((0, 2)), (X,), "f32[1,20/16,1,16]"),
        (Concat(2), (X, X), "f32[2,20/16,12,16]"),
        (Concat(1), ("f32[2,32/16,6,16]", X), "f32[2,52/16,6,16]"),
        (Broadcast((2, 2, 6, 16), Blocked(20)), ("f32[2,20/16,1,16]",), X),
    ],
)
def test_a_layout_is_kept_along_other_axes(op: Op, types: tuple[str, ...], result: str) -> None:
    (actual,) = infer(op, [TensorType.parse(t) for t in types])

    assert TensorType.parse(result) == actual


def test_a_layout_reads_back_as_an_attribute_called_after_it() -> None:
    g = Graph("f")
    n = TensorType.parse("f32[1,N/4,5,4]")
    g.output("y", g(Broadcast(n.shape, n.layout), g.input("x", "f32[1,N/4,1,4]")))
    text = print_graph(g)

    assert ", blocked=N)" in text
    assert text == print_graph(parse_graph(text))
    bound = g.bind({"N": 6})
    assert ", blocked=6)" in print_graph(bound)
    for wrong in ("blocked='N'", "blocked=1.5", "blocked=True", "folded=N"):
        with pytest.raises(ParseError):
            parse_graph(text.replace("blocked=N", wrong))


def test_copies_of_types_are_of_the_same_layout() -> None:
    for text in ("f32[2,3]", X):
        t = TensorType.parse(text)
        for other in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
            assert (t, hash(t), t.is_plain) == (other, hash(other), other.is_plain)


def test_what_is_specified_is_what_a_row_major_tensor_would_hold() -> None:
    plain, blocked = TensorType.parse("f32[2,3]"), TensorType.parse("f32[1,3/2,2,2]")
    x = np.arange(8).reshape(1, 2, 2, 2)

    assert plain.logical == (2, 3) and plain.layout.specified(x) is x
    assert blocked.logical == (1, 3, 2)
    np.testing.assert_array_equal([[[0, 2], [1, 3], [4, 6]]], blocked.layout.specified(x))
