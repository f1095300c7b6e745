"""Loops of StableHLO that count to a constant: which are imported turn by turn, and what they make.

What is right is the same loop as a node of the graph.
"""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.frontends import counted, stepped
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel
from alpenglow.ops.control.loop import Scan, While


def loop(start: str, test: str, step: str, dtype: str = "i32", inside: bool = True) -> bytes:
    """Return a loop that sums, multiplies and exchanges what it carries while it counts."""
    add = f"%one = stablehlo.constant dense<{step}> : tensor<{dtype}>"
    direction, bound = test.split()
    sign = "UNSIGNED" if dtype.startswith("ui") else "SIGNED"
    return f"""module @m {{
  func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<{dtype}>) {{
    %start = stablehlo.constant dense<{start}> : tensor<{dtype}>
    %end = stablehlo.constant dense<{bound}> : tensor<{dtype}>
    {"" if inside else add}
    %r:3 = stablehlo.while(%a = %x, %i = %start, %b = %y)
        : tensor<4xf32>, tensor<{dtype}>, tensor<4xf32>
     cond {{
      %c = stablehlo.compare {direction}, %i, %end, {sign}
        : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }} do {{
      {add if inside else ""}
      %j = stablehlo.add %{"i, %one" if inside else "one, %i"} : tensor<{dtype}>
      %k = stablehlo.convert %i : (tensor<{dtype}>) -> tensor<f32>
      %f = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> tensor<4xf32>
      %s = stablehlo.add %a, %f : tensor<4xf32>
      %p = stablehlo.multiply %b, %s : tensor<4xf32>
      stablehlo.return %p, %j, %s : tensor<4xf32>, tensor<{dtype}>, tensor<4xf32>
    }}
    return %r#0, %r#1 : tensor<4xf32>, tensor<{dtype}>
  }}
}}""".encode()


FEEDS = {"x": np.linspace(-1, 1, 4, dtype=np.float32), "y": np.float32([0.5, -0.5, 0.25, 1])}

SHORT = {
    "no turn": loop("3", "LT 3", "1"),
    "one turn": loop("0", "LT 1", "1"),
    "three turns": loop("0", "LT 3", "1"),
    "the bound too": loop("0", "LE 3", "1"),
    "down": loop("5", "GT 0", "-2"),
    "down to the bound": loop("4", "GE 0", "-2"),
    "until it is there": loop("0", "NE 6", "2", inside=False),
    "of 64 bits": loop("1", "LT 4", "1", "i64", inside=False),
    "without a sign": loop("0", "LT 5", "2", "ui32"),
    "of few bits": loop("120", "LT 126", "3", "i8"),
}

LONG = {
    "many turns": loop("0", "LT 1000", "1"),
    "never there": loop("0", "NE 7", "2"),
    "around the end": loop("120", "LE 127", "7", "i8"),
    "around zero": loop("4", "GE 0", "4294967295", "ui32"),
}


def has_loop(g: Graph | StagedModel) -> bool:
    """Whether a graph has a loop among its nodes."""
    assert isinstance(g, Graph)
    return any(isinstance(n.op, Scan | While) for n in g.nodes)


@pytest.mark.parametrize("name", SHORT)
def test_a_short_loop_is_a_graph_and_computes_what_the_loop_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = ag.load(SHORT[name])
    monkeypatch.setattr(stepped, "turns", lambda *_: None)
    turned = ag.load(SHORT[name])

    assert not has_loop(graph) and has_loop(turned)
    expected = ag.compile(turned, "interpreter").run(FEEDS)
    for target in ("interpreter", "cpu"):
        actual = ag.compile(graph, target).run(FEEDS)
        assert list(actual) == list(expected)
        for y, wanted in zip(actual.values(), expected.values(), strict=True):
            np.testing.assert_allclose(y, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", LONG)
def test_a_long_loop_is_a_node(name: str) -> None:
    assert has_loop(ag.load(LONG[name]))


def test_the_operations_of_all_turns_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted, "MOST_OPERATIONS", 10)

    assert not has_loop(ag.load(loop("0", "LT 1", "1")))
    assert has_loop(ag.load(loop("0", "LT 2", "1")))


def test_a_loop_up_to_an_input_is_a_node_until_that_is_a_constant() -> None:
    text = loop("0", "LT 3", "1").decode().replace("%y: tensor<4xf32>)",
                                                   "%y: tensor<4xf32>, %end: tensor<i32>)")
    text = text.replace("    %end = stablehlo.constant dense<3> : tensor<i32>\n", "")
    fixed = ag.load(text.encode(), constants={"end": np.int32(3)})

    assert has_loop(ag.load(text.encode()))
    assert not has_loop(fixed)
    actual, expected = (ag.compile(m).run(FEEDS) for m in (fixed, SHORT["three turns"]))
    for y, wanted in zip(actual.values(), expected.values(), strict=True):
        np.testing.assert_allclose(y, wanted, rtol=1e-6)
