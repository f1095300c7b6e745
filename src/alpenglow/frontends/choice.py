"""The choice between the results of branches that are all computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.operands import Operands
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import DTYPES
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Reshape

MOST_WORK = 1 << 20
MOST_ELEMENTS = 1 << 18
"""Branches that make no more elements, by no more multiply-adds, take less time than a call of
another part of the model (20 to 40 us)."""


def is_cheap(nodes: Sequence[Node]) -> bool:
    """Return True if nodes only compute, and take little time as far as extents are known.

    A node that may end the call, or changes anything, does more than to compute.
    """
    work = elements = 0
    for node in nodes:
        if not node.op.pure or isinstance(node.op, InRange):
            return False
        ins = [None if v is None else v.type for v in node.inputs]
        outs = [v.type for v in node.results]
        if any(t is not None and t.symbols() for t in (*ins, *outs)):
            if type(node.op).work is not Op.work:
                return False
            continue
        work += node.op.work(ins, outs)
        elements += sum(t.size for t in outs)
    return work <= MOST_WORK and elements <= MOST_ELEMENTS


def choices(s: Operands, count: int) -> list[Value]:
    """Return the results that operand 0 chooses of the others: `count` of each branch.

    A truth value chooses the first of two if it is true, a number the branch of that number, the
    last if there is none.  Raises UnsupportedError if branches make values of different types.
    """
    index, *values = s.required()
    columns = [values[i::count] for i in range(count)]
    for types in ({v.type for v in column} for column in columns):
        if len(types) > 1:
            found = " and ".join(map(str, types))
            raise UnsupportedError(f"branches return {found}, expected the same type")
    taken = _conditions(s, index, len(values) // count - 1) if count else []
    return [_chosen(s, taken, column) for column in columns]


def _conditions(s: Operands, index: Value, count: int) -> list[Value]:
    """Return for each of the first `count` branches whether an index chooses it.

    All results share them, by which gradients know that they are results of the same branches.
    """
    if index.type.rank:
        index = s.g(Reshape(()), index)
    if index.type.dtype == "bool":
        return [index]
    numbers = [s.g.constant(np.asarray(i, DTYPES[index.type.dtype])) for i in range(count)]
    return [s.g(Equal(), index, number) for number in numbers]


def _chosen(s: Operands, taken: Sequence[Value], branches: Sequence[Value]) -> Value:
    """Return the value of the branch that is taken: the last if no condition holds."""
    *others, result = branches
    for here, branch in reversed(list(zip(taken, others, strict=True))):
        result = s.g(Where(lazy=True), *s.broadcast(here, branch, result))
    return result
