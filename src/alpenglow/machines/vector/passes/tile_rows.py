"""Bands: convolutions that Winograd's way computes through much memory run a few rows at a time.

The transformed patches of an image and their products are each larger than the image.  Where they
do not fit into the cache, they are written to memory and read again; a band of rows of patches at
a time, they stay in the cache, and its memory is used again for the next.  What is elementwise
after it goes with each band, and so does a pool of rows after that: then the image before the pool
is never in memory as a whole.  The price is that filters are read once for each band: layers with
many channels, which have large filters and small images, keep the whole image.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from alpenglow.ir.dims import is_open
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.target import Target
from alpenglow.machines.vector.operators.winograd import (
    WinogradInput,
    WinogradOutput,
    WinogradProduct,
)
from alpenglow.ops.tensor.movement import Broadcast, Concat, Slice
from alpenglow.ops.window.pooling import MaxPool

PART = 4
"""A band may have one part of the cache in so many for its patches and products."""

READS = 5
"""How many bytes of filters may be read for each byte of patches and products: they come from a
farther cache too, but in one piece and asked for ahead."""

ROWS = 2
"""The axis of rows in a blocked image."""


def split_bands(g: Graph, target: Target) -> Graph:
    """Run Winograd convolutions of large images with few weights a band of rows at a time.

    Images are large whose patches and products leave the cache, if there is one.
    """
    cache = target.facts.cache
    if not cache:
        return g
    for node in list(g.nodes):
        match node:
            case Node(
                WinogradOutput(),
                [Value(Node(WinogradProduct(), [Value(Node(WinogradInput(), [x])) as v, u])) as m],
            ):
                assert x is not None and u is not None
                band = Banded(node, x, v, u)
                alone = g.users(v) == g.users(m) == 1 and not any(map(is_open, v.type.shape))
                if alone and (rows := band.rows(cache)):
                    band.split(g, rows)
    g.prune()
    return g


@dataclass(frozen=True, slots=True)
class Banded:
    """A Winograd convolution: its result, padded image x, transformed patches v and filters u."""

    node: Node
    x: Value
    v: Value
    u: Value

    def rows(self, cache: int) -> int:
        """Return how many rows of patches a band should have; 0 if there should be no bands."""
        m = self.node.inputs[0]
        assert m is not None
        moved = self.v.type.nbytes + m.type.nbytes
        tall = -(-self.node.output.type.extents[ROWS] // self._block())
        rows = max(1, cache // PART * tall // moved)
        read = -(-tall // rows) * self.u.type.nbytes
        return 0 if moved <= cache or read > READS * moved else rows

    def split(self, g: Graph, rows: int) -> None:
        """Replace the convolution, and what goes with it, by one for each band."""
        block = self._block()
        height = self.node.output.type.extents[ROWS]
        step = rows * block
        chain = _chain(g, self.node, step)
        (product,) = self.v.users
        bands: list[Value] = []
        for start in range(0, height, step):
            own = min(step, height - start)
            covered = -(-own // block) * block
            patches = g(WinogradInput(block), _rows(g, self.x, start, covered + 2))
            output = self.node.op
            assert isinstance(output, WinogradOutput)
            y = g(replace(output, height=own), g(product.op, patches, self.u))
            bands.append(_along(g, chain, y, start, own))
        whole = g(Concat(ROWS), *bands)
        last = chain[-1].output
        whole.name = last.name
        g.replace(last, whole)

    def _block(self) -> int:
        producer = self.v.producer
        assert producer is not None and isinstance(producer.op, WinogradInput)
        return producer.op.block


def _chain(g: Graph, node: Node, step: int) -> list[Node]:
    """Return the node, the elementwise nodes behind it, each the only user of the last, and a pool
    of bands of `step` rows."""
    chain = [node]
    while True:
        y = chain[-1].output
        user = next(iter(y.users), None)
        if user is None or g.users(y) > 1:
            return chain
        if isinstance(user.op, MaxPool) and _parts(user.op, step, y.type.extents[ROWS]):
            return [*chain, user]
        if not isinstance(user.op, Elementwise):
            return chain
        if len(user.results) != 1 or user.output.type.shape != y.type.shape:
            return chain
        chain.append(user)


def _parts(op: MaxPool, step: int, height: int) -> bool:
    """Whether the windows of a pool lie side by side, none across the end of `step` rows."""
    rows = op.strides[0]
    alone = op.kernel[0] == rows and op.dilations[0] == 1 and op.pads[:: len(op.kernel)] == (0, 0)
    return alone and step % rows == 0 and height % rows == 0


def _along(g: Graph, chain: Sequence[Node], y: Value, start: int, rows: int) -> Value:
    """Return what the nodes of a chain make of a band y of the first one's result."""
    for before, node in itertools.pairwise(chain):
        operands = [y if v is before.output else None if v is None else _band(g, v, start, rows)
                    for v in node.inputs]  # fmt: skip
        y.name = before.output.name
        y = g(node.op, *operands)
    return y


def _band(g: Graph, v: Value, start: int, rows: int) -> Value:
    """Return a band of an operand; of one that repeats its rows, as many as there are."""
    match v:
        case Value(Node(Broadcast(shape=shape) as op, [Value() as x])):
            if x.type.rank < v.type.rank or x.type.shape[ROWS] == 1:
                return g(replace(op, shape=(*shape[:ROWS], rows, *shape[ROWS + 1 :])), x)
    return _rows(g, v, start, rows)


def _rows(g: Graph, v: Value, start: int, rows: int) -> Value:
    starts, sizes = [0] * v.type.rank, list(v.type.extents)
    starts[ROWS], sizes[ROWS] = start, rows
    return g(Slice(tuple(starts), tuple(sizes), (1,) * v.type.rank), v)
