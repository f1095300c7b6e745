"""Fragments: tiles of matrices that a subgroup holds, as units of matrices have them.

Which thread holds which element is the machine's own affair.  All threads of the subgroup come to
what is done with fragments, and agree on where tiles are.  Products are summed in the order of k,
each by an fma of f32: machines may sum otherwise, so tests take small whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpenglow.ir.types import Array
from alpenglow.kernel.expr import Buffer, Expr, Shape
from alpenglow.kernel.scalar import fma

PRODUCTS = {
    ("f32", "f32"): "f32", ("f16", "f16"): "f32", ("bf16", "bf16"): "f32",
    ("u8", "i8"): "i32", ("i8", "i8"): "i32",
}  # fmt: skip
"""What sums of products of two element types are."""


@dataclass(frozen=True, slots=True, eq=False)
class Tile(Expr):
    """A fragment from memory: its rows begin `stride` elements after each other."""

    buffer: Buffer
    at: Expr
    stride: Expr
    shape: Shape

    @property
    def dtype(self) -> str:
        return self.buffer.dtype

    @property
    def lanes(self) -> int:
        return self.shape[0] * self.shape[1]


@dataclass(frozen=True, slots=True, eq=False)
class Mma(Expr):
    """acc + x @ y."""

    acc: Expr
    x: Expr
    y: Expr

    def __post_init__(self) -> None:
        types = self.x.dtype, self.y.dtype
        assert PRODUCTS.get(types) == self.acc.dtype, (
            f"mma of {' and '.join(types)} is no {self.acc.dtype}"
        )
        acc, x, y = self.acc.shape, self.x.shape, self.y.shape
        assert acc and x and y, "mma of what is no fragment"
        assert acc == (x[0], y[1]) and x[1] == y[0], f"mma of {x} by {y} is no {acc}"

    @property
    def dtype(self) -> str:
        return self.acc.dtype

    @property
    def lanes(self) -> int:
        return self.acc.lanes

    @property
    def shape(self) -> Shape | None:
        return self.acc.shape

    @property
    def depth(self) -> int:
        """How many products are summed."""
        assert self.x.shape is not None, "a fragment"
        return self.x.shape[1]


def places(at: Array, stride: Array, shape: Shape) -> Array:
    """Return the elements of tiles, row by row along the last axis."""
    rows, columns = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
    return np.asarray(np.asarray(at)[..., None] + np.asarray(stride)[..., None] * rows + columns)


def multiplied(e: Mma, acc: Array, x: Array, y: Array) -> Array:
    """Return what an `Mma` means, of arrays whose last axis are the elements of fragments."""
    assert e.x.shape is not None and e.y.shape is not None, "fragments"
    left, right = x.reshape(*x.shape[:-1], *e.x.shape), y.reshape(*y.shape[:-1], *e.y.shape)
    total = acc.reshape(*acc.shape[:-1], e.x.shape[0], e.y.shape[1])
    if e.dtype == "i32":
        return np.asarray(total + left.astype(np.int32) @ right.astype(np.int32)).reshape(acc.shape)
    left, right = left.astype(np.float32), right.astype(np.float32)
    for p in range(e.depth):
        total = np.asarray(fma(left[..., :, p, None], right[..., None, p, :], total))
    return total.reshape(acc.shape)
