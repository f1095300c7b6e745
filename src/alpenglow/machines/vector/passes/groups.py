"""Products of activations that a model lets be rounded by groups become products of integers.

The weights stay in few bits, packed in panels of columns, and the activations are quantized once
for all of them.  Where the groups of the two do not fit together, or no instruction multiplies
bytes, activations are rounded, and the product is one of floats.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.memory import aligned
from alpenglow.ir.dims import ceil_div
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.target import Target
from alpenglow.machines.vector.operators.few_bits import NIBBLES
from alpenglow.machines.vector.operators.quantized import MatMulGroups, QuantizeGroups
from alpenglow.machines.vector.passes.low_bit_matmul import HALF, Weights, panels_of, weights
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.quantized.groups import STEPS, RoundGroups

COLUMNS = 2
"""Vectors that a panel is wide: prompts and single rows are as fast with it as with others."""


def multiply_groups(g: Graph, target: Target) -> Graph:
    """Multiply what is rounded by groups, by weights of few bits, in integers."""
    for node in list(g.nodes):
        match node:
            case Node(MatMul(), [Value(Node(RoundGroups(size), [Value() as x])), Value() as w]):
                matrix = weights(w)
                if matrix is not None and fits(matrix, size, target):
                    g.replace(node.output, multiplied_in_bytes(g, x, matrix, size, target))
    g.prune()
    return g


def fits(w: Weights, size: int, target: Target) -> bool:
    """Whether products of groups of `size` by weights are computed in integers.

    All of a group then meets weights of one scale, and the sums of a group fit into i32.
    """
    inner = w.inner
    alike = w.size == inner or (size < inner and w.size % size == 0)
    whole = size % NIBBLES == 0 or size >= inner
    small = min(size, inner) * STEPS * 255 < 2**31
    return "u8" in target.facts.multiplies and alike and whole and small


def multiplied_in_bytes(g: Graph, x: Value, w: Weights, size: int, target: Target) -> Value:
    """Return x, quantized by groups, times the matrix, its columns packed in panels."""
    inner = w.inner
    if size >= inner:
        size = ceil_div(inner, NIBBLES) * NIBBLES
    groups, width = ceil_div(inner, size), COLUMNS * target.facts.lanes
    middle = w.middle + (HALF if w.bits == 8 else 0)
    of_group = np.arange(groups) * size // w.size
    grid = [w.scales[of_group]]
    if w.zeros is not None:
        grid.append(w.zeros[of_group] + np.float32(middle))
        middle = 1
    packed = w.panels_of_words(width, groups * size), panels_of(grid, width)
    q, numbers = (g.constant(aligned(v), copy=False) for v in packed)
    return g(MatMulGroups(w.columns, size), g(QuantizeGroups(size, middle), x), q, numbers)
