"""The schedule of a graph: what runs, in order, and what crosses where it is cut.

What depends on constants alone is computed when a part is compiled, so it is in no schedule: each
part has what it reads of that.  A cut at position p parts the first p nodes from the others.  What
nodes on both sides know crosses; inputs come from before the first node, outputs are read after the
last one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.words import shown
from alpenglow.compiler import require_closed
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.types import Array


@dataclass(frozen=True, slots=True)
class Life:
    """The bytes of a value, the node that makes it (-1: an input), and those that read it; one past
    the last node stands for the caller."""

    value: Value
    nbytes: int
    maker: int
    readers: tuple[int, ...]


class Schedule:
    """The nodes of a graph that run, in its order; every value has a name of its own."""

    def __init__(self, graph: Graph) -> None:
        """Raise UnsupportedError if the graph is not one function of its inputs."""
        check_placeable(graph)
        self.graph = graph.copy()
        self.graph.prune()
        varying = set(self.graph.inputs.values())
        self.nodes: list[Node] = []
        for node in self.graph.nodes:
            if any(v in varying for v in node.inputs) or not node.op.pure:
                self.nodes.append(node)
                varying.update(node.results)
        _name(self.graph)
        self.number = {node: k for k, node in enumerate(self.nodes)}

    def name(self, k: int) -> str:
        """Return what a node is called: its first result."""
        return self.nodes[k].results[0].name

    @cached_property
    def lives(self) -> list[Life]:
        """All values that nodes make or that are inputs, as far as anybody reads them."""
        values = [(-1, v) for v in self.graph.inputs.values()]
        values += [(k, v) for k, node in enumerate(self.nodes) for v in node.results]
        outputs = set(self.graph.outputs.values())
        lives: list[Life] = []
        for maker, v in values:
            readers = sorted(self.number[user] for user in v.users if user in self.number)
            readers += [len(self.nodes)] if v in outputs else []
            if readers:
                lives.append(Life(v, nbytes(v), maker, tuple(readers)))
        return lives

    def constants(self, k: int) -> Iterator[Value]:
        """Yield the constants that a node reads, through nodes of constants alone."""
        pending, seen = [self.nodes[k]], set[Value]()
        while pending:
            for v in pending.pop().inputs:
                if v is None or v in seen:
                    continue
                seen.add(v)
                if v.array is not None:
                    yield v
                elif v.producer is not None and v.producer not in self.number:
                    pending.append(v.producer)


def check_placeable(graph: Graph) -> None:
    """Raise UnsupportedError if a graph cannot be cut into functions of what crosses."""
    require_closed(graph)
    if graph.initial:
        raise UnsupportedError(
            f"{shown(graph.name)} has variables ({', '.join(graph.initial)}), which are not placed",
            hint="compile it for one worker",
        )
    if any(v.hidden for v in graph.inputs.values()):
        raise UnsupportedError(
            f"placing {shown(graph.name)}, which draws random numbers, is not supported",
            hint="compile it for one worker",
        )


def _name(graph: Graph) -> None:
    """Give each value that runs a name that no other has: the caller's, where it has one."""
    taken = {*graph.inputs, *graph.outputs}
    theirs = {v: name for name, v in reversed(graph.outputs.items()) if name not in graph.inputs}
    for name, v in graph.inputs.items():
        v.name = name
    for v in (v for node in graph.nodes for v in node.results):
        name, k = theirs.get(v, v.name or "value"), 0
        while v not in theirs and name in taken:
            k += 1
            name = f"{v.name or 'value'}_{k}"
        taken.add(name)
        v.name = name


def nbytes(v: Value) -> int:
    """Return the bytes of a value whose extents are numbers."""
    return math.prod(v.type.extents) * v.type.numpy.itemsize


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of a stage from position i to j, each an array [i, j] over chosen positions.

    `into` and `out` are what it reads of others and leaves to them.  `weights` are its constants,
    `alive` what it holds at least at once besides: values that nobody else knows.
    """

    into: Array
    out: Array
    weights: Array
    alive: Array


def traffic(s: Schedule, positions: Sequence[int]) -> Traffic:
    """Return the bytes of all stages between positions, which begin with 0 and end with the last.

    A value counts in the part between two positions that makes or reads it.
    """
    n = len(positions) - 1
    part = np.searchsorted(positions, np.arange(len(s.nodes) + 1), side="right") - 1
    into, out = np.zeros((n + 2, n + 2)), np.zeros((n + 2, n + 2))
    inner: list[list[tuple[int, float]]] = [[] for _ in range(n)]
    for life in s.lives:
        maker = -1 if life.maker < 0 else int(part[life.maker])
        readers = sorted({n if r == len(s.nodes) else int(part[r]) for r in life.readers})
        before = maker
        for r in (r for r in readers if r < n and r > maker):
            # Read by stages that begin behind whoever knew it before, and that hold this reader.
            _add(into, (before + 1, r), (r + 1, n), life.nbytes)
            before = r
        if maker >= 0 and readers[-1] > maker:
            _add(out, (0, maker), (maker + 1, readers[-1]), life.nbytes)
            if readers[-1] < n:
                inner[maker].append((readers[-1], life.nbytes))
    return Traffic(_summed(into), _summed(out), _weights(s, part, n), _alive(inner))


def _add(changes: Array, rows: tuple[int, int], columns: tuple[int, int], amount: float) -> None:
    """Add an amount to a rectangle, ends included, of what `_summed` makes of changes."""
    (a, b), (c, d) = rows, columns
    changes[a, c] += amount
    changes[b + 1, c] -= amount
    changes[a, d + 1] -= amount
    changes[b + 1, d + 1] += amount


def _summed(changes: Array) -> Array:
    total: Array = changes.cumsum(0).cumsum(1)[:-1, :-1]
    return total


def _weights(s: Schedule, part: Array, n: int) -> Array:
    """Return the bytes of the constants of stages; one that two nodes share counts once."""
    changes = np.zeros((n + 2, n + 2))
    readers: dict[Value, set[int]] = {}
    for k in range(len(s.nodes)):
        for v in s.constants(k):
            readers.setdefault(v, set()).add(int(part[k]))
    for v, parts in readers.items():
        before = -1
        for r in sorted(parts):
            _add(changes, (before + 1, r), (r + 1, n), nbytes(v))
            before = r
    return _summed(changes)


def _alive(inner: Sequence[Sequence[tuple[int, float]]]) -> Array:
    """Return the most bytes that a stage holds at one of the positions inside it.

    `inner[a]` lists values that part a makes: the last part that reads each, and its bytes.
    """
    n = len(inner)
    most = np.zeros((n + 1, n + 1))
    at = np.zeros((n + 1, n + 1))  # [p, j]: what stages to j hold at position p
    for i in range(n - 1, -1, -1):
        for last, nbytes in inner[i]:
            at[i + 1 : last + 1, last + 1 :] += nbytes
        most[i] = at.max(axis=0)
    return most
