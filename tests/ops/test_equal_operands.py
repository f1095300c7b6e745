"""Values that stand at several places at once: as operands, as outputs, and of one type.

Who asks by `is` which operand he sees takes the first for the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import alpenglow as ag
from agreement import TARGETS, Array, disagreements
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add, Div, Maximum, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose
from alpenglow.ops.window.pooling import MaxPool
from operator_cases import OPERATORS, Application, applications, assert_agree, drawn

RANDOM = np.random.default_rng(0)


def constant(g: Graph, *shape: int) -> Value:
    return g.constant(RANDOM.standard_normal(shape).astype(np.float32))


# ── every operator ──


def repeated() -> Iterator[tuple[Application, list[int]]]:
    """Yield the examples that have operands of one type, with the first of its type for each."""
    for cls in OPERATORS:
        for a in applications(cls):
            first = [a.types.index(t) for t in a.types]
            free = all(g is None for g in a.given)
            if free and any(i != k for k, i in enumerate(first) if a.types[k] is not None):
                yield a, first


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_every_operator_takes_one_value_as_several_operands(part: int) -> None:
    cases = list(repeated())[part::4]
    g = Graph("f")
    contents: list[list[Array | None]] = []
    for i, (a, first) in enumerate(cases):
        own = {k: g.input(f"x{i}_{k}", t) for k, t in enumerate(a.types)
               if t is not None and first[k] == k}  # fmt: skip
        operands = [None if t is None else own[first[k]] for k, t in enumerate(a.types)]
        for k, v in enumerate(g.add(a.op, operands).results):
            g.output(f"y{i}_{k}", v)
        arrays = [None if t is None else drawn(RANDOM, t, False) for t in a.types]
        contents.append([arrays[k] for k in first])
    feeds = {f"x{i}_{k}": x for i, (a, first) in enumerate(cases)
             for k, x in enumerate(contents[i]) if x is not None and first[k] == k}  # fmt: skip
    exe = ag.compile(g, target=TARGETS[part % len(TARGETS)])
    with np.errstate(all="ignore"):
        expected, actual = evaluate(g, feeds), exe.run(feeds)
    for name, v in g.outputs.items():
        assert_agree(f"{v.producer}", expected[name], actual[name], v.type)


# ── patterns that passes know ──


def tiled(channels: int, copies: int, between: Op | None, after: Op | None) -> Graph:
    """Return a convolution whose result is tiled along its channels."""
    g = Graph("f")
    c = g(Conv(), g.input("x", "f32[1,4,6,6]"), constant(g, channels, 4, 3, 3))
    c = c if between is None else g(between, c)
    y = g(Concat(1), *[c] * copies)
    if isinstance(after, Conv):
        y = g(after, y, constant(g, 5, copies * channels, 3, 3))
    elif after is not None:
        y = g(after, y)
    g.output("y", y)
    return g


@pytest.mark.parametrize("channels", [1, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 25, 31, 32, 33])
@pytest.mark.sampled(3)
def test_what_a_convolution_makes_is_put_beside_itself(channels: int) -> None:
    kinds = [(None, None), (Relu(), Conv()), (None, MaxPool((2, 2), (1, 1), (0,) * 4, (1, 1)))]
    between, after = kinds[channels % 3]
    wrong = [
        found
        for copies in (2, 3)
        for found in disagreements(tiled(channels, copies, between, after), tolerance=1e-4)
    ]

    assert wrong == []


Pattern = Callable[[Graph, Value], Value]

PATTERNS: dict[str, Pattern] = {
    "x + x": lambda g, x: g(Add(), x, x),
    "x - x": lambda g, x: g(Sub(), x, x),
    "x * x": lambda g, x: g(Mul(), x, x),
    "x / x": lambda g, x: g(Div(), x, x),
    "x - (x + x)": lambda g, x: g(Sub(), x, g(Add(), x, x)),
    "-x - -x": lambda g, x: g(Sub(), g(Neg(), x), g(Neg(), x)),
    "x + -x": lambda g, x: g(Add(), x, g(Neg(), x)),
    "max(x, x)": lambda g, x: g(Maximum(), x, x),
    "one of equals": lambda g, x: g(Where(), g(Less(), x, x), x, x),
    "one of equals by itself": lambda g, x: g(Where(), g(Less(), x, g(Neg(), x)), x, x),
    "c + x + x": lambda g, x: g(Add(), g(Add(), x, _like(g, x, 2.0)), x),
    "a product and itself": lambda g, x: g(Add(), g(MatMul(), x, _turned(g, x)),
                                           g(MatMul(), x, _turned(g, x))),
    "x times x turned": lambda g, x: g(MatMul(), x, _turned(g, x)),
    "x turned times x": lambda g, x: g(MatMul(), _turned(g, x), x),
    "softmax(x x') x": lambda g, x: g(MatMul(), g(Softmax(-1), g(MatMul(), x, _turned(g, x))), x),
    "rows beside themselves": lambda g, x: g(Concat(-1), x, x, x),
    "x between its halves": lambda g, x: g(Concat(2), _half(g, x), x, _half(g, x)),
    "edges beside themselves": lambda g, x: g(Pad((0, 0, 2, 0), (0, 0, 2, 0), "edge"), x),
}  # fmt: skip
"""By name, what is made of x[2,3,16,17] twice."""


def _like(g: Graph, x: Value, value: float) -> Value:
    return g(Broadcast(x.type.shape), g.constant(np.float32(value)))


def _turned(g: Graph, x: Value) -> Value:
    return g(Transpose((0, 1, 3, 2)), x)


def _half(g: Graph, x: Value) -> Value:
    n, c, height, width = x.type.extents
    return g(Slice((0, 0, 1, 0), (n, c, height // 2, width), (1, 1, 1, 1)), x)


@pytest.mark.parametrize("source", ["fed", "computed", "blocked", "stretched"])
@pytest.mark.sampled(1)
def test_one_value_is_several_operands_of_a_pattern(source: str) -> None:
    g = Graph("f")
    match source:
        case "fed":
            x = g.input("x", "f32[2,3,16,17]")
        case "computed":
            x = g(Relu(), g.input("x", "f32[2,3,16,17]"))
        case "blocked":
            x = g(Conv((), (1,) * 4), g.input("x", "f32[2,20,16,17]"), constant(g, 3, 20, 3, 3))
        case _:
            x = g(Broadcast((2, 3, 16, 17)), g.input("x", "f32[2,1,16,1]"))
    for name, pattern in PATTERNS.items():
        g.output(name, pattern(g, x))

    assert disagreements(g, numerics=("fast", "strict"), tolerance=1e-4) == []


def test_a_value_is_several_outputs_and_an_input_is_an_output() -> None:
    g = Graph("f")
    x = g.input("x", "f32[2,20,5,5]")
    c = g(Conv((), (1,) * 4), x, constant(g, 24, 20, 3, 3))
    r = g(Relu(), c)
    flat = g(Reshape((2, 500)), x)
    for i, v in enumerate((x, c, r, c, x, flat, r, g(Add(), r, r), flat)):
        g.output(f"y{i}", v)

    assert disagreements(g) == []
