"""Winograd convolution F(m×m, 3×3): a 3×3 convolution with fewer multiplications.

Each patch d of the input, m + 2 wide and high, and each filter g become Bᵀ d B and G g Gᵀ; their
products, summed over channels, come back as Aᵀ m A, an m×m block of the output (Lavin and Gray,
Fast Algorithms for Convolutional Neural Networks, 2015).  A block of 2 takes 4 multiplications for
each element where the convolution has 9, one of 4 takes 2.25, one of 6 takes 1.78.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.base.memory import aligned_bytes
from alpenglow.ir.dims import Dim, ceil_div, known
from alpenglow.ir.op import Examples, Primitive, check_positive
from alpenglow.ir.types import Array, TensorType
from alpenglow.machines.vector.operators.layout import Blocked

TAPS = 3

POINTS: dict[int, tuple[float, ...]] = {
    2: (0, 1, -1),
    4: (0, 1, -1, 2, -2),
    6: (0, 1, -1, 2, -2, 1 / 2, -1 / 2),
}
"""Where the polynomials are interpolated, besides at infinity, by the size of a block."""


@dataclass(frozen=True, slots=True)
class Transforms:
    """The matrices of F(block×block, 3×3), for blocks of one axis: Bᵀ, G and Aᵀ."""

    input: Array
    filter: Array
    output: Array


@cache
def transforms(block: int) -> Transforms:
    """Return the matrices for a size of `POINTS`: Toom and Cook's construction, exact in f64."""
    points = POINTS[block]
    patch = block + TAPS - 1
    from_input, from_filter = np.zeros((patch, patch)), np.zeros((patch, TAPS))
    to_output = np.zeros((block, patch))
    for i, p in enumerate(points):
        others = [q for q in points if q != p]
        # np.poly: the polynomial with these roots, highest power first.
        from_input[i, : patch - 1] = np.poly(others)[::-1]
        from_filter[i] = [p**k / np.prod([p - q for q in others]) for k in range(TAPS)]
        to_output[:, i] = [p**k for k in range(block)]
    from_input[-1] = np.poly(points)[::-1]
    from_filter[-1, -1] = to_output[-1, -1] = 1
    return Transforms(from_input, from_filter, to_output)


def block_of(points: int) -> int:
    """Return the size of blocks whose patches have so many points; 0 if there is none."""
    return next((m for m in POINTS if (m + TAPS - 1) ** 2 == points), 0)


class WinogradFilter(Primitive):
    """Filters that PackConv packed, transformed: [(m + 2)², O/width, I/lanes, lanes, width].

    w[O/width, I/lanes, 3, 3, lanes, width] is f32, m is `block`.  The reference computes in f64 and
    rounds once.
    """

    block: int = 4

    def infer(self, w: TensorType) -> TensorType:
        if w.rank != 6 or w.shape[2:4] != (TAPS, TAPS) or w.dtype != "f32":
            raise TypeRuleError(
                f"winograd_filter: expected f32 [panels, blocks, 3, 3, lanes, width], found {w}"
            )
        check_positive(self, block=self.block)
        return w.with_shape(((self.block + 2) ** 2, *w.shape[:2], *w.shape[4:]))

    def reference(self, w: Array) -> Array:
        panels, blocks, _, _, lanes, width = w.shape
        points, one = (self.block + 2) ** 2, transforms(self.block).filter
        shape = (points, panels, blocks, lanes * width)
        packed = aligned_bytes(4 * math.prod(shape)).view(np.float32).reshape(shape)
        both = np.kron(one, one)
        # A block at a time: these are most of a network's weights, f64 doubles them, and BLAS would
        # begin its threads for nine numbers a sum, which takes longer.
        for panel, block in np.ndindex(panels, blocks):
            part = w[panel, block].astype(np.float64).reshape(TAPS * TAPS, -1)
            packed[:, panel, block] = both @ part
        return packed.reshape(points, panels, blocks, lanes, width)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,2,3,3,16,32]"
        yield cls(6), "f32[2,2,3,3,16,32]"
        yield cls(2), "f32[2,2,3,3,8,16]"


class WinogradInput(Primitive):
    """Transformed patches of a blocked x: [(m + 2)², N, C/lanes, tiles, lanes].

    x[N, C/lanes, m th + 2, m tw + 2, lanes], where m is `block`, is padded already; tiles counts
    th * tw patches.
    """

    sample_axes = 0, 1
    layouts = "first"

    block: int = 4

    def infer(self, x: TensorType) -> TensorType:
        if x.rank != 5 or x.is_plain or x.dtype != "f32":
            raise TypeRuleError(f"winograd_input: expected a blocked f32 image, found {x}")
        n, c, h, w, lanes = x.shape
        m = self.block
        check_positive(self, block=m)
        if (h - 2) % m != 0 or (w - 2) % m != 0:
            raise TypeRuleError(f"winograd_input: x is {x}, expected height and width of {m} n + 2")
        return x.with_shape(((m + 2) ** 2, n, c, ((h - 2) // m) * ((w - 2) // m), lanes))

    def reference(self, x: Array) -> Array:
        n, c, *_, lanes = x.shape
        m, t = self.block, transforms(self.block).input
        patches = np.lib.stride_tricks.sliding_window_view(x, (m + 2, m + 2), (2, 3))
        patches = patches[:, :, ::m, ::m].astype(np.float64)
        done = np.einsum("ai,nctulij,bj->abnctul", t, patches, t, optimize=True)
        return np.asarray(done.reshape((m + 2) ** 2, n, c, -1, lanes), np.float32)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,20/16,10,6,16]"
        yield cls(2), "f32[2,20/16,8,6,16]"
        yield cls(6), "f32[2,20/16,14,8,16]"


class WinogradProduct(Primitive):
    """Products of patches and filters summed over channels: [P, N, O/lanes, tiles, lanes].

    P is the number of points of a patch: of v[P, N, C/lanes, tiles, lanes] and of the filters.
    """

    sample_axes = 1, 1
    walks = "planes"

    channels: Dim
    outputs: Dim

    def infer(self, v: TensorType, u: TensorType) -> TensorType:
        fits = v.rank == 5 and u.rank == 5 and v.shape[-1] == u.shape[-2]
        if not fits or v.shape[0] != u.shape[0] or v.shape[2] != u.shape[2]:
            raise TypeRuleError(
                f"winograd_product: v is {v} and u is {u}, expected equal points, blocks and lanes"
            )
        lanes = v.shape[-1]
        return v.with_shape(
            (v.shape[0], v.shape[1], ceil_div(self.outputs, lanes), v.shape[3], lanes)
        )

    def reference(self, v: Array, u: Array) -> Array:
        assert known(self.channels) and known(self.outputs)
        points, n, c, tiles, lanes = v.shape
        left = v.transpose(0, 1, 3, 2, 4).reshape(points, n * tiles, c * lanes)
        right = u.transpose(0, 2, 3, 1, 4).reshape(points, c * lanes, -1)
        # Padding lanes of v are unspecified: only logical channels are summed.
        used = self.channels
        y = np.matmul(left[:, :, :used], right[:, :used])
        blocks = -(-self.outputs // lanes)
        full = np.zeros((points, n * tiles, blocks * lanes), np.float32)
        most = min(blocks * lanes, y.shape[-1])
        full[:, :, :most] = y[:, :, :most]
        return full.reshape(points, n, tiles, blocks, lanes).transpose(0, 1, 3, 2, 4)

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        v = ins[0]
        assert v is not None, "v is there"
        patches = v.extents[0] * v.extents[1] * v.extents[3]
        assert isinstance(self.channels, int) and isinstance(self.outputs, int), "they are numbers"
        return patches * self.channels * self.outputs

    @classmethod
    def examples(cls) -> Examples:
        yield cls(20, 40), "f32[36,2,2,6,16]", "f32[36,2,2,16,32]"
        yield cls(32, 16), "f32[16,1,2,5,16]", "f32[16,1,2,16,16]"


class WinogradOutput(Primitive):
    """Products transformed back: a blocked image [N, O/lanes, height, width, lanes]."""

    sample_axes = 1, 0

    outputs: Dim
    height: Dim
    width: Dim

    def infer(self, m: TensorType) -> TensorType:
        points = m.shape[0] if m.rank == 5 else 0
        block = block_of(points) if isinstance(points, int) else 0
        if not block:
            raise TypeRuleError(
                f"winograd_output: m is {m}, expected [points, N, O/lanes, tiles, lanes]"
            )
        tiles = ceil_div(self.height, block) * ceil_div(self.width, block)
        if m.shape[3] != tiles:
            raise TypeRuleError(f"winograd_output: m is {m}, expected {tiles} tiles")
        shape = (m.shape[1], m.shape[2], self.height, self.width, m.shape[4])
        return TensorType(m.dtype, shape, Blocked(self.outputs))

    def reference(self, m: Array) -> Array:
        assert known(self.height) and known(self.width)
        points, n, c, _, lanes = m.shape
        block = block_of(points)
        t, patch = transforms(block).output, block + 2
        th, tw = -(-self.height // block), -(-self.width // block)
        patches = m.reshape(patch, patch, n, c, th, tw, lanes).astype(np.float64)
        y: Array = np.einsum("ia,abnctul,jb->nctiujl", t, patches, t, optimize=True)
        whole = y.reshape(n, c, th * block, tw * block, lanes)
        inside: Array = whole[:, :, : self.height, : self.width].astype(np.float32)
        return inside

    @classmethod
    def examples(cls) -> Examples:
        yield cls(20, 7, 5), "f32[36,2,2,4,16]"
        yield cls(32, 3, 6), "f32[16,2,2,6,16]"
        yield cls(20, 7, 5), "f32[64,2,2,2,16]"
