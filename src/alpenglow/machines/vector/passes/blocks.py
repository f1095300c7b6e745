"""Weights that a model stores in blocks of few bits are packed as they are, once and for all.

Such a weight is a dequantize of bytes [columns, blocks, bytes of a block] whose scales and zero
points stay one a block (MatMulNBits).  It is multiplied as by `low_bit_matmul`, but nothing is
spelled out on the way there: bytes of the file go to their places in panels.  Where rows are open,
that is done before code is made for any of their kinds, and all share the panels.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.memory import forget
from alpenglow.evaluate import apply
from alpenglow.ir.dims import known, product
from alpenglow.ir.graph import Graph, Node, Value, is_closed
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.machines.vector.operators.few_bits import NIBBLES
from alpenglow.machines.vector.passes.groups import fits, multiplied_in_bytes
from alpenglow.machines.vector.passes.low_bit_matmul import (
    HALF,
    SMALLEST,
    Weights,
    are_usable,
    multiplied,
    pays,
)
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.quantized.groups import RoundGroups
from alpenglow.ops.quantized.quantize import Dequantize
from alpenglow.ops.tensor.movement import Reshape, Slice, Transpose, unstretched
from alpenglow.ops.tensor.packing import UnpackBits


def has_blocks(g: Graph) -> bool:
    """Whether weights of a graph may be stored in blocks."""
    return any(isinstance(node.op, Dequantize) for node in g.nodes)


def read_blocks(g: Graph, target: Target) -> Graph:
    """Read weights that are stored in blocks as they are, where that pays."""
    for node in list(g.nodes):
        match node:
            case Node(MatMul(), [Value() as x, Value() as w]) if x.type.dtype == "f32":
                matrix = stored(w)
                if matrix is not None and (y := _product(g, x, matrix, target)) is not None:
                    g.replace(node.output, y)
    g.prune()
    return g


def _product(g: Graph, x: Value, w: Weights, target: Target) -> Value | None:
    """Return x times the matrix; None if weights of floats are faster."""
    match x:
        case Value(Node(RoundGroups(size), [Value() as plain])) if fits(w, size, target):
            return multiplied_in_bytes(g, plain, w, size, target)
    # Few rows are faster so, and open ones may be few.
    if known(product(x.type.shape[:-1])) and not pays(x, w, target):
        return None
    return multiplied(g, x, w, target)


def stored(w: Value) -> Weights | None:
    """Return what a matrix [K, N] of blocks is made of; None if w is none."""
    match unstretched(w):
        case Value(Node(Transpose(perm=(1, 0)), [Value() as rows])):
            pass
        case _:
            return None
    shape = rows.type.shape
    match rows:  # the last block may hold more than there is
        case Value(Node(Slice(starts=(0, 0), steps=(1, 1)), [Value() as v])):
            rows = v
    match rows:
        case Value(Node(Reshape(), [Value(Node(Dequantize("f32"), [q, scale, zero]))])):
            pass
        case _:
            return None
    assert q is not None and scale is not None and zero is not None, "dequantize has three operands"
    if q.type.rank != 3 or q.type.dtype != "u8" or not rows.type.static or not q.type.size:
        return None
    bits, packed = 8, q
    match q:
        case Value(Node(UnpackBits(4), [Value() as v])):
            bits, packed = 4, v
    columns, count, size = q.type.extents
    inner = shape[1]
    if shape[0] != columns or not known(inner) or size < SMALLEST or size % NIBBLES:
        return None
    numbers, scales, zeros = _computed(packed), _by_block(scale), _by_block(zero)
    if numbers is None or scales is None or zeros is None or not are_usable(scales):
        return None
    grid = [np.broadcast_to(v.reshape(v.shape[-3:-1]).T if v.ndim else v, (count, columns))
            for v in (scales, zeros)]  # fmt: skip
    uniform = bool((grid[1] == grid[1][0, 0]).all())
    middle = int(grid[1][0, 0]) if uniform else 0
    # Panels of bytes are of i8.
    shift = HALF if bits == 8 else 0
    factors = grid[0].astype(np.float32)
    offsets = None if uniform else grid[1].astype(np.float32)
    for read in (scales, zeros):
        forget(read)
    by_row = numbers.reshape(columns, -1)
    return Weights(by_row, bits, middle - shift, size, factors, offsets, by_column=inner)


def _by_block(v: Value) -> Array | None:
    """Return the numbers of blocks, [columns, blocks, 1] or one for all; None if there are none."""
    base = unstretched(v)
    array = _computed(base)
    if array is None or (array.ndim and array.shape != (*v.type.shape[:-1], 1)):
        return None
    return array


def _computed(v: Value) -> Array | None:
    """Return what v is if that follows from constants; None if it does not."""
    if v.array is not None:
        return v.array
    node = v.producer
    if node is None or not node.op.pure or node.regions or not is_closed(node) or not node.inputs:
        return None
    arrays = [None if i is None else _computed(i) for i in node.inputs]
    if any(a is None for a in arrays):
        return None
    return apply(node.op, arrays, node.regions, [r.type for r in node.results])[v.index]
