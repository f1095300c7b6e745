"""Branches, loops, calls and variables: several subgraphs, as LiteRT runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.frontends.tflite.litert import written as litert
from tests.frontends.tflite.litert.written import operator, run_steps, tensor

import alpenglow as ag
from alpenglow.base.errors import FeedError, ModelError, UnsupportedError
from alpenglow.frontends import control
from alpenglow.frontends.tflite.loading import load
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import Scan, While

ACTIVATED = {"fused_activation_function": 0}


class Writer:
    """Subgraphs of one model, and the codes and buffers that they share."""

    def __init__(self) -> None:
        self.codes: list[str] = []
        self.buffers = [litert.buffer()]
        self.subgraphs: list[Any] = []

    def op(
        self, kind: str, inputs: Sequence[int], outputs: Sequence[int], layout: str = "",
        **options: Any,
    ) -> Any:  # fmt: skip
        if kind not in self.codes:
            self.codes.append(kind)
        return operator(self.codes.index(kind), kind, inputs, outputs, options, layout)

    def constant(self, name: str, array: Array) -> Any:
        dtype = {"f": "f32", "i": "i32", "b": "bool"}[array.dtype.kind]
        t = tensor(name, dtype, array.shape, len(self.buffers))
        self.buffers.append(litert.buffer(array.tobytes()))
        return t

    def add(self, tensors: Sequence[Any], inputs: Sequence[int], outputs: Sequence[int],
            operators: Sequence[Any]) -> None:  # fmt: skip
        self.subgraphs.append(litert.subgraph(tensors, inputs, outputs, operators))

    def model(self) -> bytes:
        codes = [litert.code(kind) for kind in self.codes]
        return litert.packed(litert.model_of(self.subgraphs, codes, self.buffers))


def x(name: str = "x") -> Any:
    return tensor(name, "f32", (3,))


def one(w: Writer) -> Any:
    return w.constant("one", np.ones(3, np.float32))


def branching(fixed: bool) -> bytes:
    w = Writer()
    condition = w.constant("c", np.array(True)) if fixed else tensor("c", "bool", ())
    choose = w.op("IF", [0, 1], [2], "IfOptions", then_subgraph_index=1, else_subgraph_index=2)
    w.add([condition, x(), x("y")], [1] if fixed else [0, 1], [2], [choose])
    w.add([x(), x("y"), one(w)], [0], [1], [w.op("ADD", [0, 2], [1], **ACTIVATED)])
    w.add([x(), x("y"), one(w)], [0], [1], [w.op("SUB", [0, 2], [1], **ACTIVATED)])
    return w.model()


def test_a_branch_that_a_constant_chooses_is_a_graph() -> None:
    model = branching(fixed=True)
    v = np.array([1, 2, 3], np.float32)

    assert isinstance(load(model), Graph)
    np.testing.assert_array_equal(run_steps(model, [[v]])[0][0], ag.compile(model)(v))


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("short", [True, False])
def test_a_branch_that_data_choose_gives_its_result(
    short: bool, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not short:
        monkeypatch.setattr(control, "SHORT", 1)
    model = branching(fixed=False)
    feeds = [np.array(taken), np.array([1, 2, 3], np.float32)]

    g = load(model)
    assert isinstance(g, Graph)
    assert any(isinstance(n.op, If) for n in g.nodes) != short
    np.testing.assert_array_equal(run_steps(model, [feeds])[0][0], ag.compile(model)(*feeds))


def picking() -> bytes:
    """Return element i of x, or 0 if c is false."""
    w = Writer()
    i, y = tensor("i", "i32", (1,)), tensor("y", "f32", (1,))
    choose = w.op("IF", [0, 1, 2], [3], "IfOptions", then_subgraph_index=1, else_subgraph_index=2)
    w.add([tensor("c", "bool", ()), x(), i, y], [0, 1, 2], [3], [choose])
    w.add([x(), i, y], [0, 1], [2], [w.op("GATHER", [0, 1], [2], axis=0)])
    zero = w.constant("zero", np.zeros(1, np.float32))
    w.add([x(), i, y, zero], [0, 1], [2], [w.op("ADD", [3, 3], [2], **ACTIVATED)])
    return w.model()


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_a_branch_that_is_not_taken_ends_no_call(target: str) -> None:
    exe = ag.compile(picking(), target)
    v, beyond = np.array([1, 2, 3], np.float32), np.array([7], np.int32)

    np.testing.assert_array_equal(exe(np.array(False), v, beyond), [0])
    np.testing.assert_array_equal(exe(np.array(True), v, np.array([1], np.int32)), [2])
    with pytest.raises(FeedError, match="an index on axis 0 is 7"):
        exe(np.array(True), v, beyond)


def test_gradients_are_those_of_the_branch_that_is_taken() -> None:
    """Each branch multiplies by a weight of its own; the first takes the square root of that."""
    w = Writer()
    tensors = [x(), w.constant("w", np.zeros(3, np.float32)), x("product")]
    choose = w.op("IF", [0, 1], [2], "IfOptions", then_subgraph_index=1, else_subgraph_index=2)
    w.add([tensor("c", "bool", ()), x(), x("y")], [0, 1], [2], [choose])
    product = w.op("MUL", [0, 1], [2], **ACTIVATED)
    w.add([*tensors, x("y")], [0], [3], [product, w.op("SQRT", [2], [3])])
    w.add([x(), w.constant("v", np.ones(3, np.float32)), x("y")], [0], [2], [product])
    graph = ag.trainable(load(w.model()))
    by = [graph.inputs["x"], *(v.value for v in graph.variables.values())]
    for i, slope in enumerate(ag.gradients(graph, graph.outputs["y"], by)):
        graph.output(f"d{i}", slope)
    exe = ag.compile(graph, "interpreter")
    v = np.array([0, -1, 2], np.float32)

    names = [name.rpartition("/")[2] for name in graph.variables]
    outs = exe.run({"c": np.array(False), "x": v})
    slopes = {name: outs[f"d{i + 1}"] for i, name in enumerate(names)}
    assert set(names) == {"w", "v"}
    np.testing.assert_array_equal(outs["d0"], [1, 1, 1])
    np.testing.assert_array_equal(slopes["v"], v)
    np.testing.assert_array_equal(slopes["w"], [0, 0, 0])
    assert not np.isfinite(exe.run({"c": np.array(True), "x": v})["d0"]).any()


def test_a_condition_that_is_made_a_constant_chooses_at_import() -> None:
    v = np.array([1, 2, 3], np.float32)
    graph = ag.load(branching(fixed=False), constants={"c": False})

    assert isinstance(graph, Graph)
    np.testing.assert_array_equal(v - 1, ag.compile(graph)(v))


def looping(*, grows: bool = False) -> bytes:
    """Double x as often as n says; what is left of n is the first result."""
    w = Writer()
    n = tensor("n", "i32", ())
    turn = w.op("WHILE", [0, 1], [2, 3], "WhileOptions", cond_subgraph_index=1,
                body_subgraph_index=2)  # fmt: skip
    result = tensor("y", "f32", ())
    result.hasRank = False
    w.add([n, x(), tensor("m", "i32", ()), result], [0, 1], [2, 3], [turn])
    zero = w.constant("zero", np.array(0, np.int32))
    w.add([n, x(), zero, tensor("more", "bool", ())], [0, 1], [3], [w.op("GREATER", [0, 2], [3])])
    less = w.constant("less", np.array(1, np.int32))
    after = tensor("after", "f32", (6,) if grows else (3,))
    twice = (
        w.op("CONCATENATION", [1, 1], [4], axis=0, **ACTIVATED)
        if grows
        else w.op("ADD", [1, 1], [4], **ACTIVATED)
    )
    w.add([n, x(), less, tensor("left", "i32", ()), after], [0, 1], [3, 4],
          [w.op("SUB", [0, 2], [3], **ACTIVATED), twice])  # fmt: skip
    return w.model()


@pytest.mark.parametrize("turns", [0, 1, 5])
@pytest.mark.parametrize("grows", [False, True])
def test_a_loop_turns_as_often_as_data_say(turns: int, grows: bool) -> None:
    model = looping(grows=grows)
    feeds = [np.array(turns, np.int32), np.array([1, 2, 3], np.float32)]

    wanted = run_steps(model, [feeds])[0]
    for a, b in zip(wanted, ag.compile(model)(*feeds), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("turns", [0, 1, 5])
@pytest.mark.parametrize("grows", [False, True])
def test_a_loop_that_turns_a_few_times_is_a_graph(turns: int, grows: bool) -> None:
    model = looping(grows=grows)
    feeds = [np.array(turns, np.int32), np.array([1, 2, 3], np.float32)]
    graph = ag.load(model, constants={"n": feeds[0]})

    assert isinstance(graph, Graph)
    for a, b in zip(run_steps(model, [feeds])[0], ag.compile(graph)(feeds[1]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_loop_of_many_turns_is_a_node() -> None:
    g = ag.load(looping(), constants={"n": 1000})

    assert isinstance(g, Graph)
    assert any(isinstance(n.op, Scan | While) for n in g.nodes)


def remembering() -> bytes:
    """Add x to what a variable holds, which is ones before the first call."""
    w = Writer()
    handle = {"container": "", "shared_name": "total"}
    once = w.op("CALL_ONCE", [], [], "CallOnceOptions", init_subgraph_index=1)
    w.add([x(), tensor("h", "resource", ()), x("before"), x("after")], [0], [3], [
        once, w.op("VAR_HANDLE", [], [1], "VarHandleOptions", **handle),
        w.op("READ_VARIABLE", [1], [2], "ReadVariableOptions"),
        w.op("ADD", [2, 0], [3], **ACTIVATED),
        w.op("ASSIGN_VARIABLE", [1, 3], [], "AssignVariableOptions"),
    ])  # fmt: skip
    w.add([tensor("h", "resource", ()), one(w)], [], [], [
        w.op("VAR_HANDLE", [], [0], "VarHandleOptions", **handle),
        w.op("ASSIGN_VARIABLE", [0, 1], [], "AssignVariableOptions"),
    ])  # fmt: skip
    return w.model()


def test_a_variable_begins_as_the_subgraph_says_that_runs_once() -> None:
    model = remembering()
    steps = [[np.array([k, 2, 3], np.float32)] for k in range(3)]
    session = ag.compile(model).session()

    expected = [y for (y,) in run_steps(model, steps)]
    for wanted, feeds in zip(expected, steps, strict=True):
        np.testing.assert_array_equal(wanted, session(*feeds))


def test_a_state_may_be_an_output_and_have_the_name_of_an_input() -> None:
    """The state of a layer is a variable; what it holds afterwards is an output of the model."""
    w = Writer()
    state = x("h")
    state.isVariable, state.shape = True, [1, 3]
    image, other = tensor("i", "f32", (1, 3)), tensor("h", "f32", (1, 3))
    eye, bias = (
        w.constant("w", np.eye(3, dtype=np.float32)),
        w.constant("b", np.zeros(3, np.float32)),
    )
    y = tensor("y", "f32", (1, 3))
    step = w.op("RNN", [0, 1, 1, 2, 3], [4], fused_activation_function=0)
    w.add([image, eye, bias, state, y, other], [0, 5], [4, 3], [step])
    model = w.model()
    steps = [[np.full((1, 3), k, np.float32), np.zeros((1, 3), np.float32)] for k in range(3)]
    session = ag.compile(model).session()

    for wanted, feeds in zip(run_steps(model, steps), steps, strict=True):
        for a, b in zip(wanted, session(*feeds), strict=True):
            np.testing.assert_array_equal(a, b)


def test_variables_are_not_filled_without_end() -> None:
    w = Writer()
    handle = {"container": "", "shared_name": "large"}
    once = w.op("CALL_ONCE", [], [], "CallOnceOptions", init_subgraph_index=1)
    w.add([x(), x("y")], [0], [1], [once, w.op("ABS", [0], [1])])
    extents = w.constant("extents", np.array([1 << 16, 1 << 16], np.int32))
    value = w.constant("value", np.array(1, np.float32))
    w.add([tensor("h", "resource", ()), extents, value, tensor("full", "f32", (1, 1))], [], [], [
        w.op("VAR_HANDLE", [], [0], "VarHandleOptions", **handle),
        w.op("FILL", [1, 2], [3]),
        w.op("ASSIGN_VARIABLE", [0, 3], [], "AssignVariableOptions"),
    ])  # fmt: skip

    with pytest.raises(UnsupportedError, match="CALL_ONCE: its tensors have 17179869184 bytes"):
        load(w.model())


def test_a_subgraph_that_runs_itself_is_refused() -> None:
    w = Writer()
    call = w.op("CALL", [0], [1], "CallOptions", subgraph=0)
    w.add([x(), x("y")], [0], [1], [call])

    with pytest.raises(ModelError, match="calls itself"):
        load(w.model())


def test_so_many_calls_as_no_model_has_are_refused() -> None:
    w = Writer()
    for depth in range(30):
        calls = [w.op("CALL", [0], [k + 1], "CallOptions", subgraph=depth + 1) for k in range(4)]
        w.add([x(), *(x(f"y{k}") for k in range(4))], [0], [1], calls)
    w.add([x(), x("y")], [0], [1], [w.op("ABS", [0], [1])])

    with pytest.raises(UnsupportedError, match="expands to at least"):
        load(w.model())


def test_names_inside_do_not_meet_names_outside() -> None:
    w = Writer()
    call = w.op("CALL", [0], [1], "CallOptions", subgraph=1)
    inner = w.constant("y/one", np.full(3, 5, np.float32))
    w.add([x(), x("y"), inner, x("z")], [0], [3], [call, w.op("ADD", [1, 2], [3], **ACTIVATED)])
    w.add([x(), x("y"), one(w)], [0], [1], [w.op("ADD", [0, 2], [1], **ACTIVATED)])
    v = np.array([1, 2, 3], np.float32)

    np.testing.assert_array_equal(v + 6, ag.compile(w.model())(v))
