"""Gradients that are said: what goes back by them, what does not, and what keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow import train
from alpenglow.autodiff import gradients
from alpenglow.base.errors import TypeRuleError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.ir.verify import verify_graph
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Maximum, Minimum, Mul, Neg, Round, Sign
from alpenglow.ops.elementwise.transcendental import Exp, Log
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceMean, filled
from alpenglow.ops.training.custom_gradient import CustomGradient
from alpenglow.passes.cse import cse
from differences import check, weighted_sum

Array = NDArray[Any]


def straight(g: Graph, x: Value) -> Value:
    """Return x rounded, with a slope of 1."""
    return ag.custom_gradient(g, g(Round(), x), [x], lambda b, dy, x: dy)


def limited(g: Graph, x: Value, most: float) -> Value:
    """Return x, whose gradient is limited; a constant is all there is of `most`."""

    def backward(b: Graph, dy: Value, x: Value) -> Value:
        high = filled(b, most, x)
        return b(Minimum(), b(Maximum(), dy, b(Neg(), high)), high)

    return ag.custom_gradient(g, x, [x], backward)


def slopes(build: Callable[..., Value], *arrays: Any) -> list[list[float]]:
    """Return the gradients of the sum of what is built of f64 inputs, compiled and evaluated."""
    g = Graph("slopes")
    feeds = {f"x{i}": np.asarray(x, np.float64) for i, x in enumerate(arrays)}
    xs = [g.input(name, f"f64[{len(x)}]") for name, x in feeds.items()]
    y = build(g, *xs)
    for i, dx in enumerate(gradients(g, y, xs)):
        g.output(f"d{i}", dx)
    g.output("y", y)
    verify_graph(g)
    expected = evaluate(g, feeds)
    actual = ag.compile(g).run(feeds)
    for name, x in expected.items():
        np.testing.assert_allclose(actual[name], x, 1e-12, err_msg=name)
    return [actual[f"d{i}"].tolist() for i in range(len(xs))]


def test_what_is_rounded_may_have_a_slope() -> None:
    def built(g: Graph, x: Value) -> Value:
        return g(Mul(), straight(g, x), g.constant(np.array([2.0, 3.0])))

    assert slopes(built, [0.4, 1.6]) == [[2, 3]]


def test_a_gradient_may_be_limited_on_its_way() -> None:
    def built(g: Graph, x: Value) -> Value:
        return g(Mul(), limited(g, x, 1), g.constant(np.array([0.5, -7.0])))

    assert slopes(built, [3, 4]) == [[0.5, -1]]


def test_a_gradient_may_be_made_of_the_result() -> None:
    def built(g: Graph, x: Value) -> Value:
        y = g(Exp(), x)
        return ag.custom_gradient(
            g, y, [y, x], lambda b, dy, y, x: [None, b(Mul(), dy, b(Mul(), y, x))]
        )

    np.testing.assert_allclose(slopes(built, [1, 2]), [[np.e, 2 * np.e**2]])


def test_nothing_else_goes_back() -> None:
    """Neither by y to what is not among xs, nor by y and xs together."""

    def built(g: Graph, x: Value, w: Value) -> Value:
        y = g(Mul(), g(Mul(), x, x), w)
        return ag.custom_gradient(g, y, [x], lambda b, dy, x: [dy])

    assert slopes(built, [3, 4], [5, 6]) == [[1, 1], [0, 0]]


def test_one_value_may_be_several_xs() -> None:
    def built(g: Graph, x: Value) -> Value:
        return ag.custom_gradient(g, x, [x, x], lambda b, dy, p, q: (b(Add(), dy, dy), dy))

    assert slopes(built, [1, 2]) == [[3, 3]]


def test_xs_need_not_lead_to_y_and_none_is_zero() -> None:
    def built(g: Graph, x: Value, w: Value) -> Value:
        y = g(Mul(), x, x)
        return ag.custom_gradient(g, y, [w, x], lambda b, dy, w, x: (b(Mul(), dy, w), None))

    assert slopes(built, [1, 2], [3, 4]) == [[0, 0], [3, 4]]
    assert slopes(lambda g, x: ag.custom_gradient(g, x, [x], lambda *_: None), [1, 2]) == [[0, 0]]


def test_what_is_stopped_is_constant() -> None:
    assert slopes(lambda g, x: g(Mul(), x, train.stop_gradient(g, x)), [3, 4]) == [[3, 4]]
    assert slopes(lambda g, x: train.stop_gradient(g, g(Mul(), x, x)), [3, 4]) == [[0, 0]]


def test_gradients_of_said_gradients_are_those_of_what_says_them() -> None:
    g = Graph("cube")
    x = g.input("x", "f64[3]")

    def backward(b: Graph, dy: Value, x: Value) -> Value:
        return b(Mul(), dy, b(Mul(), filled(b, 3, x), b(Mul(), x, x)))

    y = ag.custom_gradient(g, g(Mul(), x, g(Mul(), x, x)), [x], backward)
    (slope,) = gradients(g, y, [x])

    feeds = {"x": np.array([0.5, -2, 3])}
    check(g, weighted_sum(g, [slope]), feeds)
    (again,) = gradients(g, slope, [x])
    g.output("again", again)
    np.testing.assert_allclose(evaluate(g, feeds)["again"], 6 * feeds["x"])


def test_a_region_may_hold_another() -> None:
    def built(g: Graph, x: Value) -> Value:
        return ag.custom_gradient(g, x, [x], lambda b, dy, x: b(Mul(), dy, straight(b, x)))

    assert slopes(built, [0.6, 2.2]) == [[1, 2]]


def test_text_and_copies_keep_what_is_said() -> None:
    g = Graph("kept")
    x = g.input("x", "f32[N]")
    y = train.stop_gradient(g, limited(g, straight(g, x), 0.5))
    g.output("y", ag.custom_gradient(g, y, [y], lambda *_: None))
    text = print_graph(g)
    again = parse_graph(text)

    assert print_graph(again) == text == print_graph(g.copy())
    assert text.count("custom_gradient(") == 4
    bound = again.bind({"N": 5})
    verify_graph(bound)
    assert str(bound.outputs["y"].type) == "f32[5]"
    (dx,) = gradients(bound, limited(bound, bound.outputs["y"], 2), list(bound.inputs.values()))
    bound.output("dx", dx)
    assert evaluate(bound, {"x": np.ones(5, np.float32)})["dx"].tolist() == [0] * 5


def test_equal_ones_become_one_and_others_stay() -> None:
    g = Graph("equal")
    x = g.input("x", "f32[3]")
    for i, most in enumerate((1, 1, 2)):
        g.output(f"y{i}", limited(g, x, most))
    cse(g)

    assert g.outputs["y0"] is g.outputs["y1"] is not g.outputs["y2"]
    verify_graph(g)


def test_extents_may_be_open() -> None:
    g = Graph("open")
    x = g.input("x", "f32[N]")
    g.output("dx", gradients(g, limited(g, straight(g, x), 0.5), [x])[0])
    exe = ag.compile(g)
    for n in (2, 5):
        assert exe(np.ones(n, np.float32)).tolist() == [0.5] * n


def signs(g: Graph, x: Value) -> Value:
    """Return a layer of weights that are -1 or 1, trained as if they were what they are made of."""
    w = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32) / 10
    latent = g.variable("w", w)
    return g(MatMul(), x, ag.custom_gradient(g, g(Sign(), latent), [latent], lambda b, d, w: d))


def test_weights_of_one_bit_are_learned_and_used_without_what_was_said() -> None:
    random = np.random.default_rng(1)
    true = np.sign(random.standard_normal((4, 4))).astype(np.float32)
    g = Graph("signs")
    x, y = g.input("x", "f32[N,4]"), g.input("y", "f32[N,4]")
    out = signs(g, x)
    g.output("out", out)
    g.output("loss", train.mse(g, out, y))
    t = train.Trainer(g, "loss", train.SGD(0.05), threads=1)
    points = random.standard_normal((320, 4)).astype(np.float32)
    t.fit({"x": points, "y": points @ true}, epochs=4, batch=32)
    model = t.trained()

    assert np.sign(t.values()["w"]).tolist() == true.tolist()
    assert not any(isinstance(n.op, CustomGradient) for n in model.nodes)
    np.testing.assert_allclose(ag.compile(model)(points), points @ true, 1e-5, 1e-5)


def test_the_value_is_written_as_onnx_without_what_is_said() -> None:
    g = Graph("whole")
    g.output("y", limited(g, straight(g, g.input("x", "f32[3]")), 1))
    again = ag.load(ag.export_onnx(g))

    assert [n.op for n in again.nodes] == [Round()]


def test_constants_of_what_is_said_become_no_parameters() -> None:
    g = Graph("fine")
    x = g.input("x", "f32[2,3]")
    w = g.constant(np.full((3, 3), 0.5, np.float32), "w")
    factor = np.full((2, 3), 2, np.float32)

    def backward(b: Graph, dy: Value, h: Value) -> Value:
        return b(Mul(), dy, b.constant(factor, "factor"))

    h = g(MatMul(), x, w)
    h = ag.custom_gradient(g, g(Tanh(), h), [h], backward)
    g.output("loss", g(ReduceMean((0, 1), False), h))
    t = train.Trainer(ag.trainable(g), "loss", train.SGD(1.0), threads=1)
    t.step({"x": np.ones((2, 3), np.float32)})

    assert t.parameters == ["w"]
    np.testing.assert_allclose(t.values()["w"], 0.5 - np.full((3, 3), 2 * 2 / 6), 1e-6)


def reads_around(g: Graph, x: Value) -> Value:
    h = g(Exp(), x)
    return ag.custom_gradient(g, h, [x], lambda b, dy, x: b(Mul(), dy, h))


MISTAKES: dict[str, Callable[[Graph, Value], Any]] = {
    r"xs is empty, .*\n.*stop_gradient": lambda g, x: ag.custom_gradient(g, x, [], lambda *_: []),
    r"returned 2 gradients, expected 1, one for each of xs\n.*None stands for": (
        lambda g, x: ag.custom_gradient(g, x, [x], lambda b, dy, x: [dy, None])),
    r"returned f64\[\] for x1, expected its type f64\[3\]": lambda g, x: ag.custom_gradient(
        g, x, [x, x], lambda b, dy, *xs: [dy, b(ReduceMean((0,), False), dy)]),
    r"backward reads %\? : f64\[3\] of another graph, expected .*\n.*one of xs": reads_around,
    r"backward reads %x : f64": lambda g, x: ag.custom_gradient(g, x, [x], lambda *_: x),
    r"adds inputs or variables, expected none": lambda g, x: ag.custom_gradient(
        g, x, [x], lambda b, dy, _: b(Mul(), dy, b.variable("v", np.zeros(3)))),
    r"x1 is i64\[\], expected floats": lambda g, x: ag.custom_gradient(
        g, x, [x, g.constant(np.array(1))], lambda b, dy, *xs: [dy, None]),
    "y is i64": lambda g, x: ag.custom_gradient(
        g, g.constant(np.array(1)), [x], lambda b, dy, x: None),
}  # fmt: skip


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_told_and_leave_the_graph_as_it_was(message: str) -> None:
    g = Graph("wrong")
    x = g.input("x", "f64[3]")
    with pytest.raises(TypeRuleError, match=message):
        MISTAKES[message](g, x)
    assert not any(isinstance(n.op, CustomGradient) for n in g.nodes)
    assert set(x.users) <= set(g.nodes)
    assert all(set(v.users) <= set(g.nodes) for n in g.nodes for v in n.results)


def test_an_error_in_backward_comes_out() -> None:
    g = Graph("wrong")
    x = g.input("x", "f64[3]")

    def backward(b: Graph, dy: Value, inside: Value) -> Value:
        b(Log(), x)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ag.custom_gradient(g, x, [x], backward)
    assert not x.users


BROKEN = {
    "%y : f32[3] = custom_gradient(%x, %x)\n": "0 regions for 1 xs, expected 1",
    "%y : f32[3] = custom_gradient(%x) {\n input %dy : f32[3]\n }\n": "1 regions for 0 xs",
    "%y : f32[3] = custom_gradient(%x, %x) {\n input %dy : f32[3]\n }\n":
        "the region takes (f32[3]), expected (f32[3], f32[3])",
    "%y : f32[3] = custom_gradient(%x, %x) {\n input %dy : f32[3]\n input %a : f32[3]\n"
    " output d1 = %dy\n }\n": "output d1 of the region is f32[3], expected outputs among d0",
}  # fmt: skip


@pytest.mark.parametrize("body", BROKEN)
def test_text_that_does_not_fit_is_refused(body: str) -> None:
    with pytest.raises(TypeRuleError) as error:
        parse_graph("graph @g {\n  input %x : f32[3]\n" + body + "output y = %y\n}")
    assert BROKEN[body] in str(error.value)
