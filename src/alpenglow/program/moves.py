"""Moving nodes in an order, so that what waits for its readers does not wait where most is alive.

The gradients of filters, say, are small, but each takes two images that are kept until it is
computed; a search through whole orders does not get so far in a program of thousands of nodes.
Here, again and again, the moment with the most alive is looked at.  Of what is only kept there, the
largest first, the readers are moved ahead of that moment, with all that they wait for, and with
readers of what they make, until more dies than is made.  Or what makes a value is moved behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alpenglow.program.order import MemoryGraph

LARGEST = 100
"""How many nodes move together at most."""

SMALL = 16
"""What is so many times smaller than the value that waits may wait instead of it."""

FEW = 32
"""How many values are looked at, the largest of those that wait."""

LOOKS = 4000
"""How many orders are looked at in all."""

Ints = NDArray[np.int64]


def moved(graph: MemoryGraph, order: Sequence[int], enough: int = 0) -> tuple[int, ...]:
    """Return an order of all nodes that takes no more at once than the given one.

    Nothing is looked for below `enough` bytes.
    """
    if not graph.makers:
        return tuple(order)
    sums = _Sums(graph)
    now, looks = sums.of(np.array(order, np.int64)), LOOKS
    while now.worst[0] > enough and looks > 0:
        for move in _moves(sums, now):
            looks -= 1
            found = sums.of(move)
            if found.worst < now.worst:
                now = found
                break
        else:
            break
    return tuple(now.order.tolist())


@dataclass(frozen=True, eq=False)
class _Alive:
    """What is alive when: the place of each node, where values are made and read last, and bytes.

    `worst` tells how much is alive at most, and how often.
    """

    order: Ints
    places: Ints
    births: Ints
    lasts: Ints
    alive: Ints
    worst: tuple[int, int]


class _Sums:
    """The values of a graph as arrays, of which what is alive is summed up quickly."""

    def __init__(self, graph: MemoryGraph) -> None:
        self.graph = graph
        self.count = len(graph.inputs)
        self.values = list(graph.makers)
        number = {v: i for i, v in enumerate(self.values)}
        self.makers = np.array([graph.makers[v] for v in self.values], np.int64)
        self.sizes = np.array([graph.sizes[v] for v in self.values], np.int64)
        self._kept = np.array([v in graph.keep for v in self.values], bool)
        used = [[graph.makers[v], *graph.readers[v]] for v in self.values]
        self._users = np.array([n for nodes in used for n in nodes], np.int64)
        self._begins = np.cumsum([0, *map(len, used)][:-1], dtype=np.int64)
        pairs = [(n, number[v]) for n, vs in enumerate(graph.shares) for v in vs]
        self._sharing = np.array(pairs, np.int64).reshape(-1, 2).T
        self.before = [sorted({graph.makers[v] for v in reads}) for reads in graph.reads]
        self.after: list[list[int]] = [[] for _ in self.before]
        for n, makers in enumerate(self.before):
            for m in makers:
                self.after[m].append(n)

    def of(self, order: Ints) -> _Alive:
        """Return what is alive when the nodes run in an order."""
        count = self.count
        places = np.empty(count, np.int64)
        places[order] = np.arange(count)
        births = places[self.makers]
        lasts = np.maximum.reduceat(places[self._users], self._begins)
        lasts[self._kept] = count - 1
        change = np.zeros(count + 1, np.int64)
        np.add.at(change, births, self.sizes)
        np.subtract.at(change, lasts + 1, self.sizes)
        alive = np.cumsum(change)[:-1] - self._taken_over(places, lasts)
        most = int(alive.max())
        return _Alive(
            order, places, births, lasts, alive, (most, int(np.count_nonzero(alive == most)))
        )

    def _taken_over(self, places: Ints, lasts: Ints) -> Ints:
        """Return at each place the size of an operand whose memory the result takes over."""
        nodes, values = self._sharing
        dying = lasts[values] == places[nodes]
        taken = np.zeros(self.count, np.int64)
        np.maximum.at(taken, places[nodes[dying]], self.sizes[values[dying]])
        return taken


def _moves(sums: _Sums, now: _Alive) -> Iterator[Ints]:
    """Yield orders in which something does not wait where most is alive."""
    worst, places = int(now.alive.argmax()), now.places.tolist()
    waits = np.flatnonzero((now.births < worst) & (now.lasts > worst) & (sums.sizes > 0))
    largest = waits[np.argsort(-sums.sizes[waits], kind="stable")][:FEW]
    for value in (sums.values[i] for i in largest.tolist()):
        for group in _ahead(sums, places, value, worst):
            needs = (places[m] for n in group for m in sums.before[n] if m not in group)
            yield from _placed(now, group, max(needs, default=-1) + 1, worst)
        if group := _behind(sums, places, value, worst):
            others = (places[m] for n in group for m in sums.after[n] if m not in group)
            yield from _placed(now, group, worst + 1, min(others, default=sums.count))


def _placed(now: _Alive, group: Iterable[int], first: int, last: int) -> Iterator[Ints]:
    """Yield the order with a group of nodes before some place from the first to the last."""
    members = np.zeros(len(now.order), bool)
    members[list(group)] = True
    inside = members[now.order]
    lowest = first + int(now.alive[first : last + 1].argmin())
    for place in sorted({first, lowest, last}):
        yield np.concatenate([
            now.order[:place][~inside[:place]], now.order[inside],
            now.order[place:][~inside[place:]],
        ])  # fmt: skip


def _ahead(sums: _Sums, places: list[int], value: int, worst: int) -> Iterator[set[int]]:
    """Yield nodes that may run before the worst place so that a value, or more, need not wait."""
    group = _Group(sums, places, worst)
    wanted = value
    while group.add_readers(wanted):
        if group.made < group.freed:
            yield group.nodes
        larger = [v for v in group.waiting if sums.graph.sizes[v] * SMALL > sums.graph.sizes[value]]
        if not larger:
            return
        wanted = max(larger, key=sums.graph.sizes.__getitem__)


def _behind(sums: _Sums, places: list[int], value: int, worst: int) -> set[int]:
    """Return the nodes that make a value and what it is read for until the worst place, if they may
    run after that; else nothing."""
    group = {sums.graph.makers[value]}
    todo = list(group)
    while todo:
        for n in sums.after[todo.pop()]:
            if places[n] == worst or len(group) > LARGEST:
                return set()
            if places[n] < worst and n not in group:
                group.add(n)
                todo.append(n)
    return group


class _Group:
    """Nodes that move ahead of a place together."""

    def __init__(self, sums: _Sums, places: list[int], worst: int) -> None:
        self.graph, self.before = sums.graph, sums.before
        self.places, self.worst = places, worst
        self.nodes: set[int] = set()
        self.waiting: dict[int, int] = {}
        """What the nodes make for others, and how many others read it."""
        self.made = 0
        """How many bytes that is."""
        self.freed = 0
        """How many bytes of what others make die with these nodes."""
        self._left: dict[int, int] = {}

    def add_readers(self, value: int) -> bool:
        """Add what reads a value after the place, and all that this waits for; whether it may."""
        if value in self.graph.keep:
            return False
        todo = [n for n in self.graph.readers[value] if self._is_late(n)]
        for n in todo:
            self._add(n)
        while todo:
            for m in self.before[todo.pop()]:
                if self.places[m] == self.worst or len(self.nodes) > LARGEST:
                    return False
                if self._is_late(m):
                    self._add(m)
                    todo.append(m)
        return True

    def _is_late(self, node: int) -> bool:
        return self.places[node] > self.worst and node not in self.nodes

    def _add(self, node: int) -> None:
        graph = self.graph
        self.nodes.add(node)
        for v in graph.reads[node]:
            if v in self.waiting:
                self.waiting[v] -= 1
                if not self.waiting[v]:
                    self._is_read(v)
            elif graph.makers[v] not in self.nodes:
                if v not in self._left:
                    self._left[v] = sum(self.places[n] >= self.worst for n in graph.readers[v])
                self._left[v] -= 1
                if not self._left[v] and v not in graph.keep:
                    self.freed += graph.sizes[v]
        for v in graph.outputs[node]:
            if v in self._left and not self._left.pop(v) and v not in graph.keep:
                self.freed -= graph.sizes[v]
            others = sum(n not in self.nodes for n in graph.readers[v])
            if others or v in graph.keep:
                self.waiting[v] = others
                self.made += graph.sizes[v]

    def _is_read(self, value: int) -> None:
        if value not in self.graph.keep:
            del self.waiting[value]
            self.made -= self.graph.sizes[value]
