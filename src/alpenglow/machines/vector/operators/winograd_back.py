"""Gradients of 3×3 filters with fewer multiplications: F(m×m, 3×3) transposed.

A convolution is Aᵀ ((Bᵀ d B) · (G g Gᵀ)) A, summed over channels; so the gradient of the filter g
is Gᵀ ((Bᵀ d B) · (A e Aᵀ)) G, summed over images and blocks, where e is a block of the gradient of
the result.  Patches d are those of the convolution itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import ceil_div
from alpenglow.ir.op import Examples, Primitive, check_positive
from alpenglow.ir.types import Array, TensorType
from alpenglow.machines.vector.operators.winograd import TAPS, block_of, transforms


class WinogradBlocks(Primitive):
    """Transformed blocks of a gradient: [(m + 2)², N, O/lanes, tiles, lanes].

    dy[N, O/lanes, m th, m tw, lanes] is blocked, where m is `block`; tiles counts th * tw blocks.
    """

    sample_axes = 0, 1
    layouts = "first"

    block: int = 2

    def infer(self, dy: TensorType) -> TensorType:
        if dy.rank != 5 or dy.is_plain or dy.dtype != "f32":
            raise TypeRuleError(f"winograd_blocks: expected a blocked f32 image, found {dy}")
        n, o, h, w, lanes = dy.shape
        m = self.block
        check_positive(self, block=m)
        if h % m != 0 or w % m != 0:
            raise TypeRuleError(
                f"winograd_blocks: dy is {dy}, expected height and width of a multiple of {m}"
            )
        return dy.with_shape(((m + 2) ** 2, n, o, (h // m) * (w // m), lanes))

    def reference(self, dy: Array) -> Array:
        n, o, h, w, lanes = dy.shape
        m, t = self.block, transforms(self.block).output
        blocks = dy.reshape(n, o, h // m, m, w // m, m, lanes).astype(np.float64)
        done = np.einsum("ia,notiujl,jb->abnotul", t, blocks, t, optimize=True)
        return np.asarray(done.reshape((m + 2) ** 2, n, o, -1, lanes), np.float32)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[2,20/16,8,6,16]"
        yield cls(), "f32[1,20/8,2,10,8]"
        yield cls(4), "f32[2,20/16,8,4,16]"


class WinogradSums(Primitive):
    """Products of patches and blocks summed over these: [P, O/lanes, C/inner, inner, lanes].

    Of v[P, N, C/inner, tiles, inner] and d[P, N, O/lanes, tiles, lanes], where P is the number of
    points of a patch.  There are so many `outputs` and `inputs`; what is beyond them is 0.
    """

    outputs: int
    inputs: int

    def infer(self, v: TensorType, d: TensorType) -> TensorType:
        fits = v.rank == d.rank == 5 and v.dtype == d.dtype == "f32"
        if not fits or any(v.shape[axis] != d.shape[axis] for axis in (0, 1, 3)):
            raise TypeRuleError(
                f"winograd_sums: v is {v} and d is {d}, expected f32 with equal points, N and tiles"
            )
        blocks = ceil_div(self.outputs, d.shape[4]), ceil_div(self.inputs, v.shape[4])
        if blocks != (d.shape[2], v.shape[2]):
            raise TypeRuleError(
                f"winograd_sums: v is {v} and d is {d}, expected {blocks[1]} blocks of inputs and "
                f"{blocks[0]} of outputs"
            )
        return v.with_shape((v.shape[0], *blocks, v.shape[4], d.shape[4]))

    def reference(self, v: Array, d: Array) -> Array:
        points, n, c, tiles, inner = v.shape
        o, lanes = d.shape[2], d.shape[4]
        left = v.transpose(0, 2, 4, 1, 3).reshape(points, c * inner, n * tiles)
        right = d.transpose(0, 1, 3, 2, 4).reshape(points, n * tiles, o * lanes)
        # The lanes beyond are unspecified in v and d.
        sums = np.zeros((points, c * inner, o * lanes), np.float32)
        sums[:, : self.inputs, : self.outputs] = np.matmul(
            left[:, : self.inputs], right[..., : self.outputs]
        )
        sums = sums.reshape(points, c, inner, o, lanes)
        return np.ascontiguousarray(sums.transpose(0, 3, 1, 2, 4))

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        v, d = ins
        assert v is not None and d is not None, "both are there"
        return v.extents[0] * v.extents[1] * v.extents[3] * self.inputs * self.outputs

    @classmethod
    def examples(cls) -> Examples:
        yield cls(48, 32), "f32[16,2,2,6,16]", "f32[16,2,3,6,16]"
        yield cls(16, 8), "f32[16,1,1,300,8]", "f32[16,1,2,300,8]"
        yield cls(5, 13), "f32[36,3,2,1,8]", "f32[36,3,1,1,8]"
        yield cls(32, 20), "f32[16,1,2,70,16]", "f32[16,1,2,70,16]"


class WinogradFilterBack(Primitive):
    """Sums transformed back, as PackConv has weights: [O/lanes, C/inner, 3, 3, inner, lanes].

    u[P, O/lanes, C/inner, inner, lanes] has a filter for each point of a patch.
    """

    def infer(self, u: TensorType) -> TensorType:
        points = u.shape[0] if u.rank == 5 else 0
        if u.dtype != "f32" or not isinstance(points, int) or not block_of(points):
            raise TypeRuleError(
                f"winograd_filter_back: expected f32 [points, O/lanes, C/inner, inner, lanes]: {u}"
            )
        return u.with_shape((*u.shape[1:3], TAPS, TAPS, *u.shape[3:]))

    def reference(self, u: Array) -> Array:
        one = transforms(block_of(len(u))).filter
        points = u.reshape(len(one), len(one), *u.shape[1:]).astype(np.float64)
        done = np.einsum("ai,abocml,bj->ocijml", one, points, one, optimize=True)
        return np.asarray(done, np.float32)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[16,2,3,16,16]"
        yield cls(), "f32[36,1,2,8,8]"
