"""Grids: the reals of a tensor of quantized values, as rules on quantized models see them.

Scales and zero points are operands, stretched to the shape of their tensor; here they are numbers
again.  A scale of zero, a denormal one, or one that is no number makes no grid: nothing is
concluded from it, and the model is computed as it is written.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpenglow.evaluate import apply
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.types import DTYPES, INTS, Array, TensorType
from alpenglow.ops.quantized.quantize import Dequantize, Quantize
from alpenglow.ops.tensor.movement import Broadcast, unstretched
from alpenglow.passes.constants import is_constant

LEAST, MOST = 1e-30, 1e30
"""Products with a scale this far from the ends of f32 round, but do not over- or underflow."""


@dataclass(frozen=True)
class Grid:
    """The reals (q - zero) * scale, with one scale and zero point, or one an index of `axis`.

    A scale or zero point that all indices share is there once.
    """

    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    dtype: str
    axis: int | None = None

    @property
    def uniform(self) -> bool:
        """Whether one scale and zero point serve all elements."""
        return len(self.scales) == len(self.zeros) == 1

    @property
    def scale(self) -> float:
        """The scale of a uniform grid."""
        assert self.uniform, f"{self} has several scales"
        return self.scales[0]

    @property
    def zero(self) -> int:
        """The zero point of a uniform grid."""
        assert self.uniform, f"{self} has several zero points"
        return self.zeros[0]

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer."""
        limits = np.iinfo(DTYPES[self.dtype])
        return int(limits.min), int(limits.max)

    @property
    def steps(self) -> int:
        """The most steps that an integer is away from the zero point of a uniform grid."""
        low, high = self.limits
        return max(self.zero - low, high - self.zero)

    def nearest(self, real: float) -> int:
        """Return the integer that a real, maybe infinite, is rounded to on a uniform grid."""
        low, high = self.limits
        with np.errstate(over="ignore"):
            steps = np.rint(np.float32(real) / np.float32(self.scale)) + self.zero
        return int(min(max(steps, low), high))


def grid_of(node: Node) -> Grid | None:
    """Return the grid of a quantize or dequantize with constant f32 scales of one axis at most."""
    x, scale, zero = node.inputs
    assert x is not None and scale is not None and zero is not None
    match node.op:
        case Quantize(precision="f32") | Dequantize(dtype="f32"):
            pass
        case _:
            return None
    if zero.type.dtype not in INTS or scale.type.dtype != "f32" or not x.type.is_plain:
        return None
    steps, offsets = _numbers(scale), _numbers(zero)
    if steps is None or offsets is None:
        return None
    axes = {axis for _, axis in (steps, offsets) if axis is not None}
    scales = tuple(float(s) for s in steps[0])
    if len(axes) > 1 or not all(LEAST < s < MOST for s in scales):
        return None
    zeros = tuple(int(z) for z in offsets[0])
    return Grid(scales, zeros, zero.type.dtype, axes.pop() if axes else None)


def quantized(v: Value | None) -> tuple[Value, Grid] | None:
    """Return q and its grid if v is q dequantized."""
    match v:
        case Value(Node(Dequantize(), [Value() as q, *_]) as node):
            grid = grid_of(node)
            return None if grid is None else (q, grid)
    return None


def dequantized(g: Graph, q: Value, grid: Grid) -> Value:
    """Return q dequantized."""
    assert q.type.dtype == grid.dtype, f"{q} on {grid}"
    scale = spread(g, grid.scales, "f32", grid.axis, q.type)
    return g(Dequantize(), q, scale, spread(g, grid.zeros, grid.dtype, grid.axis, q.type))


def spread(
    g: Graph, numbers: tuple[float, ...], dtype: str, axis: int | None, like: TensorType
) -> Value:
    """Return numbers, one or one an index of `axis`, stretched to the shape of a tensor."""
    array = np.array(numbers, DTYPES[dtype])
    if len(numbers) == 1:
        one = g.constant(array.reshape(()))
        return g(Broadcast(like.shape), one) if like.rank else one
    assert axis is not None, "several numbers need an axis"
    behind = like.rank - 1 - axis
    return g(Broadcast(like.shape), g.constant(array.reshape((-1, *[1] * behind))))


def known_array(v: Value) -> Array | None:
    """Return the elements of a constant or of what is computed from constants, unstretched."""
    source = unstretched(v)
    return _computed(source) if is_constant(source) else None


def _computed(v: Value) -> Array:
    """Evaluate what `is_constant`."""
    if v.array is not None:
        return v.array
    node = v.producer
    assert node is not None, f"{v} is not constant"
    arrays = [None if i is None else _computed(i) for i in node.inputs]
    return apply(node.op, arrays, node.regions, [r.type for r in node.results])[v.index]


def _numbers(v: Value) -> tuple[Array, int | None] | None:
    """Return the numbers of a constant and the axis they vary along; None if there are several."""
    array = known_array(v)
    if array is None or not array.size:
        return None
    wide = [i for i, d in enumerate(array.shape) if d != 1]
    flat = array.reshape(-1)
    if len(flat) == 1 or (flat == flat[0]).all():
        return flat[:1], None
    return (flat, v.type.rank - array.ndim + wide[0]) if len(wide) == 1 else None
