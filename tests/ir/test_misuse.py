"""What a caller gets wrong about graphs is an error of ours that names the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, ParseError
from alpenglow.ir.text import parse_graph
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul


class Toy:
    """A graph of a product, its values, and an array that fits the input."""

    def __init__(self) -> None:
        self.g = ag.Graph("g")
        self.x = self.g.input("x", "f32[2,3]")
        self.w = self.g.constant(np.ones((3, 3), np.float32), "w")
        self.y = self.g.output("y", self.g(MatMul(), self.x, self.w))
        self.array = np.ones((2, 3), np.float32)


def by_pass(result: Any, after: str) -> Callable[[Toy], object]:
    given = ag.Pass("mine", lambda ir, target: result, after=after)
    return lambda t: ag.compile(t.g, options=ag.Options(passes=(given,)))


def foreign(t: Toy) -> object:
    other = ag.Graph("other").input("z", "f32[2,3]")
    t.g.output("z", t.g(Add(), t.x, other))
    return ag.compile(t.g)


MISTAKES: dict[str, Callable[[Toy], object]] = {
    "mat_mul: the operator is the class MatMul, expected an instance\n  try: MatMul(…)":
        lambda t: t.g(MatMul, t.x, t.w),
    "the operator is 'Add' (str), expected an instance": lambda t: t.g("Add", t.x, t.x),
    "add: operand y is 1.0 (float), expected a Value": lambda t: t.g(Add(), t.x, 1.0),
    "add: operand y is of type ndarray, expected a Value": lambda t: t.g(Add(), t.x, t.array),
    "add: got 1 operands, expected 2": lambda t: t.g(Add(), t.x),
    "output 'z' is 1.0 (float), expected a Value": lambda t: t.g.output("z", 1.0),
    "the type of input 'z' is of type tuple": lambda t: t.g.input("z", (2, 3)),
    "graph g: input is ": lambda t: t.g.input(3, "f32[2]"),
    "a constant is 'abc' (str), expected an array of numbers": lambda t: t.g.constant("abc"),
    "a constant is of type list": lambda t: t.g.constant([[1, 2], [3]]),
    "a constant is None": lambda t: t.g.constant(None),
    "the shape of a constant is (2, 3), expected f32[2]":
        lambda t: t.g.constant(t.array, type_="f32[2]"),
    "expected a value of this graph": foreign,
    "pass 'mine' returned None, expected a Graph": by_pass(None, "fuse"),
    "pass 'mine' returned a Graph, expected a Program": by_pass(ag.Graph("g"), "plan"),
    "quantize: profile is of type list, expected a Profile":
        lambda t: ag.quantize(t.g, [{"x": t.array}]),
    "quantize: options is of type dict":
        lambda t: ag.quantize(t.g, ag.profile_ranges(t.g, [t.array]), {"bits": 8}),
    "graph is 'm.onnx' (str), expected a Graph": lambda t: ag.quantize("m.onnx", None),
    "samples is of type dict": lambda t: ag.profile_ranges(t.g, {"x": t.array}),
    "samples is None": lambda t: ag.profile_ranges(t.g, None),
    "truncate: names is None, expected one name or more": lambda t: ag.truncate(t.g, None),
    "truncate: names is of type list": lambda t: ag.truncate(t.g, ["y"]),
    "graph is 'a.onnx' (str)": lambda t: ag.truncate("a.onnx", "y"),
    "graph is 'b.onnx' (str)": lambda t: ag.trainable("b.onnx"),
    "trainable: names is None": lambda t: ag.trainable(t.g, None),
    "gradients: 'y' is not a Value\n  try: graph.outputs['y']":
        lambda t: ag.gradients(t.g, "y", [t.x]),
    "a worker is 'cpu', expected a Worker": lambda t: ag.place(t.g, ["cpu"]),
    "target is 5, expected a name": lambda t: ag.compile(t.g, 5),
}  # fmt: skip


@pytest.mark.parametrize("says", MISTAKES)
def test_a_mistake_names_the_argument(says: str) -> None:
    with pytest.raises(AlpenglowError) as caught:
        MISTAKES[says](Toy())
    assert says in str(caught.value)


def test_a_text_without_an_attribute_names_it() -> None:
    text = "graph @g {\n  input %x : f32[2,3]\n  %0 : f32[3,2] = transpose(%x)\n  output y = %0\n}"
    with pytest.raises(ParseError, match=r"line 3: transpose: attribute perm is missing"):
        parse_graph(text)


def test_names_of_numpy_are_element_types() -> None:
    for name in ("float32", "bfloat16", "int8", "uint64", "bool", "float8_e4m3fn", "complex64"):
        t = ag.TensorType.parse(f"{name}[N,3]")
        assert t == ag.TensorType(name, t.shape)
        assert t.numpy.name == name
    g = ag.Graph("g")
    g.output("y", g(Relu(), g.input("x", "float32[2]")))
    assert "f32[2]" in str(g.inputs["x"])
