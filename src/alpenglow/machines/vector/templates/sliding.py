"""Sums over a window that slides along a blocked tensor: what direct convolutions share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Const, Expr
from alpenglow.loops.instruction import Frame
from alpenglow.machines.vector.templates.products import Products
from alpenglow.machines.vector.templates.tile import Tile, is_far

Range = tuple[Expr, Expr]
"""The first of the taps of an axis that count, and how many do."""

Block = Callable[[Expr, int], None]
"""Adds the products with a block of input channels, of which so many lanes are used."""


class Sliding:
    """The operands of a convolution: blocked x and weights from PackConv."""

    def __init__(
        self, k: Frame, taps: Sequence[int], dilations: Sequence[int], kind: Products,
        lanes: int, target: Target,
    ) -> None:  # fmt: skip
        """`taps` are the extents of the window, `lanes` those of a block of the result."""
        self.k, self.taps, self.dilations, self.kind = k, taps, dilations, kind
        self.x, self.w = k.inputs[:2]
        spatial = len(taps)
        _, self.in_blocks, *_, steps, width = self.w.region.shape[: spatial + 4]
        self.in_lanes, self.lanes, self.cols = steps * kind.dots, lanes, width // lanes
        self.panel = self.in_blocks * math.prod(taps) * self.in_lanes * width
        """How many weights a panel of outputs has."""
        self.target = target
        self._far = kind.dots == 1 and is_far(self.x, target)

    def tile(self, rows: int) -> Tile:
        """Return a tile whose sums are 0."""
        far = is_far(self.w, self.target)
        return Tile(self.k.b, rows, self.cols, self.lanes, self.target, self.kind, far)

    def whole(self, axis: int) -> Range:
        """Return the range of all taps of an axis."""
        return Const(0), Const(self.taps[axis])

    def block(
        self, tile: Tile, origin: Expr, weights: Expr, ranges: Sequence[Range],
        apart: Callable[[int], int],
    ) -> Block:  # fmt: skip
        """Return what adds the products with one block of input channels to the sums of a tile.

        `origin` is where the first row of the tile meets the first tap in x, and row r stands so
        far `apart` from it; `weights` is where the panel begins.
        """
        b = self.k.b
        strides = self.x.region.strides
        inner = self.panel // self.in_blocks

        def add(cb: Expr, used: int) -> None:
            with ExitStack() as stack:
                taps = [stack.enter_context(b.loop(n)) + begin for begin, n in ranges]
                at_x = origin + cb * strides[1]
                at_w = weights + cb * inner
                for axis, tap in enumerate(taps):
                    at_x = at_x + tap * (self.dilations[axis] * strides[2 + axis])
                    reach = math.prod(self.taps[axis + 1 :]) * self.in_lanes * self.cols
                    at_w = at_w + tap * (reach * self.lanes)
                self._lanes(tile, b.let(at_x), b.let(at_w), used, apart)

        return add

    def all_blocks(self, block: Block, channels: int) -> None:
        """Run through all blocks of input channels.

        Padding lanes of x are unspecified: the last block counts its logical channels only.
        """
        full, rest = divmod(channels, self.in_lanes)
        if full:
            with self.k.b.loop(full) as cb:
                block(cb, self.in_lanes)
        if rest:
            block(Const(full), rest)

    def _lanes(
        self, tile: Tile, at_x: Expr, at_w: Expr, used: int, apart: Callable[[int], int]
    ) -> None:
        """Run through the `used` lanes of one block, a few at a time."""
        b, kind = self.k.b, self.kind
        step = self.cols * self.lanes * kind.dots
        # What is not used of the last neighbours meets zeros, which only floats may not survive.
        known = used if kind.dtype == "f32" else -(-used // kind.dots) * kind.dots
        full, rest = divmod(known, kind.dots)
        most = tile.unroll
        unroll = most if full % most == 0 else full if full < most else 1
        with b.loop(full // max(unroll, 1)) as u:
            for i in range(unroll):
                at = u * unroll + i
                if self._far:
                    # Each lane asks for one neighbour's next block of channels.
                    ahead = self.x.region.strides[1]
                    b.prefetch(self.x.buffer, at_x + ahead + at * apart(1))
                self._step(tile, at_x + at * kind.dots, at_w + at * step, kind.dots, apart)
        if rest:
            self._step(tile, at_x + full * kind.dots, at_w + full * step, rest, apart)

    def _step(
        self, tile: Tile, at_x: Expr, at_w: Expr, used: int, apart: Callable[[int], int]
    ) -> None:
        """Add the products of one lane of neighbours, of which `used` are there."""

        def element(r: int) -> Expr:
            return self.kind.word(self.k.b, self.x.buffer, at_x + apart(r), 1, used)

        tile.step(self.w.buffer, at_w, element)
