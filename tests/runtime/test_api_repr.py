"""What executables, graphs, targets and profiles say of themselves."""

from __future__ import annotations

import html

import numpy as np
import pytest
from onnx import TensorProto

import alpenglow as ag
from alpenglow.ir.describe import bytes_text
from alpenglow.ops.elementwise.arithmetic import Neg
from alpenglow.ops.product.contraction import MatMul
from open_cases import helper, model, weights
from staged_cases import CASES

pytestmark = pytest.mark.usefixtures("no_cache")

HOSTILE = "\x1b[2J<script>alert('x')</script>\u202e"


def dense(name: str = "dense", x: str = "x") -> ag.Graph:
    g = ag.Graph(name)
    w = g.constant(np.ones((3, 50), np.float32))
    g.output("y", g(Neg(), g(MatMul(), g.input(x, "f32[2,3]"), w)))
    return g


def test_an_executable_says_what_it_is() -> None:
    exe = ag.compile(dense(), "interpreter", threads=2)
    level = ag.compile(dense(), "x86-64-v3", threads=1)

    assert repr(exe) == (
        "Executable(dense, interpreter, 2 threads; x f32[2,3] -> y f32[2,50]; "
        "0 kernels, 1 instruction interpreted, arena 0 B)"
    )
    assert repr(level).startswith("Executable(dense, x86-64-v3, 1 thread; x f32[2,3] -> y f32[2,5")
    assert "kernel" in repr(level) and "arena" in repr(level)
    assert f"cpu ({ag.Target.parse('cpu').cpu})" in repr(ag.compile(dense()))


def test_one_with_open_extents_says_how_often_it_has_compiled() -> None:
    product = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("N", 8)},
                    {"w": weights(8, 4)})  # fmt: skip
    exe = ag.compile(product, threads=1)
    before = repr(exe)
    exe(np.ones((3, 8), np.float32))

    assert "x f32[N,8] -> y f32[N,4]; nothing compiled yet)" in before
    assert repr(exe).endswith("1 kernel in 1 compilation)")


@pytest.mark.parametrize("name", list(CASES)[:3])
def test_a_staged_one_does_not_fail_to(name: str) -> None:
    exe = ag.compile(CASES[name].model())

    assert repr(exe).startswith("StagedExecutable(") and "nothing compiled yet" in repr(exe)
    assert "<table>" in exe._repr_html_()


def test_a_graph_says_what_it_is() -> None:
    assert repr(dense()) == (
        "Graph(dense; x f32[2,3] -> y f32[2,50]; 2 nodes, 1 constant of 600 B)"
    )
    assert repr(ag.Graph("empty")) == "Graph(empty; nothing -> nothing; 0 nodes, 0 constants)"
    assert "1 mat_mul, 1 neg" in dense()._repr_html_()


def test_names_from_files_are_escaped_and_cut() -> None:
    g = dense(HOSTILE, HOSTILE)
    long = dense("n" * 5000, "x" * 5000)
    for thing in (g, ag.compile(g), long, ag.compile(long)):
        assert repr(thing).isprintable() and len(repr(thing)) < 500
        page = thing._repr_html_()
        assert page.isprintable() and "<script" not in page
    assert html.escape("<script>") in g._repr_html_()


def test_many_inputs_are_counted() -> None:
    g = ag.Graph("many")
    for k in range(200):
        g.output(f"y{k}", g(Neg(), g.input(f"x{k}", "f32[1]")))

    assert "x5 f32[1], 194 more -> y0 f32[1]" in repr(g)
    assert g._repr_html_().count("<tr>") == 202 and "100 more" in g._repr_html_()


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (79_230, "79.2 kB"), (999_600, "1 MB"),
     (5 * 10**9, "5 GB"), (7 * 10**15, "7e+03 TB")],
)  # fmt: skip
def test_bytes_are_told_with_a_unit(nbytes: int, text: str) -> None:
    assert bytes_text(nbytes) == text


def test_a_target_names_its_processor() -> None:
    assert repr(ag.Target.parse("interpreter")) == "Target(interpreter)"
    assert repr(ag.Target.parse("cortex-m4")) == (
        "Target(cortex-m4: cortex-m4, thumbv7em-none-unknown-eabihf, vectors of 4 f32)"
    )


def test_a_profile_counts() -> None:
    profile = ag.Profile("0123456789abcdef", 1, {})

    assert repr(profile) == "Profile(0 values of graph 0123456789ab…, on 1 sample)"


def test_a_model_s_types_may_be_unknown() -> None:
    node = helper.make_node("NonZero", ["x"], ["y"])
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    result = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([node], "unranked", [info], [result])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    assert "(unranked, cpu" in repr(ag.compile(proto)) and "x f32[…] -> y ?" in repr(
        ag.compile(proto)
    )
