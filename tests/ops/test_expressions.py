"""Expressions: formulas of Python and functions of operators build the graphs that they read as."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.errors import TypeRuleError
from alpenglow.base.extensions import bring_extras
from alpenglow.ir.op import Host, Op
from alpenglow.ir.text import print_graph
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.tensor.movement import Broadcast

Array = NDArray[Any]
F = ag.functions

BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.pow,
]  # fmt: skip


def expression(type_: str = "f32[2,3]", name: str = "x") -> ag.Expression:
    g = ag.Graph("g")
    return ag.Expression(g, g.input(name, type_))


def result(y: ag.Expression, *arrays: Array) -> Array:
    y.graph.output("y", y.value)
    made: Array = ag.compile(y.graph, target="interpreter")(*arrays)
    return made


def drawn(*shape: int) -> Array:
    return np.random.default_rng(0).uniform(0.5, 3, shape).astype(np.float32)


@pytest.mark.parametrize("act", BINARY)
@pytest.mark.parametrize("shape", [(2, 3), (3,), (2, 1), (4, 1, 3), ()])
def test_operators_compute_and_broadcast_as_numpy_does(
    act: Callable[[Any, Any], Any], shape: tuple[int, ...]
) -> None:
    x, other = drawn(2, 3), drawn(*shape)

    np.testing.assert_allclose(result(act(expression(), other), x), act(x, other), 1e-6)
    np.testing.assert_allclose(result(act(other, expression()), x), act(other, x), 1e-6)


@pytest.mark.parametrize("act", BINARY)
def test_numbers_take_the_element_type_of_the_other_operand(act: Callable[[Any, Any], Any]) -> None:
    for dtype, number in (("f32", 2), ("f32", 0.5), ("f64", 3), ("i32", 2)):
        x = drawn(2, 3).astype(ag.TensorType(dtype, ()).numpy) + 1
        for y in (
            act(expression(f"{dtype}[2,3]"), number), act(number, expression(f"{dtype}[2,3]")),
        ):  # fmt: skip
            assert y.type == ag.TensorType(dtype, (2, 3))
        if act is not operator.truediv or dtype != "i32":
            y = act(expression(f"{dtype}[2,3]"), number)
            np.testing.assert_allclose(result(y, x), act(x, x.dtype.type(number)), 1e-5)


@pytest.mark.parametrize("shapes", [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
                                    ((5, 1, 2, 3), (6, 3, 4))])  # fmt: skip
def test_matrix_products_broadcast_their_leading_axes(shapes: Any) -> None:
    x, w = (drawn(*shape) for shape in shapes)
    dims = ",".join(map(str, x.shape))

    np.testing.assert_allclose(result(expression(f"f32[{dims}]") @ w, x), x @ w, 1e-5)
    dims = ",".join(map(str, w.shape))
    np.testing.assert_allclose(result(x @ expression(f"f32[{dims}]"), w), x @ w, 1e-5)


def test_a_formula_is_the_graph_of_its_operators() -> None:
    x = expression("f32[N,3]")
    x.graph.output("y", (F.relu(x + np.ones(3, np.float32)) * 2).value)
    g = ag.Graph("g")
    v = g.input("x", "f32[N,3]")
    shape = v.type.shape
    v = g(Relu(), g(Add(), v, g(Broadcast(shape), g.constant(np.ones(3, np.float32)))))
    g.output("y", g(Mul(), v, g(Broadcast(shape), g.constant(np.float32(2)))))

    assert print_graph(x.graph) == print_graph(g)


def test_negation_and_functions_compute_what_operators_do() -> None:
    x = drawn(2, 3)

    np.testing.assert_array_equal(result(-expression(), x), -x)
    np.testing.assert_array_equal(result(F.transpose(expression(), perm=(1, 0)), x), x.T)
    y = expression()
    np.testing.assert_array_equal(result(F.where(F.less(y, 1.0), 0.0, y), x), np.where(x < 1, 0, x))


def test_several_results_are_a_tuple() -> None:
    values, indices = F.top_k(expression(), k=2, axis=1)

    assert (values.type.shape, indices.type.shape) == ((2, 2), (2, 2))


def test_there_is_a_function_for_each_operator_of_a_graph() -> None:
    bring_extras()
    packages = ("alpenglow.ops.", "alpenglow.extras.")
    ours = {n: c for n, c in Op.registry.items() if c.__module__.startswith(packages)}
    assert {n for n, c in ours.items() if not issubclass(c, Host)} <= set(dir(F))
    for name in dir(F):
        function, cls = getattr(F, name), Op.registry[name]
        assert (function.__name__, function.__doc__) == (name, cls.__doc__)
        assert list(inspect.signature(function).parameters)[: len(cls.operands)] == [*cls.operands]
    assert not hasattr(F, "map_labels")
    assert not hasattr(F, "nothing")


@pytest.mark.parametrize(("wrong", "message"), [
    (lambda x: x + np.ones(3, np.int64), "add: x is f32[2,3] and y is i64[3], expected one"),
    (lambda x: x @ np.ones((3, 2)), "operands are f32[2,3] and f64[3,2], expected one dtype"),
    (lambda x: x + np.ones(2, np.float32), "add: operands are f32[2,3] and f32[2], expected"),
    (lambda x: x @ np.ones(3, np.float32), "mat_mul: y is f32[3], expected rank at least 2"),
    (lambda x: x * 1e39, "mul: the number is 1e+39, expected one that f32 can hold"),
    (lambda x: x * 10**400, "expected one that f32 can hold"),
    (lambda x: F.cast(x, dtype="i32") - 1.5, "the number is 1.5, expected one that i32 can hold"),
    (lambda x: 300 + F.cast(x, dtype="u8"), "the number is 300, expected one that u8 can hold"),
    (lambda x: x + True, "add: an operand is True (bool), expected an Expression"),
    (lambda x: x + "a", "add: an operand is 'a' (str), expected an Expression"),
    (lambda x: x + expression(), "add: operands belong to several graphs"),
    (lambda x: F.relu(1.0), "relu: no operand is an expression"),
    (lambda x: F.softmax(x, axes=1), "softmax: attribute axes is unknown, expected: axis, zeros"),
    (lambda x: F.softmax(x), "softmax: attributes are none, expected: axis, zeros"),
    (bool, "not supported: an expression has no elements before"),
    (lambda x: ag.Expression(x.graph, 1),  # type: ignore[arg-type]
     "expected a Graph and a Value"),
])  # fmt: skip
def test_mistakes_are_named(wrong: Callable[[ag.Expression], Any], message: str) -> None:
    with pytest.raises(TypeRuleError) as caught:
        wrong(expression())

    assert message in str(caught.value)


def test_comparisons_are_those_of_objects() -> None:
    x = expression()

    assert x == x
    assert x != expression()
    with pytest.raises(TypeError):
        x < x  # type: ignore[operator]  # noqa: B015
