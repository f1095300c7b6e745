"""Reduced precision: contractions take halves, sum in f32, and what is kept stays as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import OptionError
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.movement import Broadcast, Reshape

LOST = {"bf16": 2.0**-8, "f16": 2.0**-11}
"""What rounding once may change, relative to a number."""


def normal(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


MULTIPLIES = "x86-64-v4+avx512bf16"
"""A machine with instructions for bf16: where Winograd's way pays less often than elsewhere."""


def network() -> ag.Graph:
    """A residual block of two convolutions and a matrix product, all by constants."""
    g = ag.Graph("f")
    x = g.input("x", "f32[1,32,8,8]")
    w = [g.constant(normal(32, 32, 3, 3) / 17) for _ in range(2)]
    y = g(Relu(), g(Conv((1, 1), (1, 1, 1, 1)), x, w[0], g.constant(normal(32))), name="first")
    y = g(Add(), g(Conv((1, 1), (1, 1, 1, 1)), y, w[1], name="second"), y)
    flat = g(Reshape((1, 32, 64)), y)
    m = g(Broadcast((1, 64, 48)), g.constant(normal(64, 48) / 8))
    g.output("y", g(MatMul(), flat, m, name="third"))
    return g


def taken(exe: ag.Executable) -> list[str]:
    """Return the element types of the packed weights of a program, in order."""
    found = []
    for i in exe.artifact.program.instrs():
        ops = [i.op.name] if i.body is None else [n.op.name for n in i.body.nodes]
        if {"conv_blocked", "mat_mul_packed", "winograd_product"} & set(ops):
            found.append([r.type.dtype for r in i.reads() if r.type.rank > 2][1])
    return found


@pytest.mark.parametrize("target", ["cpu", "interpreter", "x86-64-v3"])
@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.sampled(3)
def test_results_lose_what_rounding_loses(precision: Any, target: str) -> None:
    x = normal(1, 32, 8, 8)
    exact = ag.compile(network(), "interpreter")(x)
    y = ag.compile(network(), target, precision=precision)(x)

    error = np.abs(y - exact).max() / np.abs(exact).max()
    assert 0 < error < 4 * LOST[precision]


def test_convolutions_and_products_by_constants_take_bf16() -> None:
    assert taken(ag.compile(network(), MULTIPLIES, precision="bf16")) == ["bf16", "bf16", "bf16"]


@pytest.mark.parametrize(("keep", "types"), [
    (["first"], ["f32", "bf16", "bf16"]),
    (["third", "second"], ["bf16", "f32", "f32"]),
    (["conv"], ["f32", "f32", "bf16"]),
    (["conv", "mat_mul"], ["f32", "f32", "f32"]),
])  # fmt: skip
def test_what_is_kept_stays_in_f32(keep: list[str], types: list[str]) -> None:
    assert taken(ag.compile(network(), MULTIPLIES, precision="bf16", keep=keep)) == types


def test_a_layer_is_kept_by_its_own_name_though_its_bias_takes_that_away() -> None:
    g = ag.Graph("biased")
    x = g.input("x", "f32[1,32,8,8]")
    for name in ("first", "second"):
        x = g(Conv((1, 1), (1, 1, 1, 1)), x, g.constant(normal(32, 32, 3, 3) / 17), name=name)
        bias = g(Broadcast((1, 32, 8, 8)), g(Reshape((32, 1, 1)), g.constant(normal(32))))
        x = g(Relu(), g(Add(), x, bias, name=f"{name} and its bias"))
    g.output("y", x)

    assert taken(ag.compile(g, MULTIPLIES, precision="bf16", keep=["first"])) == ["f32", "bf16"]
    assert taken(ag.compile(g, MULTIPLIES, precision="bf16", keep=["second"])) == ["bf16", "f32"]


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
@pytest.mark.parametrize(("precision", "large"), [("f16", 65520.0), ("bf16", 3.4e38)])
def test_weights_that_no_half_can_be_stay_in_f32(precision: Any, large: float, target: str) -> None:
    w = np.eye(8, dtype=np.float32)
    w[0, 0] = large
    g = ag.Graph("large")
    g.output("y", g(MatMul(), g.input("x", "f32[2,8]"), g.constant(w)))
    x = np.full((2, 8), 0.1, np.float32)

    assert np.array_equal(ag.compile(g, target, precision=precision)(x), x @ w)


def test_activations_between_contractions_are_stored_in_halves() -> None:
    def largest(exe: ag.Executable) -> int:
        return exe.artifact.program.arena

    halves = ag.compile(network(), MULTIPLIES, precision="bf16")

    assert largest(halves) < 0.7 * largest(ag.compile(network(), MULTIPLIES))


def test_names_that_are_nobodys_are_refused() -> None:
    with pytest.raises(OptionError, match="keep: 'nobody' is unknown, expected the name of"):
        ag.compile(network(), precision="bf16", keep=["nobody"])


def test_names_to_keep_do_not_stand_in_a_string() -> None:
    with pytest.raises(OptionError, match="keep is the string 'first', expected a list of names"):
        ag.compile(network(), precision="bf16", keep="first")


def test_a_precision_that_there_is_not_is_refused() -> None:
    with pytest.raises(OptionError, match="precision is 'f8', expected one of f32, bf16, f16"):
        ag.compile(network(), precision="f8")  # type: ignore[arg-type]


def test_passes_are_checked_behind_the_rounding() -> None:
    options = ag.Options(check=True, precision="bf16")
    x = normal(1, 32, 8, 8)

    y = ag.compile(network(), options=options)(x)
    assert np.array_equal(y, ag.compile(network(), precision="bf16")(x))
