"""Graphs that were changed: each rule refuses what breaks it, and says at which node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import GraphError
from alpenglow.compiler import every_pass, properties_after
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir.dims import Sym, symbol
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.text import parse_graph
from alpenglow.ir.types import TensorType
from alpenglow.ir.verify import verify_graph
from alpenglow.ops.elementwise.activation import Relu, Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Neg
from alpenglow.ops.fused import Fused
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.random.random import RandomUniform
from alpenglow.ops.tensor.movement import Broadcast, Reshape
from alpenglow.ops.tensor.order import TopK

GRAPHS = [p.name for p in every_pass() if "program" not in properties_after(p.name)]


def net() -> Graph:
    """Return tanh(x) + w, the part of it that is fused, and its largest two."""
    g = Graph("net")
    x = g.input("x", "f32[N,5]")
    w = g.input("w", "f32[N,5]")
    y = g(Add(), g(Tanh(), x, name="t"), w, name="y")
    body = Graph("region")
    p = body.input("p", y.type)
    body.output("q", body(Neg(), p, name="n"))
    z = g.add(Fused(), [y], [body], name="z").output
    top = g.add(TopK(k=2, axis=1), [z], name="top")
    g.output("values", top.results[0])
    g.output("places", top.results[1])
    g.output("c", g(Neg(), g.constant(np.float32([1, 2]), "k"), name="c"))
    g.guards = (_open(symbol("N") - 3, ">="),)
    return g


def _open(x: Sym | int, relation: str) -> tuple[Sym, str]:
    assert isinstance(x, Sym)
    return x, relation


def node(g: Graph, name: str) -> Node:
    return next(n for n in g.nodes if n.results[0].name == name)


def test_what_is_right_passes() -> None:
    verify_graph(net())
    verify_graph(net().bind({"N": 4}))
    verify_graph(net(), extents={"N": 4})
    verify_graph(Graph("nothing"))


# ── each of these breaks a rule ──


def an_input_without_a_name(g: Graph) -> None:
    g.inputs[""] = Value(TensorType("f32", (2,)))


def an_input_that_is_constant(g: Graph) -> None:
    g.inputs["k"] = node(g, "c").inputs[0]


def an_input_that_is_made(g: Graph) -> None:
    g.inputs["t"] = node(g, "t").output


def an_input_by_two_names(g: Graph) -> None:
    g.inputs["again"] = g.inputs["x"]


def a_hidden_input_of_floats(g: Graph) -> None:
    g.input("key", "f32[2]", hidden=True)


def an_operand_from_another_graph(g: Graph) -> None:
    other = Graph("other").input("x", "f32[N,5]")
    node(g, "t").inputs = (other,)


def an_operand_of_a_node_that_was_removed(g: Graph) -> None:
    del g.nodes[node(g, "t")]


def a_cycle(g: Graph) -> None:
    node(g, "t").inputs = (node(g, "y").output,)


def nodes_out_of_order(g: Graph) -> None:
    g.nodes = dict.fromkeys(reversed(g.nodes))


def an_output_that_nothing_makes(g: Graph) -> None:
    g.outputs["v"] = Value(TensorType("f32", (2,)), "v")


def an_output_of_another_graph(g: Graph) -> None:
    other = Graph("other")
    g.outputs["v"] = other(Relu(), other.input("x", "f32[2]"), name="v")


def a_result_of_another_type(g: Graph) -> None:
    node(g, "t").output.type = TensorType("f16", (symbol("N"), 5))


def a_wrong_operator(g: Graph) -> None:
    node(g, "top").op = TopK(k=2, axis=7)


def operators_that_swapped(g: Graph) -> None:
    node(g, "y").op = Neg()


def a_result_with_another_index(g: Graph) -> None:
    node(g, "top").results[1].index = 0


def a_result_that_knows_no_node(g: Graph) -> None:
    node(g, "t").output.producer = None


def a_result_that_is_constant(g: Graph) -> None:
    node(g, "c").output.array = np.zeros(2, np.float32)


def a_constant_of_another_shape(g: Graph) -> None:
    (k,) = g.constants()
    k.array = np.zeros((2, 1), np.float32)


def a_constant_of_another_type(g: Graph) -> None:
    (k,) = g.constants()
    k.array = np.zeros(2, np.float64)


def a_constant_with_open_extents(g: Graph) -> None:
    (k,) = g.constants()
    k.type = TensorType("f32", (symbol("N"),))


def a_constant_that_is_made(g: Graph) -> None:
    (k,) = g.constants()
    k.producer = node(g, "t")


def a_reader_that_is_not_listed(g: Graph) -> None:
    g.inputs["x"].users.clear()


def a_reader_that_does_not_read(g: Graph) -> None:
    g.inputs["x"].users[node(g, "y")] = None


def a_reader_outside_of_the_graph(g: Graph) -> None:
    Graph("other")(Relu(), g.inputs["x"], name="elsewhere")


def an_extent_from_nowhere(g: Graph) -> None:
    g.output("wide", g(Reshape((symbol("M"),)), node(g, "c").output, name="wide"))


def a_guard_from_nowhere(g: Graph) -> None:
    g.guards = (*g.guards, _open(symbol("M") - 1, "=="))


def a_region_that_breaks_a_rule(g: Graph) -> None:
    (body,) = node(g, "z").regions
    body.inputs["p"].users.clear()


def a_region_that_reads_from_around_it(g: Graph) -> None:
    (body,) = node(g, "z").regions
    body.replace(body.inputs["p"], g.inputs["x"])


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (an_input_without_a_name, "the name of an input is empty"),
        (an_input_that_is_constant, "input %k is a constant, expected a value that the caller"),
        (an_input_that_is_made, "input %t is made by %t = tanh(…), expected"),
        (an_input_by_two_names, "input %again is another input, too"),
        (a_hidden_input_of_floats, "input %key is f32[2], expected u32[2]"),
        (
            an_operand_from_another_graph,
            "operand 0, %x, is not defined, "
            "expected an input, constant or result   (node %t = tanh(…))",
        ),
        (
            an_operand_of_a_node_that_was_removed,
            "operand 0, %t, is made by %t = tanh(…), "
            "expected a node of this graph   (node %y = add(…))",
        ),
        (
            a_cycle,
            "operand 0, %y, is read before it is computed, "
            "expected nodes in order   (node %t = tanh(…))",
        ),
        (
            nodes_out_of_order,
            "operand 0, %z, is read before it is computed, "
            "expected nodes in order   (node %top, %? = top_k",
        ),
        (
            an_output_that_nothing_makes,
            "output %v, %v, is not defined, expected an input, constant",
        ),
        (an_output_of_another_graph, "output %v, %v, is made by %v = relu(…), expected a node of"),
        (a_result_of_another_type, "of tanh are f16[N,5], expected f32[N,5]   (node %t = tanh(…))"),
        (a_wrong_operator, "top_k: axis is 7, expected -2 to 1   (node %top"),
        (operators_that_swapped, "neg: got 2 operands, expected 1 (x)   (node %y = neg(…))"),
        (
            a_result_with_another_index,
            "result 1, %?, records result 0 of %top, %? = top_k(…) as its producer",
        ),
        (
            a_result_that_knows_no_node,
            "result 0, %t, records none as its producer, expected this node   (node %t = tanh(…))",
        ),
        (a_result_that_is_constant, "result 0, %c, is an input, constant or other result"),
        (
            a_constant_of_another_shape,
            "operand 0, a constant, holds f32[2, 1], expected f32[2]   (node %c",
        ),
        (
            a_constant_of_another_type,
            "operand 0, a constant, holds f64[2], expected f32[2]   (node %c",
        ),
        (
            a_constant_with_open_extents,
            "operand 0, a constant, is f32[N], expected fixed dimensions",
        ),
        (
            a_constant_that_is_made,
            "operand 0, a constant, is made by %t = tanh(…), expected no producer",
        ),
        (
            a_reader_that_is_not_listed,
            "users of %x lack this reader, expected all nodes that read it   (node %t = tanh",
        ),
        (
            a_reader_that_does_not_read,
            "users of %x hold a node that does not read it, "
            "expected only nodes that read it   (node %y = add(…))",
        ),
        (
            a_reader_outside_of_the_graph,
            "users of %x hold a node that is not in the graph, "
            "expected only nodes that read it   (node %els",
        ),
        (an_extent_from_nowhere, "result 0, %wide, f32[M], names M, expected dimensions of inputs"),
        (a_guard_from_nowhere, "guard M-1 == 0: expected dimensions of inputs, not M"),
        (
            a_region_that_breaks_a_rule,
            "users of %p lack this reader, expected all nodes that read it   (node %n = neg(…))",
        ),
        (a_region_that_reads_from_around_it, "operand 0, %x, is not defined"),
    ],
)  # fmt: skip
def test_a_graph_that_breaks_a_rule_is_refused(broken: Callable[[Graph], None], says: str) -> None:
    g = net()
    broken(g)

    with pytest.raises(GraphError) as caught:
        verify_graph(g)
    assert says in str(caught.value)


def test_extents_are_taken_for_the_numbers_that_they_stand_for() -> None:
    g = Graph("f")
    x, y = g.input("x", "f32[N]"), g.input("y", "f32[M]")
    z = g(Add(), x, x, name="z")
    z.producer.inputs = (x, y)
    y.users, x.users = dict(x.users), dict(x.users)

    verify_graph(g, extents={"N": 3, "M": 3})
    with pytest.raises(GraphError, match=r"operands are f32\[3\] and f32\[4\]"):
        verify_graph(g, extents={"N": 3, "M": 4})
    with pytest.raises(GraphError, match=r"operands are f32\[N\] and f32\[M\]"):
        verify_graph(g)


def test_a_region_may_be_open_in_the_extents_around_it() -> None:
    g, body = Graph("f"), Graph("region")
    p = body.input("p", "f32[1]")
    body.output("q", body(Broadcast((symbol("N"),)), p, name="wide"))
    x, one = g.input("x", "f32[N]"), g.input("one", "f32[1]")
    g.output("y", g(Add(), x, g.add(Fused(), [one], [body]).output))

    verify_graph(g)
    with pytest.raises(GraphError, match="names N, expected dimensions of inputs"):
        verify_graph(body)


def test_a_graph_of_primitives_has_no_composites() -> None:
    g = Graph("f")
    g.output("y", g(Relu(), g.input("x", "f32[3]"), name="y"))
    verify_graph(g)

    with pytest.raises(GraphError, match=r"relu is a composite, expected primitives .* \(node %y"):
        verify_graph(g, {"primitive"})


def test_random_keys_are_hidden_inputs() -> None:
    g = Graph("f")
    g.output("y", g(RandomUniform((3,)), g.random_key()))

    verify_graph(g)


def test_the_text_of_a_graph_is_verified() -> None:
    text = """graph @f {
      input %x : f32[N]
      given M-1 >= 0
      %y : f32[N] = relu(%x)
      output y = %y
    }"""
    with pytest.raises(GraphError, match="guard M-1 >= 0: expected dimensions of inputs, not M"):
        parse_graph(text)
    with pytest.raises(GraphError, match="relu is a composite"):
        parse_graph(text.replace("given M", "given N"), properties={"primitive"})


@pytest.mark.parametrize("stage", GRAPHS)
@pytest.mark.parametrize("check", [False, True])
def test_a_pass_of_a_user_that_breaks_a_rule_is_named(stage: str, check: bool) -> None:
    def turn(g: Graph, target: ag.Target) -> Graph:
        g.nodes = dict.fromkeys(reversed(g.nodes))
        return g

    g = Graph("f")
    x, y = g.input("x", "f32[8,8]"), g.input("y", "f32[8,8]")
    g.output("z", g(Tanh(), g(MatMul(), g(Tanh(), x), y)))
    wrong = ag.Pass("turn", turn, "nodes the other way around", after=stage)

    with pytest.raises(
        GraphError, match=r"after pass turn: operand 0.* is read before it is computed"
    ):
        ag.compile(g, options=ag.Options(passes=(wrong,), check=check))


def test_what_our_passes_make_is_verified_where_passes_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    monkeypatch.setattr(
        "alpenglow.compiler.pipeline.verify_graph", lambda g, held, values: seen.append(set(held))
    )
    g = net().bind({"N": 4})
    target = ag.Target.parse("cpu")
    stages = [p.name for p, ir in run_stages(g, target, ag.Options(check=True)) if
              isinstance(ir, Graph)]  # fmt: skip

    assert len(seen) == 1 + len(stages)
    assert seen[0] == set() and "primitive" in seen[-1]


def test_a_graph_that_is_broken_already_is_told_before_any_pass() -> None:
    g = net().bind({"N": 4})
    a_reader_that_is_not_listed(g)

    with pytest.raises(GraphError, match="after import: users of %x lack this reader"):
        next(run_stages(g, ag.Target.parse("cpu"), ag.Options(check=True)))
