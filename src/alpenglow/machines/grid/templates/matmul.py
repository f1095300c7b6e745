"""Matrix products: tiles of a group in shared memory."""

from __future__ import annotations

import math

from alpenglow.ir.dims import ceil_div, estimate
from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Window
from alpenglow.loops.instruction import Frame
from alpenglow.machines.grid.templates import templates
from alpenglow.machines.grid.templates.groups import computed, groups, is_plain, merge_axes
from alpenglow.machines.grid.templates.tile import Elements, Side, Tile, shape_for
from alpenglow.machines.grid.templates.words import in_words, sum_of_words
from alpenglow.ops.product.contraction import MatMul
from alpenglow.program.instr import Anchor, Instr

TAKEN = frozenset({"f16", "bf16", "f32", "f64", "i8", "u8"})
"""Element types of operands; sums of bytes are i32."""

FEW = 8
"""Rows or columns up to which a tile would be mostly empty."""

SHORT = 8
"""Steps that are over before threads have met."""


def summed(x: str) -> str:
    """Return the element type in which products of a type are added."""
    return "i32" if x in ("i8", "u8") else computed(x)


def _fits(op: MatMul, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether there are more than a few rows and columns, and steps between meetings."""
    if not is_plain(anchor, instr):
        return False
    x, y = (r.type for r in anchor.operands())
    rows, inner, columns = *x.extents[-2:], y.extents[-1]
    return (
        x.dtype in TAKEN
        and min(rows, columns) > FEW
        and inner >= SHORT
        and shape_for(rows, columns, 1, summed(x.dtype), target) is not None
    )


@templates.on(MatMul, "wide", _fits)
def mat_mul(k: Frame, op: MatMul, target: Target) -> None:
    """Build x times y: a group for each tile of each product."""
    x, y = k.inputs[:2]
    merge_rows(k)
    *batch, rows, columns = k.out.region.shape
    inner, dtype = x.region.shape[-1], summed(x.buffer.dtype)
    shape = shape_for(rows, columns, math.prod(batch), dtype, target)
    assert shape is not None, "a tile fits"
    tiles = [*batch, ceil_div(rows, shape.rows), ceil_div(columns, shape.columns)]
    with groups(k, tiles, shape.threads) as ((*lead, down, across), thread):
        dot = sum_of_words(x.buffer.dtype, y.buffer.dtype, target)
        tile = Tile(k, shape, dtype, thread, target, dot)
        row, column = k.b.let(down.base * shape.rows), k.b.let(across.base * shape.columns)
        left = matrix(k, x, lead, dtype, turned=False)
        right = matrix(k, y, lead, dtype, turned=True)
        if dot is not None:
            left, right, inner = in_words(k, left, right, inner)
        tile.multiply(inner, left, right, row, column)

        def store(line: Expr, where: list[Coord], total: Expr) -> None:
            k.sink.store([*lead, coord(line), *where], total)

        tile.finish(left, right, row, column, lambda c: [c], store, columns)


def matrix(k: Frame, w: Window, lead: list[Coord], dtype: str, turned: bool) -> Side:
    """Return a matrix as an operand whose lines are its rows, or, if `turned`, its columns."""

    def line(number: Expr) -> tuple[Elements, None]:
        def element(at: Expr) -> Expr:
            here, there = coord(number), coord(at)
            place = [there, here] if turned else [here, there]
            return k.loops.m.cast(w.load(k.loops, [*lead, *place]), dtype)

        return element, None

    return Side(w.region.shape[-1 if turned else -2], line, is_along(w, turned))


def is_along(w: Window, turned: bool) -> bool:
    """Return whether neighbours in memory are of one row of a matrix; if `turned`, of a column."""
    down, across = (abs(estimate(s)) for s in w.region.strides[-2:])
    return down < across if turned else across < down


def merge_rows(k: Frame) -> None:
    """See leading axes and rows as one axis of rows where one matrix y is multiplied by all."""
    x, y = k.inputs[:2]
    while len(y.region.shape) > 2 and y.region.strides[-3] == 0:
        rank = len(y.region.shape)
        if not merge_axes([x, k.out, *k.inputs[2:]], rank - 3, rank - 2):
            return
        shape, strides = y.region.shape, y.region.strides
        y.reshape((*shape[:-3], *shape[-2:]), (*strides[:-3], *strides[-2:]))
