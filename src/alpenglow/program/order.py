"""The order of execution that needs the least memory at once.

Every topological order computes the same; they differ in how much is live together.  After a set
of nodes has run, the live bytes depend on the set alone.  So an order is a path through the sets
that are closed under predecessors, and the best is a path whose largest step is smallest.

Three things keep the sets few.  The graph is cut wherever every order must pass the same set,
and only pieces that decide the peak are searched.  A node that frees at least what it adds, and
stays below the peak that is reached anyway, runs at once: that only helps what follows.  And no set
is followed that cannot beat the best order known: the given one, then depth first, then that of a
beam search.  Where the limit suffices the result is proved optimal; elsewhere the search has at
least raised the lower bound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from heapq import heappop, heappush, nsmallest
from itertools import pairwise
from operator import or_
from typing import NamedTuple

_WIDEST = 32
"""How many sets a beam search follows at once, at most."""

_LONGEST = 4096
"""Pieces of more nodes stay in the given order: sets of nodes take memory too."""

_LOOKS = 40_000
"""How many times all searches but the greedy ones together may consider running a node."""


@dataclass(frozen=True)
class MemoryGraph:
    """Nodes in some topological order: the values each reads and makes, the bytes of each value.

    A value that no node makes is an input of the graph, and counts nothing.  Any other is live from
    the node that makes it to the last that reads it; if it is in `keep`, to the end.  Where a value
    that a node `shares` is read last, what the node makes may take over its memory: `moves` count
    that, the search here does not.
    """

    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    keep: frozenset[int] = frozenset()
    shares: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        assert len(self.inputs) == len(self.outputs), "inputs and outputs are not of the same nodes"
        assert len(self.makers) == sum(map(len, self.outputs)), "a value is made twice"
        assert all(size >= 0 for size in self.sizes), "a value has a negative size"
        for node, values in enumerate(self.inputs):
            late = [v for v in values if self.makers.get(v, -1) >= node]
            assert not late, f"node {node} reads values {late}, which no earlier node makes"

    @cached_property
    def makers(self) -> dict[int, int]:
        """The node that makes each value."""
        return {value: node for node, values in enumerate(self.outputs) for value in values}

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """The values that each node reads and another made, each once."""
        return tuple(tuple(v for v in dict.fromkeys(r) if v in self.makers) for r in self.inputs)

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """The nodes that read each value that is made, in order."""
        readers: dict[int, list[int]] = {value: [] for value in self.makers}
        for node, values in enumerate(self.reads):
            for value in values:
                readers[value].append(node)
        return readers

    def lasts(self, value: int) -> bool:
        """Whether the value stays live after the node that made it has run."""
        return value in self.keep or bool(self.readers[value])

    def outlives(self, value: int, end: int) -> bool:
        """Whether the value stays live when the nodes before `end` have run."""
        return value in self.keep or (bool(self.readers[value]) and self.readers[value][-1] >= end)

    def readers_within(self, value: int, start: int, end: int) -> int:
        """The set of nodes from `start` to `end` that read the value, as bits from there on."""
        readers = self.readers[value]
        inside = readers[bisect_left(readers, start) : bisect_left(readers, end)]
        return _union(1 << w - start for w in inside)


@dataclass(frozen=True)
class Order:
    """A topological order, its peak of live bytes, and what no order's peak can go below."""

    nodes: tuple[int, ...]
    peak: int
    lower_bound: int

    @property
    def exact(self) -> bool:
        """Whether the order is proved optimal."""
        return self.peak == self.lower_bound


def best_order(graph: MemoryGraph) -> Order:
    """Choose an order of the nodes with a small peak of live bytes, never above the given one's.

    While a node runs, all it reads and makes is live.
    """
    spans = sorted(_spans(graph), key=lambda span: -span.peak)
    bound = 0
    for span in spans:
        if span.peak > bound:
            bound = max(bound, *_certain_bytes(graph, span))
    order = list(range(len(graph.inputs)))
    peak, reached, looks = 0, bound, _LOOKS
    for span in spans:
        if span.peak > reached and span.end - span.start <= _LONGEST:
            piece = _piece(graph, span)
            state = _follow(piece, range(len(piece.nodes)), 0)
            best = _improve(piece, state, reached, looks)
            looks = best.looks
            bound = max(bound, best.bound if best.bound > reached else 0)
            order[span.start : span.end] = (span.start + v for v in _nodes(best.state))
            span = span._replace(peak=best.state.peak)
        reached = max(reached, span.peak)
        peak = max(peak, span.peak)
    return Order(tuple(order), peak, bound)


class _Node(NamedTuple):
    """What running a node does; all sets of nodes, as bits, and nodes count from the piece's start.

    `before` are the nodes it waits for, `after` those that wait for it.  It adds `made` bytes, of
    which `stays` outlive it.  It frees each (other readers, size) of `reads` if these have run, so
    `frees` bytes at most.
    """

    before: int
    after: tuple[int, ...]
    made: int
    stays: int
    reads: tuple[tuple[int, int], ...]
    frees: int


class _Span(NamedTuple):
    """The nodes from `start` to `end`, in given order, between two sets that every order must pass.

    What is live before and, in the given order, at most.
    """

    start: int
    end: int
    live: int
    peak: int


class _Piece(NamedTuple):
    """The nodes of a span and what is live before."""

    nodes: tuple[_Node, ...]
    live: int


class _State(NamedTuple):
    """A set of nodes that has run: what is ready next, live now, was the peak, and the way here."""

    done: int
    ready: tuple[int, ...]
    live: int
    peak: int
    path: _Path | None


class _Path(NamedTuple):
    last: int
    path: _Path | None


class _Found(NamedTuple):
    """The best way through a piece, a bound on all ways, and the looks that are left."""

    state: _State
    bound: int
    looks: int


def _spans(graph: MemoryGraph) -> Iterator[_Span]:
    """Cut the graph after each prefix of the given order that every order must begin with."""
    left = {value: len(readers) for value, readers in graph.readers.items()}
    live = 0
    for start, end in pairwise(_cuts(graph)):
        before, peak = live, 0
        for node in range(start, end):
            outputs = graph.outputs[node]
            peak = max(peak, live + sum(graph.sizes[v] for v in outputs))
            live += sum(graph.sizes[v] for v in outputs if graph.lasts(v))
            for v in graph.reads[node]:
                left[v] -= 1
                live -= 0 if left[v] or v in graph.keep else graph.sizes[v]
        yield _Span(start, end, before, peak)


def _cuts(graph: MemoryGraph) -> list[int]:
    """Return the lengths of the prefixes for which each later node waits for all of the prefix.

    That is so where each node that could run next reads from each node of the prefix that no other
    of the prefix reads from: the pairs of these are counted as nodes join the prefix.
    """
    before = [{graph.makers[v] for v in values} for values in graph.reads]
    after: list[list[int]] = [[] for _ in before]
    for node, makers in enumerate(before):
        for maker in makers:
            after[maker].append(node)
    waits = [len(makers) for makers in before]
    last: set[int] = set()
    ready = {node for node, count in enumerate(waits) if not count}
    pairs, cuts = 0, [0]
    for node, makers in enumerate(before):
        ready.discard(node)
        pairs -= len(makers & last)
        for maker in makers & last:
            last.discard(maker)
            pairs -= sum(w in ready for w in after[maker])
        last.add(node)
        for w in after[node]:
            waits[w] -= 1
            if not waits[w]:
                ready.add(w)
                pairs += len(before[w] & last)
        if pairs == len(last) * len(ready):
            cuts.append(node + 1)
    return cuts


def _piece(graph: MemoryGraph, span: _Span) -> _Piece:
    start, end = span.start, span.end
    inside = range(start, end)
    touched = dict.fromkeys(v for n in inside for v in (*graph.reads[n], *graph.outputs[n]))
    readers = {v: graph.readers_within(v, start, end) for v in touched}
    nodes = []
    for node in inside:
        outputs, read = graph.outputs[node], graph.reads[node]
        dying = [v for v in read if not graph.outlives(v, end)]
        nodes.append(_Node(
            before=_union(1 << graph.makers[v] - start for v in read if graph.makers[v] >= start),
            after=tuple(_bits(_union(readers[v] for v in outputs))),
            made=sum(graph.sizes[v] for v in outputs),
            stays=sum(graph.sizes[v] for v in outputs if graph.lasts(v)),
            reads=tuple((readers[v] ^ 1 << node - start, graph.sizes[v]) for v in dying),
            frees=sum(graph.sizes[v] for v in dying),
        ))  # fmt: skip
    return _Piece(tuple(nodes), span.live)


def _improve(piece: _Piece, state: _State, reached: int, looks: int) -> _Found:
    """Look for a way through the piece whose peak is below the state's, though not below `reached`.

    The bound that is found holds for the graph where it is above `reached`.
    """
    deep = _follow(piece, _depth_first(piece), reached)
    greedy, spent = _beam(piece, deep._replace(peak=1 << 62), reached, 1)
    state = min(state, deep, greedy, key=lambda s: s.peak)
    width = min(_WIDEST, looks // 2 // spent)
    if width > 1 and state.peak > reached:
        state, spent = _beam(piece, state, reached, width, looks)
        looks -= spent
    if state.peak > reached:
        return _search(piece, state, reached, looks)
    return _Found(state, reached, looks)


def _depth_first(piece: _Piece) -> Iterator[int]:
    """Each node right after all it waits for; of that first what leaves most free again."""
    need: list[int] = []
    waits: list[list[int]] = []
    for node in piece.nodes:
        waits.append(sorted(_bits(node.before), key=lambda v: piece.nodes[v].stays - need[v]))
        held = most = 0
        for v in waits[-1]:
            most = max(most, held + need[v])
            held += piece.nodes[v].stays
        need.append(max(most, held + node.made))
    sinks = [v for v, node in enumerate(piece.nodes) if not node.after]
    stack = sorted(sinks, key=lambda v: need[v] - piece.nodes[v].stays)
    done = 0
    while stack:
        ahead = [v for v in waits[stack[-1]] if not done >> v & 1]
        if ahead:
            stack.append(ahead[0])
            continue
        yield (node_done := stack.pop())
        done |= 1 << node_done


def _beam(
    piece: _Piece, best: _State, reached: int, width: int, limit: int = 1 << 60
) -> tuple[_State, int]:
    """Follow the `width` sets with the lowest peaks, then the fewest live bytes, and count looks.

    The result is `best` if no way below its peak is found within the limit of looks.
    """
    beam = [_settle(piece, _start(piece, reached))]
    looks = 1
    while beam := [state for state in beam if state.peak < best.peak]:
        best = next((state for state in beam if not state.ready), best)
        looks += sum(len(state.ready) for state in beam)
        if looks > limit:
            break
        steps = [(*_outlook(piece, s, v), i, v) for i, s in enumerate(beam) for v in s.ready]
        sets: dict[int, _State] = {}
        for _, _, i, v in nsmallest(4 * width, steps):
            state = _settle(piece, _run(piece, beam[i], v))
            if state.peak < sets.get(state.done, best).peak:
                sets[state.done] = state
        beam = nsmallest(width, sets.values(), key=lambda state: (state.peak, state.live))
    return best, looks


def _search(piece: _Piece, best: _State, reached: int, looks: int) -> _Found:
    """Visit sets in order of the peak on the way there: the first that is complete is best."""
    start = _settle(piece, _start(piece, reached))
    peaks = {start.done: start.peak}
    heap = [(start.peak, 0, 0, start)]
    while heap:
        peak, _, _, state = heappop(heap)
        if not state.ready or looks < len(state.ready):
            return _Found(best if state.ready else state, peak, looks)
        looks -= len(state.ready)
        for v in state.ready if peak == peaks[state.done] else ():
            if _outlook(piece, state, v)[0] >= best.peak:
                continue
            child = _settle(piece, _run(piece, state, v))
            if child.peak < peaks.get(child.done, best.peak):
                peaks[child.done] = child.peak
                heappush(heap, (child.peak, -child.done.bit_count(), len(peaks), child))
    return _Found(best, best.peak, looks)


def _start(piece: _Piece, reached: int) -> _State:
    ready = tuple(v for v, node in enumerate(piece.nodes) if not node.before)
    return _State(0, ready, piece.live, reached, None)


def _follow(piece: _Piece, nodes: Iterable[int], reached: int) -> _State:
    """Run the nodes in this order."""
    return reduce(lambda state, v: _run(piece, state, v), nodes, _start(piece, reached))


def _settle(piece: _Piece, state: _State) -> _State:
    """Run every node that is free or has no rival."""
    while (v := _harmless(piece, state)) is not None:
        state = _run(piece, state, v)
    return state


def _harmless(piece: _Piece, state: _State) -> int | None:
    """A ready node that does not raise the peak and frees what it adds, or is the only one.

    Take any order that goes on from here, and move this node to its front.  Up to its old place
    the live bytes become less or stay; from there on nothing changes.
    """
    if len(state.ready) == 1:
        return state.ready[0]
    room = state.peak - state.live
    for v in state.ready:
        node = piece.nodes[v]
        fits = node.made <= room and node.stays <= node.frees
        if fits and _outlook(piece, state, v)[1] <= state.live:
            return v
    return None


def _run(piece: _Piece, state: _State, v: int) -> _State:
    done = state.done | 1 << v
    peak, live = _outlook(piece, state, v)
    ready = [w for w in state.ready if w != v]
    for w in piece.nodes[v].after:
        if not piece.nodes[w].before & ~done:
            ready.append(w)
    return _State(done, tuple(ready), live, peak, _Path(v, state.path))


def _outlook(piece: _Piece, state: _State, v: int) -> tuple[int, int]:
    """The peak and the live bytes after running a node."""
    node = piece.nodes[v]
    live = state.live + node.stays
    for readers, size in node.reads:
        if not readers & ~state.done:
            live -= size
    return max(state.peak, state.live + node.made), live


def _nodes(state: _State) -> list[int]:
    """The nodes on the way to a state, first to last."""
    nodes = []
    path = state.path
    while path:
        nodes.append(path.last)
        path = path.path
    return nodes[::-1]


def _certain_bytes(graph: MemoryGraph, span: _Span) -> list[int]:
    """For each node of a span the bytes that are live while it runs in every order.

    A value is, if the node comes after its maker, and it stays to the end or a reader is the node
    itself or comes after it.
    """
    start, end = span.start, span.end
    inside = range(start, end)
    if len(inside) > _LONGEST:
        touched = ({*graph.outputs[n], *graph.reads[n]} for n in inside)
        return [sum(graph.sizes[v] for v in values) for values in touched]
    ancestors: list[int] = []
    for node in inside:
        makers = (graph.makers[v] - start for v in graph.reads[node])
        ancestors.append(_union(ancestors[m] | 1 << m for m in makers if m >= 0))
    values = dict.fromkeys(v for n in inside for v in (*graph.reads[n], *graph.outputs[n]))
    readers = {v: graph.readers_within(v, start, end) for v in values}
    followers = [0] * len(inside)
    for node in reversed(inside):
        after = _bits(_union(readers[v] for v in graph.outputs[node]))
        followers[node - start] = _union(followers[w] | 1 << w for w in after)
    certain = [0] * len(inside)
    through = span.live
    for value in values:
        maker, size = graph.makers[value] - start, graph.sizes[value]
        if maker < 0 and graph.outlives(value, end):
            continue
        through -= size if maker < 0 else 0
        needed = _union(ancestors[w] | 1 << w for w in _bits(readers[value]))
        needed = -1 if graph.outlives(value, end) else needed
        lives = needed if maker < 0 else followers[maker] & needed | 1 << maker
        for node in _bits(lives) if size else ():
            certain[node] += size
    return [through + nbytes for nbytes in certain]


def _union(sets: Iterable[int]) -> int:
    return reduce(or_, sets, 0)


def _bits(nodes: int) -> Iterator[int]:
    """The members of a set, lowest first."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest
