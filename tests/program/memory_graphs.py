"""Graphs for the planners of memory, drawn and made, and what orders of their nodes take."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from random import Random

from alpenglow.program.order import MemoryGraph


def random_graph(random: Random, nodes: int, reach: int) -> MemoryGraph:
    """Nodes that read mostly the last `reach` values; values 0 and 1 are inputs of the graph."""
    inputs, outputs = [], []
    sizes = [0, 0]
    for _ in range(nodes):
        recent = range(max(0, len(sizes) - reach), len(sizes))
        near = [random.choice(recent) for _ in range(random.randrange(4))]
        far = [random.randrange(len(sizes))] if random.random() < 0.1 else []
        count = random.choice([0, 1, 1, 1, 1, 1, 2, 3])
        inputs.append(tuple(near + far))
        outputs.append(tuple(range(len(sizes), len(sizes) + count)))
        sizes += [random.choice([0, 1, 5, 20, 50]) for _ in range(count)]
    keep = frozenset(v for v in range(2, len(sizes)) if random.random() < 0.05)
    return MemoryGraph(tuple(inputs), tuple(outputs), tuple(sizes), keep)


def chain_of_blocks(count: int) -> MemoryGraph:
    """Blocks of four nodes: a branch from 10 bytes to 30 and 30, one from the same to 2, a join."""
    inputs: list[tuple[int, ...]] = [()]
    sizes = [10]
    for _ in range(count):
        x = len(sizes) - 1
        inputs += [(x,), (x + 1,), (x,), (x + 2, x + 3)]
        sizes += [30, 30, 2, 10]
    outputs = tuple((v,) for v in range(len(sizes)))
    return MemoryGraph(tuple(inputs), outputs, tuple(sizes), frozenset({len(sizes) - 1}))


def random_order(random: Random, graph: MemoryGraph) -> list[int]:
    order: list[int] = []
    while len(order) < len(graph.inputs):
        order.append(random.choice(ready_nodes(graph, frozenset(order))))
    return order


def ready_nodes(graph: MemoryGraph, done: frozenset[int]) -> list[int]:
    made = {v for node in done for v in graph.outputs[node]} | inputs_of(graph)
    return [n for n, read in enumerate(graph.inputs) if n not in done and made >= set(read)]


def live_values(graph: MemoryGraph, done: frozenset[int]) -> set[int]:
    made = {v for node in done for v in graph.outputs[node]}
    wanted = {v for node, read in enumerate(graph.inputs) if node not in done for v in read}
    return made & (wanted | graph.keep)


def inputs_of(graph: MemoryGraph) -> set[int]:
    return set(range(len(graph.sizes))) - {v for values in graph.outputs for v in values}


def nbytes(graph: MemoryGraph, values: Iterable[int]) -> int:
    return sum(graph.sizes[v] for v in values)


def peak_of(graph: MemoryGraph, order: Iterable[int]) -> int:
    """The peak by definition; also asserts that the order is topological and complete."""
    peak, done = 0, frozenset[int]()
    for node in order:
        assert node in ready_nodes(graph, done)
        peak = max(peak, nbytes(graph, live_values(graph, done) | set(graph.outputs[node])))
        done |= {node}
    assert len(done) == len(graph.inputs)
    return peak


def best_of_all(graph: MemoryGraph) -> int:
    """The least peak of all orders."""

    @cache
    def least(done: frozenset[int]) -> int:
        live = nbytes(graph, live_values(graph, done))
        return min(
            (
                max(live + nbytes(graph, graph.outputs[node]), least(done | {node}))
                for node in ready_nodes(graph, done)
            ),
            default=0,
        )

    return least(frozenset())
