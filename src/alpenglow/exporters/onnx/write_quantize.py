"""Writers of quantization: QuantizeLinear and its kin.

Our operators take scales and zero points stretched to the tensor that they belong to; ONNX's take
one for the tensor, a vector along an axis, or one for each block of an axis.  What they were
stretched from is found again; any others are computed with by the formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.exporters.onnx.elements import EIGHT_BITS
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_movement import expanded, reshaped
from alpenglow.exporters.onnx.writer import Operand, Tensor, Writer
from alpenglow.ir.dims import Dim, ceil_div, is_open
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.types import NARROW_FLOATS, TensorType
from alpenglow.ops.quantized.quantize import Dequantize, DynamicQuantize, Quantize
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Slice, unstretched


@dataclass(frozen=True, slots=True)
class Grid:
    """The scales or zero points of a tensor before they were stretched.

    `axis` is None for one in all; `block` is how many elements of the axis share one, 0 where each
    index of the axis has its own.  `shape` is that in which ONNX wants them.
    """

    value: Value
    shape: tuple[Dim, ...] = ()
    axis: int | None = None
    block: int = 0

    def fits(self, other: Grid) -> bool:
        """Return True if one in all, or as many as the other has in its places."""
        return self.axis is None or (self.axis, self.block) == (other.axis, other.block)


def grid_of(v: Value, t: TensorType) -> Grid | None:
    """Return the grid that was stretched to v for a tensor of type `t`, if ONNX can express it."""
    narrow = unstretched(v)
    shape = (1,) * (t.rank - narrow.type.rank) + narrow.type.shape
    long = [i for i, d in enumerate(shape) if is_open(d) or d != 1]
    if not long:
        return Grid(narrow)
    if len(long) == 1:
        return Grid(narrow, (t.shape[long[0]],), long[0])
    return blocks_of(v, t)


def blocks_of(v: Value, t: TensorType) -> Grid | None:
    """Return the grid that was repeated to v in blocks: reshape(broadcast(reshape(x))), cut."""
    match v:
        case Value(Node(Slice(starts, _, steps), [Value() as whole])):
            if any(s != 0 for s in starts) or any(s != 1 for s in steps):
                return None
            v = whole
    match v:
        case Value(Node(Reshape(), [Value(Node(Broadcast(wide), [Value() as apart]))])):
            match apart:
                case Value(Node(Reshape(), [Value() as x])) if x.type.rank == t.rank:
                    return _block(x, apart.type.shape, wide, t)
    return None


def _block(x: Value, apart: tuple[Dim, ...], wide: tuple[Dim, ...], t: TensorType) -> Grid | None:
    changed = [i for i, (a, b) in enumerate(zip(apart, wide, strict=False)) if a != b]
    if len(apart) != t.rank + 1 or len(wide) != len(apart) or len(changed) != 1 or not changed[0]:
        return None
    axis, block = changed[0] - 1, wide[changed[0]]
    rest = [i for i in range(t.rank) if i != axis]
    same = apart == (*x.type.shape[: axis + 1], 1, *x.type.shape[axis + 1 :])
    if is_open(block) or not same or any(x.type.shape[i] != t.shape[i] for i in rest):
        return None
    fits = x.type.shape[axis] == ceil_div(t.shape[axis], int(block))
    return Grid(x, x.type.shape, axis, int(block)) if fits else None


def grids(x: Value, scale: Value, zero: Value) -> tuple[Grid, Grid] | None:
    """Return the grids of the scales and zero points of x, if ONNX can express both."""
    pair = grid_of(scale, x.type), grid_of(zero, x.type)
    if pair[0] is None or pair[1] is None or not pair[1].fits(pair[0]):
        return None
    return pair[0], pair[1]


def _has_quantize(opset: int, node: Node) -> bool:
    """Return True if ONNX divides as the operator does: in f32, its default `precision`."""
    x, scale, zero = node.inputs
    assert isinstance(node.op, Quantize) and x and scale and zero, "asked of one operator"
    pair = grids(x, scale, zero)
    if pair is None or node.op.precision != "f32" or (opset < 21 and pair[0].block):
        return False
    # To runtimes floats of few bits have no zero point.
    return node.op.dtype not in NARROW_FLOATS or is_zero(pair[1])


@on(Quantize, when=_has_quantize)
def quantize(w: Writer, op: Quantize, x: Value, scale: Value, zero: Value) -> Tensor:
    pair = grids(x, scale, zero)
    assert pair is not None, "the writer serves what has places"
    more: dict[str, Any] = {"saturate": int(op.saturate)} if op.dtype in EIGHT_BITS else {}
    steps = w.cast(placed(w, pair[0], pair[0]), "f32")
    zeros = placed(w, pair[1], pair[0])
    return w("QuantizeLinear", w.cast(x, "f32"), steps, zeros, **places(pair[0]), **more)


def _has_dequantize(opset: int, node: Node) -> bool:
    """Return True if ONNX has this; an i32 has no zero point there."""
    x, scale, zero = node.inputs
    assert x and scale and zero, "all three are there"
    pair = grids(x, scale, zero)
    if pair is None or (x.type.dtype == "i32" and not is_zero(pair[1])):
        return False
    return opset >= 21 or not pair[0].block


@on(Dequantize, when=_has_dequantize)
def dequantize(w: Writer, op: Dequantize, x: Value, scale: Value, zero: Value) -> Tensor:
    pair = grids(x, scale, zero)
    assert pair is not None, "the writer serves what has places"
    steps = placed(w, pair[0], pair[0])
    wide = op.dtype if w.dtype(steps) == op.dtype else "f32"
    is_left_out = x.type.dtype == "i32" or (pair[0].axis is not None and is_zero(pair[1]))
    zeros = None if is_left_out else placed(w, pair[1], pair[0])
    y = w("DequantizeLinear", x, w.cast(steps, wide), zeros, **places(pair[0]))
    return w.cast(y, op.dtype)


def is_zero(grid: Grid) -> bool:
    """Return True if all of a grid is 0."""
    array = grid.value.array
    return array is not None and not array.astype(np.float32).any()


def places(grid: Grid) -> dict[str, Any]:
    """Return the attributes that say where scales belong."""
    if grid.axis is None:
        return {}
    return {"axis": grid.axis} | ({"block_size": grid.block} if grid.block else {})


def placed(w: Writer, grid: Grid, like: Grid) -> Operand:
    """Return a scale or zero point in the shape that ONNX wants, with as many as `like`."""
    v = grid.value
    if grid.axis is None and like.axis is not None:
        if v.array is not None and not any(map(is_open, like.shape)):
            return np.full([int(d) for d in like.shape], v.array.reshape(()))
        return expanded(w, reshaped(w, v, (1,) * len(like.shape)), like.shape)
    if v.array is not None:
        return v.array.reshape([int(d) for d in grid.shape])
    return reshaped(w, v, grid.shape)


@on(DynamicQuantize)
def dynamic_quantize(w: Writer, op: DynamicQuantize, x: Value) -> list[Tensor]:
    return w.several(3, "DynamicQuantizeLinear", x)
