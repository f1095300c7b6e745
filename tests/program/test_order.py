"""Orders are topological, never worse than the given one, and optimal on every small graph."""

from __future__ import annotations

from random import Random
from time import process_time

import pytest
from memory_graphs import best_of_all, chain_of_blocks, peak_of, random_graph, random_order

from alpenglow.program.order import MemoryGraph, Order, best_order


def test_small_graphs_get_an_order_as_good_as_any() -> None:
    random = Random(0)
    for _ in range(300):
        graph = random_graph(random, random.randrange(11), random.choice([2, 4, 8, 20]))
        order = best_order(graph)

        assert order.peak == peak_of(graph, order.nodes) == best_of_all(graph), graph
        assert order.exact, graph


@pytest.mark.rest
def test_large_graphs_get_a_topological_order_no_worse_than_the_given_one() -> None:
    random = Random(1)
    for nodes, reach in [(60, 30), (60, 300), (150, 8), (150, 40)]:
        graph = random_graph(random, nodes, reach)
        order = best_order(graph)

        assert order.peak == peak_of(graph, order.nodes)
        assert order.lower_bound <= order.peak <= peak_of(graph, range(nodes))


@pytest.mark.rest
def test_the_bound_is_not_above_the_peak_of_random_orders() -> None:
    random = Random(2)
    for _ in range(20):
        graph = random_graph(random, 40, 12)
        bound = best_order(graph).lower_bound

        assert all(bound <= peak_of(graph, random_order(random, graph)) for _ in range(20))


def test_a_long_chain_of_blocks_is_cut_and_solved_exactly() -> None:
    graph = chain_of_blocks(100)
    order = best_order(graph)

    # The short branch runs first and frees the 10; then the long one needs 2 + 30 + 30.
    assert order == Order(order.nodes, peak=62, lower_bound=62)
    assert peak_of(graph, order.nodes) == 62
    assert peak_of(graph, range(len(graph.inputs))) == 70


def test_a_branch_that_frees_much_runs_before_one_that_holds_much() -> None:
    # Nodes 0 and 1 make 8 each; 2 and 3 turn one of them into 1; 4 reads both results.
    graph = MemoryGraph(
        inputs=((0,), (0,), (1,), (2,), (3, 4)),
        outputs=((1,), (2,), (3,), (4,), (5,)),
        sizes=(100, 8, 8, 1, 1, 1),
        keep=frozenset({5}),
    )

    order = best_order(graph)

    assert order.nodes in [(0, 2, 1, 3, 4), (1, 3, 0, 2, 4)]
    assert order.peak == order.lower_bound == 10


def test_kept_values_stay_and_values_nobody_reads_go() -> None:
    graph = MemoryGraph(((), (), ()), ((0,), (1,), (2,)), (5, 7, 9), frozenset({0}))

    # The two that go run before the one that stays, or 5 + 9 would be live at once.
    assert best_order(graph).peak == 9
    assert best_order(graph).nodes[-1] == 0


def test_an_empty_graph_has_an_empty_order() -> None:
    assert best_order(MemoryGraph((), (), ())) == Order((), peak=0, lower_bound=0)


def test_the_same_graph_gets_the_same_order() -> None:
    first, second = (best_order(random_graph(Random(7), 120, 30)) for _ in range(2))

    assert first == second


def test_nodes_that_read_what_is_made_later_are_refused() -> None:
    with pytest.raises(AssertionError, match="node 0 reads values"):
        MemoryGraph(((1,), ()), ((0,), (1,)), (1, 1))


@pytest.mark.rest
def test_a_thousand_nodes_take_a_fraction_of_a_second() -> None:
    graph = random_graph(Random(8), 1000, 12)
    before = process_time()
    best_order(graph)

    # It takes about 0.2 s; the room is for a slow machine.
    assert process_time() - before < 4
