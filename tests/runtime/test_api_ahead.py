"""Compiling before the first call, and timing the instructions of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import FeedError, OptionError, UnsupportedError
from alpenglow.ops.elementwise.arithmetic import Neg
from alpenglow.ops.product.contraction import MatMul
from open_cases import helper, model, weights
from staged_cases import CASES

pytestmark = pytest.mark.usefixtures("no_cache")


def product(**inputs: tuple[int | str, ...]) -> ag.Executable:
    return ag.compile(
        model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("N", 8), **inputs},
              {"w": weights(8, 4)}),
        threads=1,
    )  # fmt: skip


def added(a: tuple[int | str, ...], b: tuple[int | str, ...]) -> ag.Executable:
    return ag.compile(model([helper.make_node("Add", ["a", "b"], ["y"])], {"a": a, "b": b}, {}))


def closed() -> ag.Executable:
    g = ag.Graph("closed")
    w = g.constant(np.ones((8, 4), np.float32), "w")
    g.output("y", g(Neg(), g(MatMul(), g.input("x", "f32[3,8]"), w)))
    return ag.compile(g, threads=1)


def test_what_is_warm_does_not_compile_in_a_call() -> None:
    exe = product()
    exe.warm([{"x": (3, 8)}, {"x": [1, 8]}])
    before = list(exe.artifacts)
    for n in (3, 1, 5):
        assert exe(np.ones((n, 8), np.float32)).shape == (n, 4)

    assert before and exe.artifacts == before


def test_warming_twice_compiles_once() -> None:
    exe = product()
    for _ in range(2):
        exe.warm({"x": (3, 8)})

    assert len(exe.artifacts) == 1


def test_shapes_that_follow_from_others_may_be_left_out() -> None:
    exe = added(("N", 4), ("N", 4))
    exe.warm({"a": (3, 4)})

    assert len(exe.artifacts) == 1
    two = model([helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": ("N", 8), "b": (8, "M")}, {})
    with pytest.raises(
        FeedError, match=r"shapes has no shape for input 'b', expected one for f32\[8,M\]"
    ):
        ag.compile(two).warm({"a": (3, 8)})


def test_what_is_compiled_for_one_shape_is_warm() -> None:
    exe = closed()
    exe.warm({"x": (3, 8)})
    exe.warm({})
    with pytest.raises(FeedError, match="expected f32"):
        exe.warm({"x": (4, 8)})


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ((3, 8), "expected a dict"),
        (3, "expected a dict"),
        ("x", "expected a dict"),
        ([{"x": (3, 8)}, 3], "expected a dict"),
        ({"z": (3, 8)}, "shapes names 'z', expected inputs: x"),
        ({"x": 3}, "expected integers for"),
        ({"x": (3.0, 8)}, "expected integers for"),
        ({"x": (3, 9)}, "expected f32"),
        ({"x": (3, 8, 1)}, "expected f32"),
        ({"x": (-1, 8)}, "expected f32"),
        ({}, "has no shape for input"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: Any, says: str) -> None:
    exe = product()
    with pytest.raises(FeedError, match=says):
        exe.warm(shapes)

    assert exe.artifacts == []


def test_shapes_that_a_model_cannot_take_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="imported anew"):
        added(("N", 4), ("N", 4)).warm({"a": (3, 4), "b": (2, 4)})
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    with pytest.raises(FeedError, match=r"x : f32\[5\]"):
        ag.compile(model(nodes, {"x": ("N",)}, {"s": np.array([2, -1])})).warm({"x": (5,)})


def test_what_is_imported_anew_is_not_warmed() -> None:
    nodes = [helper.make_node("Slice", ["x", "s", "e"], ["y"])]
    exe = ag.compile(model(nodes, {"x": ("N",)}, {"s": np.array([-3]), "e": np.array([2**40])}))
    exe.warm({"x": (5,)})
    with pytest.raises(UnsupportedError, match="imported anew") as caught:
        exe.warm({"x": (2,)})

    assert "call it once" in caught.value.hint


def test_what_depends_on_data_is_not_warmed_nor_timed() -> None:
    case = CASES["nonzero"]
    exe = ag.compile(case.model())
    with pytest.raises(UnsupportedError, match="call it once"):
        exe.warm({})
    with pytest.raises(UnsupportedError, match="in parts"):
        exe.timings(case.calls()[0])


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_instructions_are_timed(target: str) -> None:
    g = ag.Graph("layers")
    x = g.input("x", "f32[3,8]")
    y = g(MatMul(), x, g.constant(np.ones((8, 70), np.float32)), name="hidden")
    g.output("y", g(MatMul(), y, g.constant(np.ones((70, 4), np.float32)), name="scores"))
    exe = ag.compile(g, target, threads=1)
    found = exe.timings({"x": np.ones((3, 8), np.float32)}, rounds=3)

    assert len(found) == len(found.parts) == len(exe.artifact.table)
    assert [p.number for p in found] == list(range(len(found)))
    assert all(p.seconds >= 0 and p.compiled == (target == "cpu") for p in found)
    assert found.run > 0 and found.seconds == sum(p.seconds for p in found)
    assert "hidden" in repr(found) and "us by themselves, a run" in repr(found)
    assert ("(interpreted)" in repr(found)) == (target == "interpreter")
    assert found[0].results and found[0].kind


def test_open_extents_are_timed() -> None:
    found = product().timings({"x": np.ones((5, 8), np.float32)}, rounds=2)

    assert len(found) >= 1


def test_many_instructions_are_shown_in_part() -> None:
    g = ag.Graph("many")
    for k in range(50):
        g.output(f"y{k}", g(Neg(), g.input(f"\x1b[2J{k}", "f32[1]"), name=f"\x1b[2J{k}!"))
    x = np.ones(1, np.float32)
    exe = ag.compile(g, threads=1)
    text = repr(exe.timings(dict.fromkeys(exe.inputs, x), rounds=1))

    assert "and 30 more" in text and "\x1b" not in text


@pytest.mark.parametrize("rounds", [0, -1, True, 1.5, "2"])
def test_rounds_are_a_number(rounds: Any) -> None:
    with pytest.raises(OptionError, match="rounds is"):
        closed().timings({"x": np.ones((3, 8), np.float32)}, rounds=rounds)


def test_wrong_feeds_are_not_timed() -> None:
    with pytest.raises(FeedError, match="feeds lack x"):
        closed().timings({})


def test_code_for_another_machine_is_neither_run_nor_warmed() -> None:
    case = CASES["nonzero"]
    foreign = "x86-64" if ag.Target.parse("cpu").architecture == "aarch64" else "aarch64"
    staged = ag.compile(case.model(), foreign)
    with pytest.raises(UnsupportedError, match="does not run on this machine"):
        staged.run(case.calls()[0])
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("N", 8)},
                  {"w": weights(8, 4)})  # fmt: skip
    exe = ag.compile(proto, foreign)
    for act in (lambda: exe.warm({"x": (3, 8)}), lambda: exe(np.ones((3, 8), np.float32))):
        with pytest.raises(UnsupportedError, match="does not run on this machine"):
            act()

    assert exe.artifacts == []
