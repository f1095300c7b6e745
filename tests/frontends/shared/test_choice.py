"""Branches are all computed if they are cheap and only compute."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends import choice
from alpenglow.frontends.choice import choices, is_cheap
from alpenglow.frontends.operands import Operands
from alpenglow.ir.dims import Dim, symbol
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.in_range import InRange

N, M = symbol("N"), symbol("M")


class Known:
    """An importer that knows the inputs of a graph."""

    def __init__(self, g: ag.Graph) -> None:
        self.g = g

    def find(self, name: str) -> ag.Value:
        return self.g.inputs[name]

    def elements(self, name: str) -> Array | None:
        return None

    def contents(self, v: ag.Value) -> Array | None:
        return None


def product(*shape: Dim) -> ag.Graph:
    g = ag.Graph("product")
    x = g.input("x", ag.TensorType("f32", shape))
    g.output("y", g(MatMul(), x, x))
    return g


def relu(*shape: Dim) -> ag.Graph:
    g = ag.Graph("relu")
    g.output("y", g(Relu(), g.input("x", ag.TensorType("f32", shape))))
    return g


def guarded() -> ag.Graph:
    g = ag.Graph("guarded")
    g.output("y", g(InRange(0, 3, "an index"), g.input("x", ag.TensorType("i64", (2,)))))
    return g


@pytest.mark.parametrize(
    ("g", "cheap"),
    [
        (relu(512, 512), True),
        (relu(512, 513), False),
        (relu(N, 512), True),
        (product(64, 64), True),
        (product(128, 128), False),
        (product(8, N, N), False),
        (guarded(), False),
    ],
    ids=lambda x: f"{x.name} of {x.inputs['x'].type}" if isinstance(x, ag.Graph) else "",
)
def test_branches_are_cheap_by_what_they_make_and_multiply(g: ag.Graph, cheap: bool) -> None:
    assert is_cheap(list(g.nodes)) == cheap


def test_many_cheap_nodes_are_not_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    g = relu(8, 8)
    g.output("z", g(Relu(), g.outputs["y"]))
    monkeypatch.setattr(choice, "MOST_ELEMENTS", 127)

    assert not is_cheap(list(g.nodes))


def test_branches_of_other_extents_are_not_chosen_between() -> None:
    pairs: list[tuple[tuple[Dim, ...], tuple[Dim, ...]]] = [
        ((N,), (M,)), ((1,), (N,)), ((2,), (3,)), ((2,), (2, 1))
    ]  # fmt: skip
    for shapes in pairs:
        g = ag.Graph("g")
        g.input("c", ag.TensorType("bool", ()))
        for name, shape in zip("ab", shapes, strict=True):
            g.input(name, ag.TensorType("f32", shape))
        site = Operands(g, "If", "If 'y'", ("c", "a", "b"), ("y",), Known(g))

        with pytest.raises(UnsupportedError, match=r"return f32.* and f32.*, expected the"):
            choices(site, 1)


@pytest.mark.parametrize("dtype", ["bool", "i32"])
def test_results_of_branches_are_chosen_one_by_one(dtype: str) -> None:
    g = ag.Graph("g")
    g.input("c", ag.TensorType(dtype, ()))
    names = ("a0", "b0", "a1", "b1")
    for name in names:
        g.input(name, ag.TensorType("f32", (2,)))
    site = Operands(g, "If", "If 'y'", ("c", *names), ("a", "b"), Known(g))
    for name, v in zip("ab", choices(site, 2), strict=True):
        g.output(name, v)
    exe = ag.compile(g)
    feeds = {n: np.full(2, i, np.float32) for i, n in enumerate(names)}

    def taken(c: int) -> list[float]:
        number = np.array(c, exe.inputs["c"].numpy)
        return [float(x[0]) for x in exe.run({"c": number, **feeds}).values()]

    # The first branch is taken by true, and by the number 0.
    assert taken(1) == ([0.0, 1.0] if dtype == "bool" else [2.0, 3.0])
    assert taken(0) == ([2.0, 3.0] if dtype == "bool" else [0.0, 1.0])
