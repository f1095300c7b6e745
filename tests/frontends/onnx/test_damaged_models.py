"""Models damaged by chance load, or raise an error of ours."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import helper

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError
from alpenglow.frontends.onnx import load
from tiny_models import W4, X4, floats, info, ints, made

UNCHECKED = ag.Options(check=False)
"""Damage makes weights of 1e30: what is left where their sums cancel, passes may change."""


def network() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], axis=1),
        helper.make_node("Gemm", ["f", "v"], ["g"], transB=1, alpha=0.5),
        helper.make_node("Softmax", ["g"], ["y"], axis=-1),
    ]
    weights = [W4, floats("b", 4), floats("v", 5, 16)]
    return made(nodes, [X4], weights)


def attention() -> onnx.ModelProto:
    nodes = [
        helper.make_node("LayerNormalization", ["x", "s"], ["n"], axis=-1),
        helper.make_node("MatMul", ["n", "w"], ["q"]),
        helper.make_node("Transpose", ["q"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "t"], ["a"]),
        helper.make_node("Softmax", ["a"], ["p"], axis=2),
        helper.make_node("Einsum", ["p", "n"], ["e"], equation="bij,bjk->bik"),
        helper.make_node("Add", ["e", "x"], ["y"]),
    ]
    return made(nodes, [info("x", (1, 4, 8))], [floats("s", 8), floats("w", 8, 8)])


def shapes() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["r"]),
        helper.make_node("Slice", ["r", "from", "until", "axes"], ["c"]),
        helper.make_node("Split", ["c"], ["left", "right"], axis=1),
        helper.make_node("Pad", ["left", "pads"], ["l"], mode="constant"),
        helper.make_node("Tile", ["right", "reps"], ["y"]),
    ]
    constants = [ints("zero", 0), ints("rest", -1), ints("from", 1), ints("until", 9),
                 ints("axes", 1), ints("pads", 0, 1, 0, 2), ints("reps", 2, 1)]  # fmt: skip
    return made(nodes, [info("x", (2, 3, 4))], constants, ["l", "y"])


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the bytes with a few of them changed or, one time in five, cut off."""
    if rng.random() < 0.2:
        return data[: rng.integers(len(data))]
    changed = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        changed[rng.integers(len(changed))] = rng.integers(256)
    return bytes(changed)


def try_all(data: bytes) -> None:
    """Load and, if it is small, compile a model; errors of ours are as good as success."""
    try:
        g = load(data)
        first = g if isinstance(g, ag.Graph) else g.graph
        types = [v.type for n in first.nodes for v in n.results]
        types += [v.type for v in first.inputs.values()]
        if all(t.static for t in types) and sum(t.nbytes for t in types) < 1 << 20:
            ag.compile(g, target="interpreter", options=UNCHECKED)
    except AlpenglowError as error:
        assert str(error)


SHARES = [0, 35, 70, 105, 140]


@pytest.mark.parametrize(("begin", "end"), list(pairwise(SHARES)))
@pytest.mark.parametrize("build", [network, attention, shapes])
def test_damaged_models_load_or_raise_an_error_of_ours(
    build: Callable[[], onnx.ModelProto], begin: int, end: int
) -> None:
    model = build()
    data = model.SerializeToString()
    for seed in range(begin, end):
        try_all(damaged(data, np.random.default_rng(seed)))
