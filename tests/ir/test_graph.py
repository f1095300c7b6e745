"""Graphs: nodes are typed when they are made, and rewriting keeps uses and order right."""

from __future__ import annotations

import numpy as np
import pytest

from alpenglow.base.errors import TypeRuleError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import TensorType
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Neg
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.movement import Concat, Reshape
from alpenglow.ops.tensor.order import TopK
from alpenglow.ops.window.pooling import AveragePool, MaxPool


def test_a_node_with_wrong_operands_cannot_be_made() -> None:
    g = Graph("f")
    x, w = g.input("x", "f32[2,3]"), g.input("w", "f32[4,5]")
    for op, inputs, says in (
        (MatMul(), [x, w], "3"),
        (Add(), [x], "got 1 operands, expected 2"),
        (Add(), [x, x, x], "got 3 operands, expected 2"),
        (Add(), [x, w], "operands are "),
        (Add(), [None, x], "operand x is missing"),
        (Concat(0), [], "at least one operand"),
        (Conv(), [x, x], "rank"),
    ):
        with pytest.raises(TypeRuleError, match=says) as caught:
            g.add(op, inputs, name="here")

        assert caught.value.node == "here"
    assert not g.nodes
    assert not x.users


def test_names_of_inputs_and_outputs_are_given_once() -> None:
    g = Graph("f")
    x = g.input("x", "f32[2]")
    g.output("y", x)
    with pytest.raises(TypeRuleError, match="already has an input called 'x'"):
        g.input("x", "f32[2]")
    with pytest.raises(TypeRuleError, match="already has an output called 'y'"):
        g.output("y", x)


def test_a_hidden_input_leaves_its_name_to_a_callers_input() -> None:
    g = Graph("f")
    key = g.random_key()
    x = g.input("random_key0", "f32[3]")

    assert g.inputs == {"random_key1": key, "random_key0": x}
    assert (key.name, x.name) == ("random_key1", "random_key0")
    assert g.callers_inputs() == {"random_key0": x}
    assert list(g.bind({}).callers_inputs()) == list(g.copy().callers_inputs()) == ["random_key0"]


def test_an_input_has_a_name() -> None:
    with pytest.raises(TypeRuleError, match="graph f: input is ''"):
        Graph("f").input("", "f32[2]")


@pytest.mark.parametrize("kernel", [0, -1])
def test_a_window_holds_something(kernel: int) -> None:
    g = Graph("f")
    x = g.input("x", "f32[1,2,5,5]")
    ones, pads = (1, 1), (3, 3, 3, 3)
    w = g.input("w", TensorType("f32", (3, 2, kernel, 1)))
    with pytest.raises(TypeRuleError, match=f"conv: window is {kernel} wide"):
        g(Conv(ones, pads, ones), x, w)
    for op in (MaxPool, AveragePool):
        with pytest.raises(TypeRuleError, match=f"pool: window is {kernel} wide"):
            g(op((1, kernel), ones, pads, ones), x)


def test_absent_operands_at_the_end_are_dropped() -> None:
    g = Graph("f")
    x, w = g.input("x", "f32[1,2,5]"), g.input("w", "f32[3,2,1]")

    assert len(g.add(Conv(), [x, w, None]).inputs) == 2


def test_uses_are_counted_by_position_and_output() -> None:
    g = Graph("f")
    x = g.input("x", "f32[2]")
    square = g(Mul(), x, x)
    g.output("a", square)
    g.output("b", square)

    assert (g.users(x), g.users(square)) == (2, 2)


def test_a_replaced_value_is_read_by_nobody() -> None:
    g = Graph("f")
    x = g.input("x", "f32[2]")
    old = g(Neg(), x, name="old")
    g.output("y", g(Add(), old, old))
    g.output("z", old)
    new = g(Relu(), x)
    g.replace(old, new)

    assert g.users(old) == 0
    assert g.users(new) == 3
    assert new.name == "old"
    assert g.outputs["z"] is new


def test_a_value_of_another_type_replaces_nothing() -> None:
    g = Graph("f")
    x = g.input("x", "f32[2]")
    with pytest.raises(AssertionError, match="replaced"):
        g.replace(g(Neg(), x), g(Reshape((1, 2)), x))


def test_pruning_drops_the_dead_and_restores_the_order() -> None:
    g = Graph("f")
    x = g.input("x", "f32[2]")
    early = g(Neg(), x)
    g.output("y", g(Relu(), early))
    dead = g(Relu(), g(Neg(), x))
    late = g(Mul(), x, x)
    g.replace(early, late)
    fallen = g.prune()
    order = list(g.nodes)

    assert fallen == 3  # the replaced node, and two that nobody reads
    assert dead.producer not in order
    assert [n.op for n in order] == [Mul(), Relu()]
    assert g.users(x) == 2


def test_a_node_is_kept_for_any_of_its_results() -> None:
    g = Graph("f")
    top = g.add(TopK(0, 2), [g.input("x", "f32[5]")])
    g.output("positions", top.results[1])

    assert g.prune() == 0
    assert list(g.nodes) == [top]


def test_a_copy_shares_nothing_but_arrays() -> None:
    g = Graph("f")
    w = g.constant(np.ones(3, np.float32), "w")
    g.output("y", g(Add(), g.input("x", "f32[3]"), w))
    made = g.copy()
    made.replace(made.outputs["y"], made.inputs["x"])
    made.prune()
    x = np.arange(3, dtype=np.float32)

    np.testing.assert_array_equal(evaluate(g, {"x": x})["y"], x + 1)
    np.testing.assert_array_equal(evaluate(made, {"x": x})["y"], x)
    assert next(g.copy().constants()).array is w.array


def test_binding_extents_infers_every_type_anew() -> None:
    g = Graph("f")
    x = g.input("x", "f32[N,4]")
    n = x.type.shape[0]
    g.output("y", g(Reshape((2, n * 2)), g(Neg(), x, name="negative")))
    bound = g.bind({"N": 6})

    assert [str(v.type) for v in (*bound.inputs.values(), *bound.outputs.values())] == [
        "f32[6,4]",
        "f32[2,12]",
    ]
    assert [n.results[0].name for n in bound.nodes] == ["negative", ""]
    assert str(g.outputs["y"].type) == "f32[2,2*N]"


def test_equal_contents_have_one_digest_and_others_another() -> None:
    def digest(array: np.ndarray) -> str:
        return Graph("f").constant(array).digest

    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    others: list[Value] = [
        Graph("f").constant(b) for b in (a.reshape(3, 2), a + 1, a.astype(np.int32), a[:0])
    ]

    assert digest(a) == digest(np.asfortranarray(a))
    assert len({digest(a), *(v.digest for v in others)}) == 5
