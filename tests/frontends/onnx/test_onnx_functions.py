"""Functions, a model's own and ONNX's, are inlined; what comes out means what went in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from alpenglow.base.errors import ModelError, TypeRuleError, UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load
from alpenglow.frontends.onnx.functions import functions
from alpenglow.frontends.onnx.functions.functions import inlined, opset_of
from onnx_node import single

X = np.array([[-2, 0.5, 3], [1, -1, 0]], np.float32)
HEAD = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>\n'
GRAPH = "main (float[2,3] x) => (float[2,3] y) { y = local.f (x) }\n"
TWICE = """<domain: "local", opset_import: ["" : 21, "local" : 1]>
twice <alpha: float = 0.5> (a) => (b) {
    t = LeakyRelu <alpha: float = @alpha> (a)
    two = Constant <value = float {2}> ()
    b = Mul (t, two)
}
"""


def function(signature: str, body: str, opset: int = 21) -> str:
    imports = f'<domain: "local", opset_import: ["" : {opset}, "local" : 1]>'
    return f"{imports}\n{signature} {{ {body} }}\n"


def model(*parts: str) -> onnx.ModelProto:
    found: onnx.ModelProto = parser.parse_model(HEAD + "".join(parts))
    return found


def everything(domain: str, name: str, opset: int) -> bool:
    return True


def all_but(*names: str) -> Callable[[str, str, int], bool]:
    return lambda domain, name, opset: name not in names


def kinds(proto: onnx.ModelProto) -> list[str]:
    return [n.op_type for n in proto.graph.node]


def assert_same(proto: onnx.ModelProto) -> None:
    """Assert that our interpreter agrees with ONNX's on a model of `x`."""
    expected = ReferenceEvaluator(proto).run(None, {"x": X})
    actual = list(evaluate(load(proto), {"x": X}).values())

    for e, a in zip(expected, actual, strict=True):
        np.testing.assert_allclose(a, e, 1e-6)


def test_a_model_without_functions_is_returned_as_it_is() -> None:
    proto = single("Relu", [X], 21)

    assert inlined(proto, everything) is proto


def test_functions_of_functions_take_attributes_and_defaults() -> None:
    proto = model(
        "main (float[2,3] x) => (float[2,3] y, float[2,3] z)"
        "{ y = local.twice <alpha: float = 3.0> (x)  z = local.again (x) }\n",
        TWICE,
        function("again (a) => (c)", "b = local.twice (a)  c = local.twice (b)"),
    )

    y, z = evaluate(load(proto), {"x": X}).values()

    assert not inlined(proto, everything).functions
    np.testing.assert_allclose(y, np.where(X < 0, 6 * X, 2 * X))
    np.testing.assert_allclose(z, np.where(X < 0, X, 4 * X))


def test_a_result_may_be_an_operand() -> None:
    proto = model(
        "main (float[2,3] x) => (float[2,3] y, float[2,3] z) { y, z = local.f (x) }\n",
        function("f (a) => (a, b)", "b = Neg (a)"),
    )

    assert_same(proto)


def test_operands_and_results_that_a_call_leaves_out_are_absent() -> None:
    proto = model(
        "main (float[2,3] x) => (float[2,3] y) { y = local.f (x) }\n",
        function("f (a, low, high) => (b, c)", "b = Clip (a, low, high)  c = Neg (a)"),
    )

    new = inlined(proto, everything)

    assert [list(n.input) for n in new.graph.node] == [["x", "", ""], ["x"]]
    assert len({o for n in new.graph.node for o in n.output}) == 2


def test_names_lead_back_to_the_call() -> None:
    proto = model(
        "main (float[2,3] x) => (float[2,3] y) { [here] y = local.f (x) }\n",
        function("f (a) => (b)", "t = Neg (a)  [bad] b = Transpose <perm: ints = [0]> (t)"),
    )

    with pytest.raises(TypeRuleError, match="Transpose 'here/bad'"):
        load(proto)


def test_names_that_are_taken_are_not_taken_twice() -> None:
    """The model has a value that is called as one of the function's would be."""
    proto = model(GRAPH, function("f (a) => (b)", "t = Neg (a)  b = Exp (t)"))
    proto.graph.node.insert(0, helper.make_node("Relu", ["x"], ["y/t"]))
    proto.graph.output.append(helper.make_tensor_value_info("y/t", 1, [2, 3]))

    made = [o for n in inlined(proto, everything).graph.node for o in n.output]

    assert len(set(made)) == len(made)


def test_a_body_sees_no_names_of_the_model() -> None:
    proto = model(GRAPH, function("f (a) => (b)", "b = Add (a, x)"))

    with pytest.raises(ModelError, match="'y/x' is unknown, expected a graph input"):
        load(proto)


def test_a_node_keeps_to_the_opset_of_its_function() -> None:
    """The axes of ReduceSum were an attribute in opset 12 and are an operand in opset 21."""
    proto = model(
        "main (float[2,3] x) => (float[2] y) { y = local.f (x) }\n",
        function("f (a) => (b)", "b = ReduceSum <axes: ints = [1], keepdims: int = 0> (a)", 12),
    )

    (node,) = inlined(proto, everything).graph.node

    assert opset_of(node, {"": 21}) == 12
    np.testing.assert_allclose(evaluate(load(proto), {"x": X})["y"], X.sum(1))


def test_an_opset_that_is_no_number_is_refused() -> None:
    proto = single("Relu", [X], 21)
    proto.graph.node[0].metadata_props.add(key="alpenglow.opset", value="new")

    with pytest.raises(ModelError, match="opset is 'new', expected an integer"):
        load(proto)


def test_calls_in_graphs_of_nodes_are_replaced() -> None:
    proto = model(
        "main (float[2,3] x, bool c) => (float[2,3] y) { y = If (c) <"
        "then_branch = t () => (float[2,3] p) { p = local.twice (x) },"
        "else_branch = e () => (float[2,3] q) { q = Neg (x) }> }\n",
        TWICE,
    )

    (node,) = inlined(proto, everything).graph.node
    branches = {a.name: a.g for a in node.attribute}

    assert [n.op_type for n in branches["then_branch"].node] == ["LeakyRelu", "Constant", "Mul"]
    assert branches["then_branch"].node[-1].output[0] == "p"


def test_graphs_in_a_body_get_names_of_their_own() -> None:
    body = (
        "zero = Constant <value = float {0}> ()  s = ReduceSum <keepdims: int = 0> (a)"
        "c = Greater (s, zero)"
        "b = If (c) <then_branch = t () => (p) { k = Neg (a) p = Exp (k) },"
        "else_branch = e () => (p) { k = Abs (a) p = Sqrt (k) }>"
    )
    proto = model(GRAPH.replace("y = local.f (x)", "m = local.f (x)  y = local.f (m)"),
                  function("f (a) => (b)", body))  # fmt: skip

    new = inlined(proto, everything)
    graphs = [a.g for n in new.graph.node for a in n.attribute if n.op_type == "If"]
    made = [o for g in (new.graph, *graphs) for n in g.node for o in n.output]
    expected, actual = (ReferenceEvaluator(p).run(None, {"x": X}) for p in (proto, new))

    assert len(set(made)) == len(made)
    np.testing.assert_array_equal(expected[0], actual[0])


@pytest.mark.parametrize(
    ("definitions", "message"),
    [
        ([function("f (a) => (b)", "b = local.f (a)")], "calls itself \\(f → f"),
        ([function("f (a) => (b)", "b = local.g (a)"), function("g (a) => (b)", "b = local.f (a)")],
         "calls itself \\(f → g → f"),
        ([function("f (a) => (b)", "b = Neg (a)")] * 2, "two functions are called 'local:f'"),
        ([function("f () => (b)", "b = Constant <value_int = 1> ()")], "got 1 inputs, expected"),
        ([function("f <k> (a) => (b)", "b = Elu <alpha: float = @k> (a)")], "'k' is missing"),
    ],
)  # fmt: skip
def test_a_mistake_in_functions_is_reported(definitions: list[str], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(model(GRAPH, *definitions))


@pytest.mark.parametrize("end", ["b = Neg (a)", "t = local.f0 (a)  b = Neg (t)"])
def test_functions_that_multiply_without_end_are_refused_before_a_node_is_made(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(functions, "Inlining", None)
    chain = [function(f"f{i} (a) => (b)", "t = local.f{0} (a)  b = local.f{0} (t)".format(i + 1))
             for i in range(40)]  # fmt: skip
    last = function("f40 (a) => (b)", end)

    with pytest.raises(ModelError, match="expand to more than"):
        load(model(GRAPH.replace("local.f", "local.f0"), *chain, last))


def test_the_nodes_that_calls_make_are_counted_as_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = function("f (a) => (b)", "t = Neg (a)  b = local.g (t)")
    parts = GRAPH, body, function("g (a) => (b)", "b = Neg (a)")
    monkeypatch.setattr(functions, "MOST_NODES", 5)

    assert load(model(*parts)).nodes
    monkeypatch.setattr(functions, "MOST_NODES", 4)
    with pytest.raises(ModelError, match="expand to more than 4 nodes"):
        load(model(*parts))


def test_an_operator_with_a_body_of_other_operators_needs_no_converter() -> None:
    proto = single("Celu", [X], 21, alpha=2.0)

    new = inlined(proto, all_but("Celu"))

    assert "Celu" not in kinds(new)
    np.testing.assert_allclose(
        evaluate(load(new), {"x0": X})["y0"], evaluate(load(proto), {"x0": X})["y0"], 1e-6
    )


@pytest.mark.parametrize("op", ["Gelu", "LayerNormalization", "Softmax", "LogSoftmax"])
def test_a_body_may_depend_on_the_types_of_operands(op: str) -> None:
    operands = [X, np.ones(3, np.float32)] if op == "LayerNormalization" else [X]
    proto = single(op, operands, 21)
    feeds = {f"x{i}": x for i, x in enumerate(operands)}

    new = inlined(proto, all_but(op))

    assert op not in kinds(new)
    np.testing.assert_allclose(
        evaluate(load(new), feeds)["y0"], evaluate(load(proto), feeds)["y0"], 1e-5, 1e-6
    )


def test_types_in_the_body_of_a_function_are_found() -> None:
    """What Gelu stands for depends on a type that only inference knows."""
    proto = model(GRAPH, function("f (a) => (b)", "t = Neg (a)  b = Gelu (t)"))

    new = inlined(proto, all_but("Gelu"))

    assert "Gelu" not in kinds(new)
    np.testing.assert_allclose(
        evaluate(load(new), {"x": X})["y"], evaluate(load(proto), {"x": X})["y"], 1e-5, 1e-6
    )


def test_large_weights_are_no_obstacle_to_finding_types() -> None:
    weights = np.ones((64, 64), np.float32)
    proto = single("MatMul", [np.ones((2, 64), np.float32), weights], 21, constants=(1,))
    proto.graph.node.append(helper.make_node("Gelu", ["y0"], ["z"]))
    proto.graph.output[0].name = "z"

    new = inlined(proto, all_but("Gelu"))

    assert "Gelu" not in kinds(new)
    np.testing.assert_array_equal(numpy_helper.to_array(new.graph.initializer[0]), weights)


def test_what_has_neither_converter_nor_body_is_left_to_the_importer() -> None:
    proto = single("Frobnicate", [X], 21, domain="local")

    assert inlined(proto, all_but("Frobnicate")) is proto
    with pytest.raises(UnsupportedError, match="local:Frobnicate"):
        load(proto)
