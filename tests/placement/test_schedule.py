"""What crosses where a graph is cut: as counted value by value, for every stage there can be."""

from __future__ import annotations

import random

import numpy as np
import pytest

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.placement.cut import part, parts
from alpenglow.placement.schedule import Schedule, traffic


def drawn(seed: int) -> Graph:
    """Return a graph of products and sums of values that come from anywhere before."""
    rng = random.Random(seed)
    g = Graph(f"drawn {seed}")
    values: list[Value] = [g.input(f"x{i}", "f32[4,4]") for i in range(rng.randint(1, 2))]
    numbers = np.random.default_rng(seed)
    weights = [g.constant(numbers.integers(-2, 3, (4, 4)).astype(np.float32)) for _ in range(3)]
    folded = g(Add(), weights[0], weights[1])
    for k in range(rng.randint(1, 7)):
        name = rng.choice(["", f"v{k}", "v"])
        match rng.randrange(4):
            case 0:
                values.append(g(Relu(), rng.choice(values), name=name))
            case 1:
                values.append(
                    g(MatMul(), rng.choice(values), rng.choice([*weights, folded]), name=name)
                )
            case _:
                values.append(g(Add(), rng.choice(values), rng.choice(values), name=name))
    others = rng.sample(values[:-1], min(len(values) - 1, rng.randint(0, 2)))
    for k, v in enumerate([values[-1], *others]):
        g.output(f"y{k}", v)
    if rng.random() < 0.3:
        g.output("constant", folded)
    if rng.random() < 0.3:
        g.output("again", next(iter(g.outputs.values())))
    return g


@pytest.mark.parametrize("seed", range(40))
def test_bytes_of_stages_are_those_of_their_values(seed: int) -> None:
    s = Schedule(drawn(seed))
    n = len(s.nodes)
    rng = random.Random(seed)
    positions = [0, *(p for p in range(1, n) if rng.random() < 0.7), n]
    t = traffic(s, positions)
    for i, begin in enumerate(positions):
        for j, end in enumerate(positions[i + 1 :], i + 1):
            here = range(begin, end)
            read = [v for v in s.lives if v.maker not in here and any(r in here for r in v.readers)]
            left = [v for v in s.lives if v.maker in here and any(r >= end for r in v.readers)]
            weights = {v for k in here for v in s.constants(k)}
            alive = max(
                sum(v.nbytes for v in s.lives
                    if begin <= v.maker < p <= v.readers[-1] < end)
                for p in positions[i : j + 1]
            )  # fmt: skip

            assert t.into[i, j] == sum(v.nbytes for v in read)
            assert t.out[i, j] == sum(v.nbytes for v in left)
            assert t.weights[i, j] == sum(v.array.nbytes for v in weights if v.array is not None)
            assert t.alive[i, j] == alive


@pytest.mark.parametrize("seed", range(40))
def test_parts_read_what_others_leave(seed: int) -> None:
    s = Schedule(drawn(seed))
    n = len(s.nodes)
    known = set(s.graph.inputs)
    made: set[str] = set()
    for g in parts(s, range(n + 1)):
        assert set(g.inputs) <= known
        known |= set(g.outputs)
        made |= set(g.outputs)

    assert set(s.graph.outputs) <= made


def test_a_part_has_the_constants_that_it_reads() -> None:
    g = Graph("scaled")
    twice = g(Add(), *[g.constant(np.ones(3, np.float32))] * 2)
    x = g(Add(), g.input("x", "f32[3]"), twice)
    g.output("y", g(Add(), x, twice))
    s = Schedule(g)

    assert len(s.nodes) == 2
    assert all(len(part(s, k, k + 1).nodes) == 2 for k in range(2))


def test_variables_and_random_numbers_are_not_placed() -> None:
    g = Graph("counter")
    count = g.variable("count", np.zeros(1, np.float32))
    g.assign("count", g(Add(), count, g.input("x", "f32[1]")))
    drawing = Graph("drawing")
    drawing.output("y", drawing.random_key())

    with pytest.raises(UnsupportedError, match="has variables"):
        Schedule(g)
    with pytest.raises(UnsupportedError, match="random numbers"):
        Schedule(drawing)
