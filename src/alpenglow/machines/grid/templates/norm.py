"""Normalisation along the last axes: threads share a row and keep what they have of it."""

from __future__ import annotations

import math

from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Window
from alpenglow.loops.instruction import Frame
from alpenglow.machines.grid.templates import templates
from alpenglow.machines.grid.templates.groups import (
    below,
    computed,
    is_plain,
    merge_axes,
    operands,
)
from alpenglow.machines.grid.templates.reduction import is_along
from alpenglow.machines.grid.templates.team import Elements, lines
from alpenglow.ops.reduction.layer_norm import LayerNorm, RMSNorm
from alpenglow.program.instr import Anchor, Instr


def _fits(op: LayerNorm | RMSNorm, anchor: Anchor, instr: Instr, target: Target) -> bool:
    return is_plain(anchor, instr)


@templates.on(LayerNorm, "axis epsilon", _fits)
@templates.on(RMSNorm, "axis epsilon", _fits)
def norm(k: Frame, op: LayerNorm | RMSNorm, target: Target) -> None:
    """Build a norm: the mean, if it is taken away, the mean of squares, the results."""
    x, *factors = operands(k)
    rank = len(x.region.shape)
    axis = op.axis % rank
    outer, inner = x.region.shape[:axis], x.region.shape[axis:]
    extent, dtype, m = math.prod(inner), computed(x.buffer.dtype), k.loops.m
    along = is_along(x.region.shape, x.region.strides, tuple(range(axis, rank)))
    merge_axes([x, k.out, *k.inputs[1 + len(factors) :]], axis, rank - 1)
    for w in factors:
        merge_axes([w], 0, rank - axis - 1)
    with lines(k, target, outer, extent, along) as (team, at, inside):
        count = k.loops.constant(extent, dtype)

        def element(number: Expr) -> Expr:
            return x.load(k.loops, [*at, *_inner(k, x, axis, number)])

        elements = Elements(team, extent, dtype, element)
        if isinstance(op, LayerNorm):
            mean = k.b.let(m.div(elements.combined("add", 0), count))
            elements = elements.map(lambda value: m.sub(value, mean))
        squares = elements.map(lambda value: m.mul(value, value)).combined("add", 0)
        variance = m.add(m.div(squares, count), k.loops.constant(op.epsilon, dtype))
        factor = k.b.let(m.div(1.0, m.sqrt(variance)))

        def store(number: Expr, value: Expr, slot: int) -> None:
            y = m.mul(value, factor)
            for w, apply in zip(factors, (m.mul, m.add), strict=False):
                y = apply(y, w.load(k.loops, _inner(k, w, 0, number)))
            k.sink.store([*at, *_inner(k, k.out, axis, number)], y)

        with team.present(inside):
            elements.each(store)


def _inner(k: Frame, w: Window, axis: int, number: Expr) -> list[Coord]:
    """Return where the element of a row with a number is in a window, from an axis on."""
    extents = w.region.shape[axis:]
    if len(extents) == 1:
        return [coord(number)]
    return k.loops.split(below(k, number, math.prod(extents)), extents)
