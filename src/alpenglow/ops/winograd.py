"""Winograd convolution F(4×4, 3×3): a 3×3 convolution with a quarter of the multiplications.

Each 6×6 patch d of the input and each filter g become Bᵀ d B and G g Gᵀ; their products, summed
over channels, come back as Aᵀ m A, a 4×4 block of the output (Lavin and Gray, Fast Algorithms for
Convolutional Neural Networks, 2015; interpolation points 0, ±1, ±2, ∞).
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, ceil_div, known
from alpenglow.ir.op import Examples, Primitive
from alpenglow.ir.types import Array, TensorType

BLOCK, PATCH = 4, 6

INPUT = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
    np.float64,
)
"""Bᵀ"""

FILTER = np.array(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ],
    np.float64,
)
"""G"""

OUTPUT = np.array(
    [
        [1, 1, 1, 1, 1, 0],
        [0, 1, -1, 2, -2, 0],
        [0, 1, 1, 4, 4, 0],
        [0, 1, -1, 8, -8, 1],
    ],
    np.float64,
)
"""Aᵀ"""


class WinogradFilter(Primitive):
    """w[O, I, 3, 3] transformed and packed: [36, O/width, I/lanes, lanes, width].

    Computed in f64 and rounded once; zeros where a block is not full.
    """

    lanes: int
    width: int

    def infer(self, w: TensorType) -> TensorType:
        if w.rank != 4 or w.shape[2:] != (3, 3) or w.dtype != "f32":
            raise TypeRuleError(f"winograd_filter: expected f32 filters [O, I, 3, 3], found {w}")
        blocks = (ceil_div(w.shape[0], self.width), ceil_div(w.shape[1], self.lanes))
        return w.with_shape((PATCH * PATCH, *blocks, self.lanes, self.width))

    def reference(self, w: Array) -> Array:
        outputs, inputs = w.shape[:2]
        ob, ib = -(-outputs // self.width), -(-inputs // self.lanes)
        packed = np.zeros((PATCH * PATCH, ob, ib * self.lanes, self.width), np.float32)
        both = np.kron(FILTER, FILTER)
        # A panel at a time: these are most of a network's weights, and f64 doubles them.
        for panel in range(ob):
            part = w[panel * self.width : (panel + 1) * self.width].astype(np.float64)
            flat = part.transpose(2, 3, 1, 0).reshape(9, -1)
            done = (both @ flat).reshape(PATCH * PATCH, inputs, len(part))
            packed[:, panel, :inputs, : len(part)] = done
        return packed.reshape(PATCH * PATCH, ob, ib, self.lanes, self.width)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(16, 32), "f32[40,20,3,3]"


class WinogradInput(Primitive):
    """Transformed patches of a blocked x: [36, N, C/lanes, tiles, lanes].

    x[N, C/lanes, 4 th + 2, 4 tw + 2, lanes] is padded already; tiles counts th * tw patches.
    """

    def infer(self, x: TensorType) -> TensorType:
        if x.rank != 5 or x.blocked is None or x.dtype != "f32":
            raise TypeRuleError(f"winograd_input: expected a blocked f32 image, found {x}")
        n, c, h, w, lanes = x.shape
        if (h - 2) % BLOCK != 0 or (w - 2) % BLOCK != 0:
            raise TypeRuleError(f"winograd_input: {x} is not blocks of 4 and a border")
        return x.with_shape((PATCH * PATCH, n, c, ((h - 2) // BLOCK) * ((w - 2) // BLOCK), lanes))

    def reference(self, x: Array) -> Array:
        n, c, *_, lanes = x.shape
        patches = np.lib.stride_tricks.sliding_window_view(x, (PATCH, PATCH), (2, 3))
        patches = patches[:, :, ::BLOCK, ::BLOCK].astype(np.float64)
        done = np.einsum("ai,nctulij,bj->abnctul", INPUT, patches, INPUT, optimize=True)
        return np.asarray(done.reshape(PATCH * PATCH, n, c, -1, lanes), np.float32)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,20/16,10,6,16]"


class WinogradProduct(Primitive):
    """Products of patches and filters summed over channels: [36, N, O/lanes, tiles, lanes]."""

    channels: Dim
    outputs: Dim

    def infer(self, v: TensorType, u: TensorType) -> TensorType:
        fits = v.rank == 5 and u.rank == 5 and v.shape[-1] == u.shape[-2]
        if not fits or v.shape[0] != u.shape[0] or v.shape[2] != u.shape[2]:
            raise TypeRuleError(f"winograd_product: {v} does not go with filters {u}")
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

    @classmethod
    def examples(cls) -> Examples:
        yield cls(20, 40), "f32[36,2,2,6,16]", "f32[36,2,2,16,32]"


class WinogradOutput(Primitive):
    """Products transformed back: a blocked image [N, O/lanes, height, width, lanes]."""

    outputs: Dim
    height: Dim
    width: Dim

    def infer(self, m: TensorType) -> TensorType:
        if m.rank != 5:
            raise TypeRuleError(f"winograd_output: expected [36, N, O/lanes, tiles, lanes]: {m}")
        tiles = ceil_div(self.height, BLOCK) * ceil_div(self.width, BLOCK)
        if m.shape[3] != tiles:
            raise TypeRuleError(f"winograd_output: {m} does not hold {tiles} tiles")
        shape = (m.shape[1], m.shape[2], self.height, self.width, m.shape[4])
        return TensorType(m.dtype, shape, self.outputs)

    def reference(self, m: Array) -> Array:
        assert known(self.height) and known(self.width)
        th, tw = -(-self.height // BLOCK), -(-self.width // BLOCK)
        _, n, c, _, lanes = m.shape
        points = m.reshape(PATCH, PATCH, n, c, th, tw, lanes).astype(np.float64)
        y: Array = np.einsum("ia,abnctul,jb->nctiujl", OUTPUT, points, OUTPUT, optimize=True)
        whole = y.reshape(n, c, th * BLOCK, tw * BLOCK, lanes)
        inside: Array = whole[:, :, : self.height, : self.width].astype(np.float32)
        return inside

    @classmethod
    def examples(cls) -> Examples:
        yield cls(20, 7, 5), "f32[36,2,2,4,16]"
