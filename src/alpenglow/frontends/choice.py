"""The choice between the results of branches that are all computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.operands import Operands
from alpenglow.ir.dims import known
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.types import DTYPES
from alpenglow.ops.comparison import Equal
from alpenglow.ops.in_range import InRange
from alpenglow.ops.movement import Reshape
from alpenglow.ops.select import Where


def only_computes(nodes: Sequence[Node]) -> bool:
    """Return True if no node ends the call for what it is given, or changes anything."""
    return all(node.op.pure and not isinstance(node.op, InRange) for node in nodes)


def is_alike(values: Sequence[Value]) -> bool:
    """Return True if values have one element type, and shapes that may be one."""
    first = values[0].type
    return all(
        v.type.dtype == first.dtype and v.type.rank == first.rank
        and all(a == b or not (known(a) and known(b))
                for a, b in zip(v.type.shape, first.shape, strict=True))
        for v in values
    )  # fmt: skip


def choices(s: Operands, count: int) -> list[Value]:
    """Return the results that operand 0 chooses of the others: `count` of each branch.

    Raises UnsupportedError if branches make values of different types.
    """
    index, *values = s.required()
    columns = [values[i::count] for i in range(count)]
    if not all(map(is_alike, columns)):
        raise UnsupportedError("branches make values of different types")
    return [chosen(s, index, column) for column in columns]


def chosen(s: Operands, index: Value, branches: Sequence[Value]) -> Value:
    """Return one of several values: of two by a truth value, the first if it is true; of others by
    number, the last if there is none of that number."""
    if index.type.rank:
        index = s.g(Reshape(()), index)
    *others, result = branches
    for i, branch in reversed(list(enumerate(others))):
        here = index
        if index.type.dtype != "bool":
            here = s.g(Equal(), index, s.g.constant(np.asarray(i, DTYPES[index.type.dtype])))
        result = s.g(Where(), *s.broadcast(here, branch, result))
    return result
