"""Rows of tensors: a loop takes one of an operand in each iteration, and stacks one of a result."""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.operands import Operands
from alpenglow.ir.graph import Value
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Concat, Reshape, Slice


def row(s: Operands, axis: int, index: int) -> Value:
    """Return the operand at an index on an axis, without that axis."""
    x = s.input(0)
    return s.g(Gather(s.axis(axis, x.type.rank)), x, s.g.constant(np.array(index)))


def stacked(s: Operands, axis: int) -> Value:
    """Return the operands one behind the other on a new axis."""
    rows = s.required()
    at = s.axis(axis, rows[0].type.rank + 1)
    shapes = [(*v.type.shape[:at], 1, *v.type.shape[at:]) for v in rows]
    return s.g(Concat(at), *[s.g(Reshape(d), v) for v, d in zip(rows, shapes, strict=True)])


def first_rows(s: Operands) -> Value:
    """Return as many rows of operand 1 as operand 0 says; its first axis, of one row, goes."""
    (count,) = s.dims(0)
    shape = s.input(1).type.shape[2:]
    starts, steps = (0,) * (2 + len(shape)), (1,) * (2 + len(shape))
    return s.g(Reshape((count, *shape)), s.g(Slice(starts, (1, count, *shape), steps), s.input(1)))
