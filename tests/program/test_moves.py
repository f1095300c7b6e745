"""Nodes that move in an order: it stays topological, takes never more, and less where it shows."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from memory_graphs import peak_of, random_graph, random_order

import alpenglow as ag
from alpenglow import train
from alpenglow.compiler.pipeline import properties_after, run_stages
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceMax, ReduceSum
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.program.instr import Program
from alpenglow.program.interpret import interpret
from alpenglow.program.moves import _Group, _Sums, moved
from alpenglow.program.order import MemoryGraph
from alpenglow.program.recompute import smaller
from alpenglow.program.reorder import reorder
from alpenglow.program.schedule import schedule
from alpenglow.program.share import share
from alpenglow.program.stream_rows import arena_of
from alpenglow.program.units import Units
from alpenglow.program.verify import verify
from alpenglow.train.step import RATE, Rules, training_step


def test_orders_stay_topological_and_take_no_more() -> None:
    random = Random(0)
    less = 0
    for _ in range(120):
        graph = random_graph(random, random.randrange(40), random.choice([3, 10, 40]))
        given = random_order(random, graph)
        peak = peak_of(graph, moved(graph, given))  # asserts that the order is topological
        assert peak <= peak_of(graph, given)
        less += peak < peak_of(graph, given)

    assert less > 60


def test_nothing_moves_where_it_is_enough() -> None:
    random = Random(1)
    graph = random_graph(random, 40, 10)
    given = random_order(random, graph)

    assert moved(graph, given, peak_of(graph, given)) == tuple(given)


def test_what_a_group_makes_and_frees_is_what_becomes_of_the_bytes_alive() -> None:
    """The readers of a value, moved right before a place, change what is alive there by as much."""
    random = Random(2)
    seen = 0
    for _ in range(400):
        graph = random_graph(random, 30, 10)
        order = random_order(random, graph)
        place = random.randrange(30)
        value = random.choice(list(graph.makers) or [0])
        places = [order.index(n) for n in range(30)]
        group = _Group(_Sums(graph), places, place)
        if value not in graph.makers or places[graph.makers[value]] >= place:
            continue
        if not group.add_readers(value):
            continue
        seen += 1
        behind = [n for n in order[place:] if n not in group.nodes]
        before = alive_before(graph, order[:place], order[place:])
        after = alive_before(graph, [*order[:place], *group.nodes], behind)
        assert after - before == group.made - group.freed, (graph, order, place, value)

    assert seen > 50


def alive_before(graph: MemoryGraph, done: list[int], left: list[int]) -> int:
    """Return the bytes that are alive when some nodes have run and others have not."""
    wanted = {v for n in left for v in graph.reads[n]} | graph.keep
    return sum(graph.sizes[v] for n in done for v in graph.outputs[n] if v in wanted)


@pytest.mark.parametrize("layers", [4, 12])
def test_gradients_of_filters_do_not_wait_for_the_end(layers: int) -> None:
    """Each layer keeps an image of 10, and its gradient of 10 is kept where that of its filter, of
    1, comes last; it goes through 25 more, which is why it cannot come first."""
    inputs: list[tuple[int, ...]] = [()]
    sizes = [10]
    for k in range(layers):
        inputs.append((k,))
        sizes.append(10)
    backward = layers
    for k in reversed(range(layers)):
        inputs.append((backward, k))  # the gradient of image k
        sizes.append(10)
        backward = len(sizes) - 1
    gradients = range(layers + 1, 2 * layers + 1)
    for k, gradient in zip(reversed(range(layers)), gradients, strict=True):
        inputs += [(gradient, k), (len(sizes),)]
        sizes += [25, 1]
    keep = frozenset(v for v, size in enumerate(sizes) if size == 1)
    graph = MemoryGraph(tuple(inputs), tuple((v,) for v in range(len(sizes))), tuple(sizes), keep)
    given = range(len(inputs))

    assert peak_of(graph, given) >= 10 * (2 * layers)
    assert peak_of(graph, moved(graph, given)) <= 10 * (layers + 1) + 25 + 10


def test_a_result_may_take_over_the_memory_of_what_dies() -> None:
    """Then 10 and 10 are 10 at once, and nothing need be moved for 15."""
    graph = MemoryGraph(
        ((), (0,), ()), ((0,), (1,), (2,)), (10, 10, 5), frozenset({2}), ((), (0,), ())
    )

    assert moved(graph, (0, 1, 2), 10) == (0, 1, 2)
    assert moved(MemoryGraph(graph.inputs, graph.outputs, graph.sizes), (0, 1, 2)) == (0, 1, 2)


def test_what_reads_a_variable_stays_before_what_assigns_it() -> None:
    """Whatever the order, it changes in place."""
    g, random = ag.Graph("counts"), Random(3)
    x = g.input("x", "f32[8]")
    w = g.variable("w", np.ones(8, np.float32))
    for k in range(3):
        g.output(f"y{k}", g(CumSum(0), g(Mul(), g(CumSum(0), x), w)))
    g.assign("w", g(Add(), w, x))
    program = schedule(g)
    units = Units(program)
    graph = units.graph_of(tuple(range(len(units.all))))
    orders = {tuple(random_order(random, graph)) for _ in range(50)}
    results = {
        tuple(map(float, interpret(units.program_of(order), {"x": np.arange(8, dtype="f4")})["y0"]))
        for order in orders
    }

    assert len(orders) > 10 and len(results) == 1
    for order in orders:
        cells = share(units.program_of(order)).variables
        assert cells["w"].exit == "w", order


def step(guard: bool) -> Program:
    """Return a step of training, whose outputs are read within."""
    random, g = np.random.default_rng(0), ag.Graph("step")
    h, labels = g.input("x", "f32[8,4]"), g.input("labels", "i64[8]")
    for k, shape in enumerate([(4, 16), (16, 3)]):
        w = g.variable(f"w{k}", random.standard_normal(shape).astype(np.float32))
        h = g(MatMul(), g(Relu(), h), w)
        g.output(f"h{k}", h)
    g.output("loss", train.cross_entropy(g, h, labels))
    stages = run_stages(
        training_step(g, "loss", train.SGD(0.1, momentum=0.9), Rules(guard=guard)),
        ag.Target.parse("cpu"), ag.Options(),
    )  # fmt: skip
    return next(p for stage, p in stages if stage.name == "schedule")


@pytest.mark.parametrize("guard", [False, True])
def test_every_order_of_a_step_computes_the_same(guard: bool) -> None:
    random, program = Random(4), step(guard)
    x = np.random.default_rng(1).standard_normal((8, 4), np.float32)
    feeds = {"x": x, "labels": np.arange(8) % 3, RATE: np.asarray(0.1)}
    expected = interpret(program, feeds)
    units = Units(program)
    graph = units.graph_of(tuple(range(len(units.all))))
    drawn = [tuple(random_order(random, graph)) for _ in range(20)]
    for order in (*drawn, *(lives.order for lives in smaller(units))):
        other = units.program_of(order)
        verify(other, properties_after("schedule"))
        found = interpret(other, feeds)
        assert all((found[name] == expected[name]).all() for name in expected)


def test_sums_take_less_with_the_same_bits() -> None:
    """Sums over an image, which only a variable waits for, need not wait themselves."""
    g = ag.Graph("sums")
    x = g.input("x", "f32[256]")
    wide = [x]
    for _ in range(4):
        wide.append(g(CumSum(0), wide[-1]))
    last = g(ReduceMax((0,), False), wide[-1])
    for k, y in enumerate(wide[1:]):
        g.output(f"y{k}", g(Mul(), g(ReduceSum((0,), False), y), last))
    given = schedule(g)
    units = Units(given)
    late = units.program_of(tuple(sorted(
        range(len(units.all)), key=lambda k: type(units.all[k].instrs[0].op) is ReduceSum
        or type(units.all[k].instrs[0].op) is Mul,
    )))  # fmt: skip
    found = reorder(late)
    feeds = {"x": np.linspace(0, 1, 256, dtype="f4")}

    assert arena_of(found) <= arena_of(given) < arena_of(late)
    before, after = interpret(late, feeds), interpret(found, feeds)
    assert all((before[name] == after[name]).all() for name in before)
