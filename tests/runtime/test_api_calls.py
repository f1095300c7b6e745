"""Calls with keywords, with places for results, and of some of the outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

import alpenglow as ag
from alpenglow.base.errors import FeedError, TimeLimitError
from alpenglow.frontends import control
from alpenglow.frontends.stepped import StepImporter
from alpenglow.ops.elementwise.arithmetic import Mul, Sub
from open_cases import helper, model

Array = NDArray[Any]

pytestmark = pytest.mark.usefixtures("no_cache")

A, B = np.array([1, 2, 3], np.float32), np.array([5, 7, 11], np.float32)


def plain(target: str = "cpu") -> ag.Executable:
    g = ag.Graph("two")
    a, b = g.input("a", "f32[3]"), g.input("b", "f32[3]")
    g.output("difference", g(Sub(), a, b))
    g.output("product", g(Mul(), a, b))
    return ag.compile(g, target, threads=1)


NODES = [helper.make_node("Sub", ["a", "b"], ["difference"]),
         helper.make_node("Mul", ["a", "b"], ["product"])]  # fmt: skip


def with_open_extents() -> ag.Executable:
    proto = model(NODES, {"a": ("N",), "b": ("N",)}, {})
    del proto.graph.output[:]
    proto.graph.output.extend(map(helper.make_empty_tensor_value_info, ("difference", "product")))
    return ag.compile(proto, threads=1)


def staged() -> ag.Executable:
    """Return the same behind a branch that depends on the data, and is imported when taken."""
    branches = {}
    for name in ("then_branch", "else_branch"):
        outs = [helper.make_empty_tensor_value_info(f"{name}{k}") for k in range(2)]
        nodes = [helper.make_node("Sub", ["a", "b"], [f"{name}0"]),
                 helper.make_node("Mul", ["a", "b"], [f"{name}1"])]  # fmt: skip
        branches[name] = helper.make_graph(nodes, name, [], outs)
    node = helper.make_node("If", ["c"], ["difference", "product"], **branches)
    sum_ = helper.make_node("ReduceMax", ["a"], ["m"], keepdims=0)
    more = helper.make_node("Greater", ["m", "zero"], ["c"])
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N"]) for n in "ab"]
    results = [helper.make_empty_tensor_value_info(n) for n in ("difference", "product")]
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [], [0])
    graph = helper.make_graph([sum_, more, node], "staged", infos, results, [zero])
    opset = helper.make_opsetid("", 17)
    made = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "SHORT", 0)
        patch.setattr(StepImporter, "_node", lambda *arguments: None)
        return ag.compile(made, threads=1)


KINDS: dict[str, Callable[[], ag.Executable]] = {
    "plain": plain,
    "interpreted": lambda: plain("interpreter"),
    "open": with_open_extents,
    "staged": staged,
}

every_kind = pytest.mark.parametrize("kind", KINDS)


def test_the_kinds_are_what_they_are_called() -> None:
    assert type(staged()).__name__ == "StagedExecutable"
    assert with_open_extents().artifacts == []


@every_kind
def test_inputs_are_given_by_name(kind: str) -> None:
    exe = KINDS[kind]()
    for _ in range(2):
        for found in (exe(A, B), exe(A, b=B), exe(a=A, b=B), exe(b=B, a=A)):
            np.testing.assert_array_equal(A - B, found[0])
            np.testing.assert_array_equal(A * B, found[1])


@every_kind
def test_inputs_that_do_not_fit_together_are_refused(kind: str) -> None:
    exe = KINDS[kind]()
    with pytest.raises(FeedError, match="input 'a' is already given by position"):
        exe(A, a=A, b=B)
    with pytest.raises(FeedError, match="feeds lack b and hold nothing"):
        exe(a=A)
    with pytest.raises(FeedError, match="got 3 arrays, expected 2: a, b"):
        exe(A, B, A)
    with pytest.raises(FeedError, match="got 3 arrays"):
        exe(A, B, A, c=A)
    with pytest.raises(FeedError, match="hold image that is no input"):
        exe(A, B, image=A)


def test_a_name_that_is_nearly_right_is_suggested() -> None:
    g = ag.Graph("g")
    x = g.input("image", "f32[3]")
    g.output("scores", g(Mul(), x, x))
    exe = ag.compile(g)
    for act in (
        lambda: exe(imgae=A),
        lambda: exe.run({"Image": A}),
    ):
        with pytest.raises(FeedError) as caught:
            act()
        assert caught.value.hint == "'image'"
    for act in (
        lambda: exe(A, outputs=["score"]),
        lambda: exe(A, out={"scroes": A.copy()}),
    ):
        with pytest.raises(FeedError) as caught:
            act()
        assert caught.value.hint == "'scores'"


@every_kind
def test_outputs_are_chosen_and_ordered(kind: str) -> None:
    exe = KINDS[kind]()
    feeds = {"a": A, "b": B}
    for _ in range(2):
        both = exe.run(feeds, outputs=["product", "difference"])
        product, difference = exe(A, B, outputs=("product", "difference"))

        assert list(both) == ["product", "difference"]
        np.testing.assert_array_equal(A * B, both["product"])
        np.testing.assert_array_equal(A * B, product)
        np.testing.assert_array_equal(A - B, difference)
        np.testing.assert_array_equal(A * B, exe(A, B, outputs=["product"]))
        assert exe.run(feeds, outputs=[]) == {} and exe(A, B, outputs=[]) == ()


@every_kind
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("product", "expected a list of names"),
        (["sum"], "outputs names sum; the outputs are difference, product"),
        ([1], "outputs names 1"),
        (["product", "product"], "outputs names 'product' twice"),
        (3, "outputs is 3"),
        ({"product": 1}, "expected a list of names"),
    ],
)
def test_outputs_that_are_none_are_refused(kind: str, wrong: Any, says: str) -> None:
    exe = KINDS[kind]()
    for act in (lambda: exe(A, B, outputs=wrong), lambda: exe.run({"a": A, "b": B}, outputs=wrong)):
        with pytest.raises(FeedError, match=says):
            act()


@every_kind
def test_results_go_where_the_caller_wants_them(kind: str) -> None:
    exe = KINDS[kind]()
    for _ in range(2):
        d, p = np.zeros(3, np.float32), np.zeros(3, np.float32)
        found = exe(A, B, out=(d, p))

        assert found[0] is d and found[1] is p
        np.testing.assert_array_equal(A - B, d)
        np.testing.assert_array_equal(A * B, p)
        q = np.zeros(6, np.float32)[::2]
        some = exe(A, b=B, out=[None, q])
        assert some[1] is q
        np.testing.assert_array_equal(A - B, some[0])
        np.testing.assert_array_equal(A * B, q)
        r = np.zeros(3, np.float32)
        assert exe(A, B, out=r, outputs=["product"]) is r
        np.testing.assert_array_equal(A * B, r)
        d[...] = 0
        assert exe.run({"a": A, "b": B}, {"difference": d})["difference"] is d
        np.testing.assert_array_equal(A - B, d)


@every_kind
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (A.copy(), "out is a ndarray, expected a list of 2, or arrays by name, for: difference"),
        ([A.copy()], "out is 1 places, expected a list of 2"),
        ([A.copy(), [0.0, 0.0, 0.0]], r"out\['product'\] is a list"),
        ({"product": 3}, r"out\['product'\] is a int"),
        ({"sum": A.copy()}, "out names sum; outputs are difference, product"),
        ([None, np.zeros(4, np.float32)], r"out\['product'\] is a float32\(4,\)"),
        ({"product": np.zeros(3)}, r"out\['product'\] is a float64"),
        ("ab", "out is a str"),
        (3, "out is a int"),
    ],
)
@pytest.mark.sampled(6)
def test_places_that_do_not_fit_are_refused(kind: str, wrong: Any, says: str) -> None:
    exe = KINDS[kind]()
    with pytest.raises(FeedError, match=says):
        exe(A, B, out=wrong)


def test_one_output_is_written_to_one_array() -> None:
    g = ag.Graph("one")
    x = g.input("x", "f32[3]")
    g.output("y", g(Mul(), x, x))
    exe = ag.compile(g, threads=1)
    y = np.zeros(3, np.float32)

    assert exe(A, out=y) is y and exe(x=A, out={"y": y}) is y and exe(A, out=[y]) is y
    np.testing.assert_array_equal(A * A, y)
    with pytest.raises(FeedError, match="out is a str, expected an array"):
        exe(A, out="y")


def test_an_extent_that_was_not_presumed_has_the_same_calls() -> None:
    nodes = [helper.make_node("Slice", ["x", "s", "e"], ["y"])]
    proto = model(nodes, {"x": ("N",)}, {"s": np.array([-3]), "e": np.array([2**40])})
    exe = ag.compile(proto, threads=1)
    for n in (5, 2):
        x = np.arange(n, dtype=np.float32)
        y = np.zeros(min(n, 3), np.float32)

        assert exe(x=x, out=y) is y and list(exe.run({"x": x}, outputs=["y"])) == ["y"]
        np.testing.assert_array_equal(x[-3:], y)


@every_kind
def test_a_time_goes_with_the_rest(kind: str) -> None:
    exe = KINDS[kind]()
    p = np.zeros(3, np.float32)
    found = exe.run({"a": A, "b": B}, p, timeout=60, outputs=["product"])

    assert found["product"] is p
    if kind in ("open", "staged"):
        with pytest.raises(TimeLimitError):
            exe.run({"a": A, "b": B}, timeout=1e-9)
