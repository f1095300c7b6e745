"""Weights of few bits stay so where that pays: a product reads its weights, and fewer are faster.

A quantized weight is a dequantize of constants.  A product of it with reals in f32 becomes one
operator that reads the whole numbers, packed in panels of columns, in 8 bits or 4: what counts is
how far the numbers range, not what type they came in.  Of a table, rows are gathered before they
become floats.  All other weights are folded to floats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from alpenglow.base.memory import aligned
from alpenglow.ir.dims import Dim, ceil_div, estimate, known, product
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.target import Target
from alpenglow.ir.types import NARROW_INTS, Array, TensorType
from alpenglow.machines.vector.operators.few_bits import (
    NIBBLES,
    WORD,
    MatMulFewBits,
    PackNibbles,
    bytes_of_columns,
    nibbles_of_columns,
    words_of_columns,
)
from alpenglow.ops.product.contraction import BYTES, MatMul
from alpenglow.ops.quantized.quantize import REALS, Dequantize
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Transpose, stretch, unstretched
from alpenglow.ops.tensor.packing import PackMatrix
from alpenglow.passes.absorb import SCALED, Scale, scalable
from alpenglow.passes.constants import uniform
from alpenglow.passes.fold import contents
from alpenglow.passes.grid import MOST

FEW = 8
"""Rows of a product that takes as long as reading its weights: those of few bits stay."""

OPEN = 4
"""As for so many rows panels are, where rows are open."""

SMALLEST = 16
"""So many neighbours share a scale, at least, in weights that stay in few bits."""

HALF = 128
"""How far apart the same bits are as u8 and as i8."""

SLOWER = 1.15
"""How many times as long a product may take, by estimate, for weights of a quarter of the size."""

STREAM = 8
"""Bytes of weights that come from memory in the time of one multiply-add of vectors."""


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """The matrix (q - middle - zeros) * scales; these have a row for each group of `size`.

    q is the whole numbers [K, N], or what a model stores of each column, u8[N, bytes], where
    `by_column` says how many are used of these: neighbours of K, low bits first.
    """

    q: Array
    bits: int
    middle: int
    size: int
    scales: Array
    zeros: Array | None
    by_column: int = 0

    @property
    def inner(self) -> int:
        """The extent of K."""
        return self.by_column or len(self.q)

    @property
    def columns(self) -> int:
        """The extent of N."""
        return len(self.q) if self.by_column else self.q.shape[1]

    def panels(self, width: int) -> Array:
        """Return the whole numbers as PackNibbles or PackMatrix has them."""
        if self.by_column:
            pack = nibbles_of_columns if self.bits == 4 else bytes_of_columns
            return pack(self.q, self.by_column, width)
        op = PackNibbles(width) if self.bits == 4 else PackMatrix(width)
        return op.reference(self.q)

    def panels_of_words(self, width: int, inner: int) -> Array:
        """Return the whole numbers, bytes as u8, in words, with `inner` numbers a column.

        What is past the end of K may be anything.
        """
        if self.by_column:
            pack = nibbles_of_columns if self.bits == 4 else words_of_columns
            return pack(self.q, inner, width)
        stored = self.q if self.bits == 4 else self.q.view(np.uint8) ^ np.uint8(HALF)
        if inner > len(stored):
            stored = np.pad(stored, ((0, inner - len(stored)), (0, 0)))
        op = PackNibbles(width) if self.bits == 4 else PackMatrix(width, WORD)
        return op.reference(stored)


def low_bit_matmul(g: Graph, target: Target) -> Graph:
    """Read weights of few bits as they are stored, where that pays."""
    for node in list(g.nodes):
        match node:
            case Node(MatMul(), [Value() as x, Value() as w]) if x.type.dtype == "f32":
                matrix = weights(w)
                if matrix is not None and pays(x, matrix, target):
                    g.replace(node.output, multiplied(g, x, matrix, target))
            case Node(
                Gather(axis=0) as op, [Value(Node(Dequantize() as back) as table), Value() as i]
            ):
                rows = [_gathered(g, op, v, i, node.output.type) for v in table.inputs]
                if all(v is not None for v in rows):
                    g.replace(node.output, g(back, *rows))
    g.prune()
    return g


def _gathered(g: Graph, op: Gather, v: Value | None, i: Value, t: TensorType) -> Value | None:
    """Return rows of v, which is a constant or stretches one; None if it is neither."""
    assert v is not None, "dequantize has three operands"
    base = unstretched(v)
    if base.array is None:
        return None
    shape = (1,) * (v.type.rank - base.type.rank) + base.type.shape
    if shape[0] == 1 != v.type.shape[0]:
        rows = g(Reshape(shape[1:]), base)
    else:
        rows = g(op, g(Reshape(shape), base) if base.type.shape != shape else base, i)
    return stretch(g, rows, t.shape)


def pays(x: Value, w: Weights, target: Target) -> bool:
    """Whether a product takes no longer, or little, if weights are widened when they are read.

    For each vector of weights there is a multiply-add a row, while the next ones come from memory;
    to widen it takes a few instructions for each tile of rows, which run beside the multiply-adds.
    """
    rows = estimate(product(x.type.shape[:-1]))
    chosen = w.bits == 4 and target.has("avx512f")
    steps = (2 if w.bits == 8 or chosen else 4) + (w.zeros is not None)
    height = max(1, target.facts.registers // 2 - 4)
    if w.size < w.inner and rows > 2:
        steps += 1
    widening = ceil_div(rows, height) * steps / 2
    wide, narrow = (target.facts.lanes * bits / 8 / STREAM for bits in (32, w.bits))
    return max(rows + widening, narrow) <= SLOWER * max(rows, wide)


def weights(w: Value) -> Weights | None:
    """Return the parts of a matrix of dequantized constants; None if `w` is another matrix."""
    parts = _parts(w)
    if parts is None:
        return None
    q, scales, zeros = parts
    if not are_usable(scales):
        return None
    size = math.gcd(_period(scales), _period(zeros)) or len(q)
    if size < min(SMALLEST, len(q)):
        return None
    uniform = bool((zeros == zeros[0, 0]).all())
    scales, zeros = (np.ascontiguousarray(v[::size], np.float32) for v in (scales, zeros))
    zero = int(zeros[0, 0]) if uniform else 0
    low, high = int(q.min()), int(q.max())
    words = high - low < 16 and (size % NIBBLES == 0 or size == len(q))
    # What is stored is q less this.
    shift = low if words else 128 if q.dtype == np.uint8 else 0
    stored = q.view(np.uint8) - np.uint8(shift % 256)
    return Weights(
        stored if words else stored.view(np.int8),
        4 if words else 8,
        zero - shift,
        size,
        scales,
        None if uniform else zeros,
    )


def are_usable(scales: Array) -> bool:
    """Return whether the scales of weights are numbers of which products are finite."""
    return bool(np.isfinite(scales).all() and np.abs(scales).max() <= MOST)


def _parts(w: Value) -> tuple[Array, Array, Array] | None:
    """Return bytes, scales and zero points of a matrix, each of its shape; None if w is none."""
    base = unstretched(w)
    if not base.type.static or base.type.size == 0 or base.type.rank < 2:
        return None
    shape = base.type.shape[-2:]
    moves = []
    v = base
    while v.producer is not None and isinstance(v.producer.op, Reshape | Transpose):
        moves.append(v.producer.op)
        (inner,) = v.producer.inputs
        assert inner is not None
        v = inner
    match v:
        case Value(
            Node(Dequantize(dtype="f32"), [Value() as q, Value() as scale, Value() as zero])
        ):
            parts = [contents(each) for each in (q, scale, zero)]
        case _:
            return None
    narrow = q.type.dtype in BYTES | NARROW_INTS
    if not narrow or scale.type.dtype not in REALS or math.prod(base.type.shape[:-2]) != 1:
        return None
    arrays = []
    for array in parts:
        if array is None:
            return None
        for op in reversed(moves):
            array = op.reference(array)
        arrays.append(array.reshape(shape))
    kind = np.uint8 if q.type.dtype[0] == "u" else np.int8
    return np.ascontiguousarray(arrays[0], kind), arrays[1], arrays[2].astype(kind, copy=False)


def _period(v: Array) -> int:
    """Return after how many rows v changes: only at multiples of it; 0 if all rows are equal."""
    if not v.strides[0]:
        return 0
    changes = np.flatnonzero((v[1:] != v[:-1]).any(axis=1)) + 1
    return math.gcd(*changes.tolist())


def multiplied(g: Graph, x: Value, w: Weights, target: Target) -> Value:
    """Return x times the matrix, its columns packed in panels."""
    columns = w.columns
    grid = [w.scales] if w.zeros is None else [w.scales, w.zeros]
    width = _width(product(x.type.shape[:-1]), columns, len(grid), target) * target.facts.lanes
    panels = w.panels(width), panels_of(grid, width)
    q, numbers = (g.constant(aligned(v), copy=False) for v in panels)
    return g(MatMulFewBits(columns, w.size, w.middle), x, q, numbers)


def panels_of(grid: list[Array], width: int) -> Array:
    """Return what belongs to groups and columns as [N/width, groups, parts, width]."""
    groups, columns = grid[0].shape
    panels = ceil_div(columns, width)
    full = np.zeros((groups, len(grid), panels * width), np.float32)
    full[:, :, :columns] = np.stack(grid, axis=1)
    return full.reshape(groups, len(grid), panels, width).transpose(2, 0, 1, 3)


def _width(extent: Dim, columns: int, parts: int, target: Target) -> int:
    """Return how many vectors a panel is wide: the fewer rows, the more keep the units busy.

    More than half of that, it is what pads fewest columns.  Rows that are yet open may be few or
    many, and all numbers of them share the panels.
    """
    vectors = ceil_div(columns, target.facts.lanes)
    rows = estimate(extent) if known(extent) else OPEN
    best = min(vectors, 8 if rows * parts == 1 else 4 if rows <= 6 else 2)
    return min(range(best, best // 2, -1), key=lambda c: -vectors % c)


def dequantize_low_bit(g: Graph, target: Target) -> Graph:
    """Let products of many rows have their weights in floats, where bf16 are multiplied faster.

    Products of few rows by weights of few bits stay: these are read faster still.
    """
    if "bf16" not in target.facts.multiplies or "bf16" in target.facts.slower:
        return g
    for node in list(g.nodes):
        match node:
            case Node(MatMulFewBits() as op, [Value() as x, Value() as q, Value() as grid]):
                inner, rows = x.type.shape[-1], estimate(product(x.type.shape[:-1]))
                if rows <= FEW or q.array is None or grid.array is None or not known(inner):
                    continue
                w = g.constant(op.matrix(q.array, grid.array, inner), copy=False)
                shape = (*x.type.shape[:-2], *w.type.shape)
                g.replace(node.output, g(MatMul(), x, g(Broadcast(shape), w)))
    g.prune()
    return g


def scale_grid(g: Graph, node: Node, scale: Scale) -> Value | None:
    """mul(mat_mul_few_bits(x, q, grid), s) => mat_mul_few_bits(x, q, grid') where s is one number
    and grid' has its scales, but not the zero points behind them, times it"""
    x, q, grid = node.inputs
    number = uniform(scale.value)
    assert grid is not None, "the grid is there"
    if number is None or not scalable(grid, Scale(scale.op, scale.value, None)):
        return None
    factor = np.ones((grid.type.extents[2], 1), np.float32)
    factor[0] = number
    times = g(Broadcast(grid.type.shape), g.constant(factor))
    return g(node.op, x, q, g(scale.op, grid, times))


SCALED[MatMulFewBits] = scale_grid
