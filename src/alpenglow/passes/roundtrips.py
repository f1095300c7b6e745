"""Simplification of quantization: numbers that leave the integers only to come back to them.

A quantized model spells every tensor as dequantized and quantized again.  If only
movement is in between, or limits that the integers have by themselves, the integers stay
integers.  All rules are exact: a quotient of at most 16 bits survives a product and a division.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ir.types import DTYPES, INTS
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Clip
from alpenglow.ops.quantized.quantize import Dequantize, Quantize
from alpenglow.ops.tensor.movement import Concat, Pad, Reshape, Slice, Transpose
from alpenglow.ops.window.pooling import MaxPool
from alpenglow.passes.constants import read_once, uniform

rules = Rules()


@dataclass(frozen=True)
class UniformGrid:
    """The reals of a tensor of quantized values: (q - zero) * scale, of one element type."""

    scale: float
    zero: float
    dtype: str


@rules.on(Quantize)
def quantize_dequantized(g: Graph, node: Node) -> Rewritten:
    """quantize(dequantize(q, s, z), s, z) => q"""
    grid = _grid(node)
    return _integers(node.inputs[0], grid) if grid else None


@rules.on(Quantize)
def quantize_moved(g: Graph, node: Node) -> Rewritten:
    """quantize(f(dequantize(q, s, z)), s, z) => f(q)   where f moves or selects elements"""
    grid = _grid(node)
    match node.inputs[0]:
        case Value(
            Node(Reshape() | Transpose() | Slice() | Concat() | Pad() | MaxPool() as op, moved)
        ) as y if grid and read_once(g, y):
            parts = [_integers(v, grid) for v in moved]
            if None in parts or (isinstance(op, MaxPool) and grid.dtype not in ("i8", "u8")):
                return None
            if isinstance(op, Pad) and op.mode == "constant":
                if op.value != 0:
                    return None
                op = replace(op, value=grid.zero)
            return g(op, *parts)
    return None


@rules.on(Quantize)
def quantize_limited(g: Graph, node: Node) -> Rewritten:
    """quantize(clip(x, l, h), s, z) => quantize(x, s, z)   where the integers end before l and h;
    likewise quantize(relu(x), s, z)"""
    grid = _grid(node)
    _, *params = node.inputs
    match node.inputs[0]:
        case Value(Node(Relu(), [x])) if grid and _beyond(grid, 0.0, math.inf):
            return g(node.op, x, *params)
        case Value(Node(Clip(low=low, high=high), [x])) if grid and _beyond(grid, low, high):
            return g(node.op, x, *params)
    return None


def _grid(node: Node) -> UniformGrid | None:
    """Return the grid of a quantize or dequantize whose scale and zero point are single numbers."""
    x, scale, zero = node.inputs
    assert x is not None and scale is not None and zero is not None
    if zero.type.dtype not in INTS or _precision(node) != "f32":
        return None
    s, z = uniform(scale), uniform(zero)
    # Products with a scale this far from the ends of f32 round, but do not over- or underflow.
    if s is None or z is None or not 1e-30 < s < 1e30 or scale.type.dtype != "f32":
        return None
    return UniformGrid(s, z, zero.type.dtype)


def _precision(node: Node) -> str:
    """Return the type that a quantize divides in, a dequantize multiplies in."""
    return node.op.precision if isinstance(node.op, Quantize) else "f32"


def _integers(v: Value | None, grid: UniformGrid) -> Value | None:
    """Return q if v is q dequantized on this grid."""
    match v:
        case Value(Node(Dequantize(dtype="f32"), [q, *_]) as node) if _grid(node) == grid:
            return q
    return None


def _beyond(grid: UniformGrid, low: float, high: float) -> bool:
    """Whether all that is below `low` or above `high` becomes the least or greatest integer."""
    limits = np.iinfo(DTYPES[grid.dtype])
    ends = np.rint(np.array([low, high], np.float32) / np.float32(grid.scale)) + grid.zero
    return bool(ends[0] <= limits.min and ends[1] >= limits.max)
