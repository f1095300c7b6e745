"""Constants of huge shapes are not computed when a model is compiled, whatever makes them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import alpenglow as ag
from alpenglow.base import deadline
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.passes.fold import fold
from tiny_models import info, made

MANY = 1 << 36


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return onnx.helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def filled(value: float | int, dtype: str = "float32") -> onnx.TensorProto:
    return numpy_helper.from_array(np.array([value], dtype))


CONSTANTS = {
    "s": np.array([MANY]), "square": np.array([MANY >> 18, 1 << 18]), "first": np.array([0]),
    "end": np.array([1]), "axis": np.array(0), "three": np.array([3.0], np.float32),
    "zero": np.float32(0), "far": np.float32(1 << 30), "one": np.float32(1),
    "indices": np.array([1, 2]), "depth": np.int64(1 << 33), "off_on": np.float32([0, 1]),
    "w": np.ones((1 << 18, 2), np.float32),
}  # fmt: skip

MAKERS = {
    "ConstantOfShape": [node("ConstantOfShape", "s", "c", value=filled(2))],
    "Expand": [node("Expand", "three s", "c")],
    "Tile": [node("Tile", "three s", "c")],
    "Range": [node("Range", "zero far one", "c")],
    "OneHot": [node("OneHot", "indices depth off_on", "h"), node("Flatten", "h", "c")],
    "Trilu": [node("ConstantOfShape", "square", "o", value=filled(2)), node("Trilu", "o", "c")],
    "MatMul": [node("ConstantOfShape", "square", "o", value=filled(2)), node("MatMul", "o w", "c")],
    "CumSum": [node("Expand", "three s", "o"), node("CumSum", "o axis", "c")],
}
READERS = {
    "nothing": [],
    "unary": [node("Exp", "c", "e")],
    "binary": [node("Mul", "c c", "e")],
    "reduced": [node("ReduceMean", "c", "e", keepdims=0)],
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_huge_is_not_folded(maker: str, reader: str) -> None:
    nodes = [*MAKERS[maker], *READERS[reader]]
    last = nodes[-1].output[0]
    nodes += [node("Add", f"{last} x", "y")]
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in CONSTANTS.items()]
    g = ag.load(made(nodes, [info("x", (1,))], constants))
    assert isinstance(g, ag.Graph)

    with deadline.limited(20.0):
        g = fold(g.copy())

    assert sum(v.type.nbytes for v in g.constants()) < 1 << 24


def test_what_is_unfolded_still_computes() -> None:
    nodes = [*MAKERS["ConstantOfShape"], node("Exp", "c", "e"), node("Slice", "e first end", "d"),
             node("Add", "d x", "y")]  # fmt: skip
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in CONSTANTS.items()]
    model = made(nodes, [info("x", (1,))], constants)
    actual = ag.compile(model)(np.ones(1, np.float32))
    np.testing.assert_allclose(actual, np.exp(np.float32(2)) + 1, rtol=1e-6)


def test_a_constant_of_no_elements_may_have_a_huge_extent() -> None:
    nodes = [node("ConstantOfShape", "shape", "c", value=filled(7, "int64")),
             node("Reshape", "c none", "empty", allowzero=1), node("Shape", "x", "s"),
             node("Concat", "s empty", "same", axis=0), node("Reshape", "x same", "y")]  # fmt: skip
    constants = [numpy_helper.from_array(np.array(a), n)
                 for n, a in {"shape": [MANY, 0], "none": [0]}.items()]  # fmt: skip
    g = ag.load(made(nodes, [info("x", (3,))], constants))
    assert isinstance(g, ag.Graph)
    assert ag.compile(g)(np.ones(3, np.float32)).tolist() == [1, 1, 1]


def test_broadcasts_of_weights_are_folded() -> None:
    g = ag.Graph("g")
    w = g.constant(np.ones((1, 1 << 23), np.float32))
    wide = g.constant(np.ones((3, 1 << 23), np.float32))
    for v in (w, wide):
        g.output(f"y{v.type.extents[0]}", g(Exp(), v))
    assert not fold(g).nodes
