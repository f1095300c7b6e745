"""A branch that is computed and not taken has no part in a gradient, whatever its derivative is.

Programs are drawn, with branches in branches.  Each is built twice: with all branches and lazy
choices, and with the branches that are taken alone.  Both must have the same gradients.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.autodiff import gradients
from alpenglow.evaluate import evaluate
from alpenglow.frontends.choice import choices
from alpenglow.frontends.operands import Operands
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.ir.types import type_of
from alpenglow.ops.elementwise.activation import Sigmoid
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul, Pow, Sub
from alpenglow.ops.elementwise.comparison import Greater
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Log, Sqrt
from alpenglow.ops.reduction.reduction import ReduceSum, filled
from alpenglow.ops.tensor.movement import stretch

Array = NDArray[Any]

Formula = Callable[[Graph, Value], Value]

SLOPES: dict[str, Formula] = {
    "sqrt": lambda g, x: g(Sqrt(), x),
    "log": lambda g, x: g(Log(), x),
    "1 / x": lambda g, x: g(Div(), filled(g, 1, x), x),
    "x ** 0.5": lambda g, x: g(Pow(), x, filled(g, 0.5, x)),
    "sqrt of a square": lambda g, x: g(Sqrt(), g(Mul(), x, x)),
}
"""Formulas whose slope is infinite or NaN at 0."""


def choose(g: Graph, c: Value, x: Value, y: Value) -> Value:
    return g(Where(lazy=True), stretch(g, c, x.type.shape), x, y)


def is_positive(g: Graph, x: Value) -> Value:
    """Return whether the sum of x is above 0, as a truth value without axes."""
    total = g(ReduceSum(tuple(range(x.type.rank)), False), x)
    return g(Greater(), total, filled(g, 0, total))


def evaluated(g: Graph, **feeds: Array) -> dict[str, Array]:
    with np.errstate(all="ignore"):
        return evaluate(g, feeds)


@pytest.mark.parametrize("shape", ["3", "N", ""])
@pytest.mark.parametrize("formula", SLOPES)
def test_the_branch_that_is_not_taken_adds_nothing(formula: str, shape: str) -> None:
    g = Graph("g")
    c, x = g.input("c", "bool[]"), g.input("x", f"f64[{shape}]")
    y = choose(g, c, SLOPES[formula](g, x), g(Mul(), x, x))
    (dx,) = gradients(g, y, [x])
    (ddx,) = gradients(g, dx, [x])
    g.output("dx", dx)
    g.output("ddx", ddx)
    at = np.zeros(() if not shape else 3)

    for exe in (ag.compile(g), ag.compile(g, "interpreter")):
        outs = exe.run({"c": np.array(False), "x": at})
        np.testing.assert_array_equal(outs["dx"], at)
        np.testing.assert_array_equal(outs["ddx"], at + 2)
        taken = exe.run({"c": np.array(True), "x": at})
        assert not np.isfinite(taken["dx"]).any()


def test_all_results_of_branches_share_what_is_computed_for_them() -> None:
    g = Graph("g")
    c, x = g.input("c", "bool[]"), g.input("x", "f64[2]")
    root = g(Sqrt(), x)
    results = [choose(g, c, g(op, root, x), x) for op in (Add(), Mul())]
    g.output("dx", gradients(g, g(Add(), *results), [x])[0])
    at = np.array([0, 4.0])

    np.testing.assert_array_equal(evaluated(g, c=np.array(False), x=at)["dx"], [2, 2])
    # The slopes are 1 / (2 sqrt x) + 1, and 3/2 sqrt x.
    np.testing.assert_array_equal(
        evaluated(g, c=np.array(True), x=at)["dx"], [np.inf, 0.25 + 1 + 3]
    )


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_short_floats_have_it_too(dtype: str) -> None:
    g = Graph("g")
    c, x = g.input("c", "bool[]"), g.input("x", f"{dtype}[2]")
    g.output("dx", gradients(g, choose(g, c, x, g(Sqrt(), x)), [x])[0])
    zeros = np.zeros(2, x.type.numpy)

    np.testing.assert_array_equal(evaluated(g, c=np.array(True), x=zeros)["dx"], zeros + 1)


def test_what_only_a_branch_reads_is_left_out_with_it() -> None:
    g = Graph("g")
    x = g.input("x", "f64[2]")
    root = g(Sqrt(), x)
    y = choose(g, is_positive(g, root), root, x)
    g.output("dx", gradients(g, y, [x])[0])

    np.testing.assert_array_equal(evaluated(g, x=np.zeros(2))["dx"], [1, 1])


def test_the_gradient_by_a_value_inside_of_a_branch_is_0_unless_it_is_taken() -> None:
    g = Graph("g")
    c, x = g.input("c", "bool[]"), g.input("x", "f64[2]")
    inside = g(Mul(), x, x)
    g.output("dx", gradients(g, choose(g, c, g(Sqrt(), inside), x), [inside])[0])
    at = np.array([0.0, 2.0])

    np.testing.assert_array_equal(evaluated(g, c=np.array(False), x=at)["dx"], [0, 0])
    np.testing.assert_array_equal(evaluated(g, c=np.array(True), x=at)["dx"], [np.inf, 0.25])


def test_a_choice_for_each_element_stays_as_it_is_elsewhere() -> None:
    g = Graph("g")
    x = g.input("x", "f64[2]")
    y = g(Where(), g(Greater(), x, filled(g, 0, x)), g(Sqrt(), x), x)
    g.output("dx", gradients(g, y, [x])[0])

    np.testing.assert_array_equal(evaluated(g, x=np.array([0, 4.0]))["dx"], [np.nan, 0.25])


def test_a_choice_is_an_ordinary_one_where_it_is_compiled() -> None:
    def chosen_by(op: Where) -> Graph:
        g = Graph("g")
        c, x = g.input("c", "bool[]"), g.input("x", "f64[2]")
        g.output("y", g(op, stretch(g, c, (2,)), g(Sqrt(), x), x))
        return g

    lazy, plain = (ag.compile(chosen_by(Where(lazy))).artifact for lazy in (True, False))

    assert str(lazy.program) == str(plain.program)


def test_a_choice_stays_lazy_in_text_and_in_copies() -> None:
    g = Graph("g")
    c, x = g.input("c", "bool[]"), g.input("x", "f64[2]")
    g.output("y", choose(g, c, g(Sqrt(), x), x))

    for again in (parse_graph(print_graph(g)), g.copy()):
        assert [n.op for n in again.nodes] == [n.op for n in g.nodes]


# ── drawn programs ──

UNARY: tuple[Op, ...] = (Sqrt(), Log(), Sigmoid())
BINARY: tuple[Op, ...] = (Add(), Sub(), Mul(), Div(), Pow(), Where())
STARTS = (0.0, -1.0, 1.0, 2.0, 0.25)


@dataclass(frozen=True)
class Apply:
    """An operator on values of the pool, by number."""

    op: Op
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Choice:
    """Branches of which one runs, by the truth of an input `c{of}`, or by the number `i{of}`."""

    of: int
    by_number: bool
    branches: tuple[Block, ...]


@dataclass(frozen=True)
class Block:
    """Steps that append to a copy of the pool, and the values of it that are results."""

    steps: tuple[Apply | Choice, ...]
    results: tuple[int, ...]


def drawn(rng: random.Random, pool: int, depth: int, results: int) -> Block:
    """Return a block on a pool of so many values."""
    steps: list[Apply | Choice] = []
    for _ in range(rng.randint(1, 4)):
        if depth and rng.random() < 0.5:
            by_number, count = rng.random() < 0.5, rng.randint(1, 2)
            branches = rng.randint(1, 3) if by_number else 2
            blocks = tuple(drawn(rng, pool, depth - 1, count) for _ in range(branches))
            steps.append(Choice(rng.randrange(2), by_number, blocks))
            pool += count
        else:
            op = rng.choice((*UNARY, *BINARY))
            steps.append(Apply(op, tuple(rng.randrange(pool) for _ in range(2))))
            pool += 1
    return Block(tuple(steps), tuple(rng.randrange(pool // 2, pool) for _ in range(results)))


def built(
    g: Graph, block: Block, pool: Sequence[Value], feeds: Mapping[str, Array] | None
) -> list[Value]:
    """Return the results of a block, of all its branches, or of those alone that `feeds` take."""
    values = list(pool)
    for step in block.steps:
        match step:
            case Apply(Where() as op, (i, j)):
                x, y = values[i], values[j]
                values.append(g(op, g(Greater(), x, filled(g, 0, x)), x, y))
            case Apply(op, operands):
                values.append(g(op, *(values[i] for i in operands[: len(op.operands)])))
            case Choice(of, by_number, branches) if feeds is not None:
                number = int(feeds[f"i{of}"]) if by_number else 1 - int(feeds[f"c{of}"])
                taken = branches[number if 0 <= number < len(branches) else -1]
                read = sorted(set[int]().union(*(captured(b, len(values)) for b in branches)))
                others = [values[i] for i in read]
                values += [with_zeros(g, v, others) for v in built(g, taken, values, feeds)]
            case Choice(of, by_number, branches):
                results = [built(g, branch, values, None) for branch in branches]
                values += chosen(g, g.inputs[f"{'i' if by_number else 'c'}{of}"], results)
    return [values[i] for i in block.results]


def captured(block: Block, pool: int) -> set[int]:
    """Return the numbers of the values that a block reads of the first `pool`."""
    read = set(block.results)
    for step in block.steps:
        if isinstance(step, Apply):
            read |= set(step.operands[: len(step.op.operands)])
        else:
            read |= set[int]().union(*(captured(b, pool) for b in step.branches))
    return {i for i in read if i < pool}


def with_zeros(g: Graph, y: Value, xs: Sequence[Value]) -> Value:
    """Return y, whose gradients by xs are 0 but for those that it has by itself.

    So do systems that differentiate the branch that is taken: all that the others read gets 0.
    """

    def backward(b: Graph, dy: Value, *xs: Value) -> list[Value]:
        return [dy, *(filled(b, 0, x) for x in xs[1:])]

    return ag.custom_gradient(g, y, [y, *xs], backward)


def chosen(g: Graph, index: Value, branches: Sequence[Sequence[Value]]) -> list[Value]:
    """Return the results of branches as importers choose them."""
    columns = [v for branch in branches for v in branch]
    names = [f"v{i}" for i in range(len(columns))]
    site = Operands(g, "If", "If", ("index", *names), (), Named(dict(zip(
        ("index", *names), (index, *columns), strict=True))))  # fmt: skip
    return choices(site, len(branches[0]))


@dataclass(frozen=True)
class Named:
    """An importer that knows values by name, and no elements."""

    values: Mapping[str, Value]

    def find(self, name: str) -> Value:
        return self.values[name]

    def elements(self, name: str) -> Array | None:
        return None

    def contents(self, v: Value) -> Array | None:
        return None


def derived(block: Block, feeds: Mapping[str, Array], whole: bool) -> dict[str, Array]:
    """Return y and its first and second derivatives."""
    g = Graph("drawn")
    given = {name: g.input(name, type_of(array)) for name, array in feeds.items()}
    xs = [v for v in given.values() if v.type.dtype == "f64"]
    (y,) = built(g, block, xs, None if whole else feeds)
    dxs = gradients(g, y, xs)
    weights = [g(Mul(), dx, g.constant(np.array([0.5, 2.0]))) for dx in dxs]
    outputs = {"y": y, **{f"d{i}": dx for i, dx in enumerate(dxs)}}
    outputs |= {f"dd{i}": v for i, v in enumerate(gradients(g, g(Add(), *weights), xs))}
    for name, v in outputs.items():
        g.output(name, v)
    return evaluated(g, **feeds)


@pytest.mark.parametrize("seed", range(60))
def test_gradients_are_those_of_the_branches_that_are_taken(seed: int) -> None:
    rng = random.Random(seed)
    block = drawn(rng, 2, 3, 1)
    feeds = {f"x{i}": np.array([rng.choice(STARTS) for _ in range(2)]) for i in range(2)}
    feeds |= {f"c{i}": np.array(rng.random() < 0.5) for i in range(2)}
    feeds |= {f"i{i}": np.array(rng.randint(-1, 3), np.int32) for i in range(2)}
    expected, actual = (derived(block, feeds, whole) for whole in (False, True))

    for name, array in expected.items():
        defined = ~np.isnan(array)
        np.testing.assert_allclose(actual[name][defined], array[defined], 1e-9, 1e-12, err_msg=name)
