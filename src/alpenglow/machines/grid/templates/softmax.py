"""Softmax along any axis: threads share a line, and keep what they have of it if that is little."""

from __future__ import annotations

import math

from alpenglow.ir.target import Target
from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import coord
from alpenglow.loops.instruction import Frame
from alpenglow.loops.reduction.normalize import factor_of, share_of, subtracted
from alpenglow.loops.rows import placed
from alpenglow.machines.grid.templates import templates
from alpenglow.machines.grid.templates.groups import computed, is_plain
from alpenglow.machines.grid.templates.reduction import is_along
from alpenglow.machines.grid.templates.team import Elements, lines
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.program.instr import Anchor, Instr


def _fits(op: Softmax, anchor: Anchor, instr: Instr, target: Target) -> bool:
    return is_plain(anchor, instr)


@templates.on(Softmax, "axis zeros", _fits)
def softmax(k: Frame, op: Softmax, target: Target) -> None:
    """Build a softmax: the largest element, the sum of exponentials, the shares."""
    x = k.inputs[0]
    shape, rank = x.region.shape, len(x.region.shape)
    axis, dtype, m = op.axis % rank, computed(x.buffer.dtype), k.loops.m
    kept = [d for a, d in enumerate(shape) if a != axis]
    along = is_along(shape, x.region.strides, (axis,))
    with lines(k, target, kept, shape[axis], along) as (team, at, inside):

        def element(number: Expr) -> Expr:
            return x.load(k.loops, placed(rank, (axis,), [coord(number)], at))

        elements = Elements(team, shape[axis], dtype, element)
        top = subtracted(k.loops, op, elements.combined("max", -math.inf))
        shares = elements.map(lambda value: m.exp_below(m.sub(value, top)))
        factor = factor_of(k.loops, op, shares.combined("add", 0))

        def store(number: Expr, value: Expr, slot: int) -> None:
            place = placed(rank, (axis,), [coord(number)], at)
            k.sink.store(place, share_of(k.loops, op, value, factor))

        with team.present(inside):
            shares.each(store)
