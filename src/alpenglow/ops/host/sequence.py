"""Reading and extending a sequence, as operators of ONNX and loops of the runtime do.

A sequence is a list of tensors of one element type; an empty one has none.  Operators return new
lists that share the tensors of the old.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.ir.op import Examples, Host
from alpenglow.ir.types import Array
from alpenglow.ops.host.demand import integer, refuse, same_dtype, sequence

Tensors = list[Array]


class SequenceAt(Host):
    """The element at `position`, which counts from the end if negative.  ONNX SequenceAt."""

    def reference(self, sequence: Tensors, position: Array) -> Array:
        return sequence[place(self, sequence, position)]

    @classmethod
    def examples(cls) -> Examples:
        for i in (0, 1, -1, -2):
            yield cls(), [np.zeros(3), np.ones(2)], np.array(i)


class SequenceInsert(Host):
    """The sequence with `tensor` before what is at `position`, or at the end without one.

    ONNX SequenceInsert.
    """

    def reference(self, sequence: Tensors, tensor: Array, position: Array | None = None) -> Tensors:
        if not isinstance(tensor, np.ndarray):
            refuse(self, "tensor", tensor, "a tensor")
        if position is None:
            i = len(listed(self, sequence))
        else:
            i = place(self, sequence, position, past_end=True)
        same_dtype(self, [*sequence[:1], tensor])
        return [*sequence[:i], tensor, *sequence[i:]]

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), [], np.ones(2)
        yield cls(), [np.zeros(3)], np.ones(2), None
        for i in (0, 1, 2, -1, -2):
            yield cls(), [np.zeros(3), np.zeros(1)], np.ones(2), np.array(i, np.int32)


def listed(op: Host, value: object) -> Tensors:
    """Return operand `sequence`, which must be one."""
    return sequence(op, "sequence", value)


def place(op: Host, value: object, position: Array, past_end: bool = False) -> int:
    """Return `position` in a sequence counted from the front; with `past_end`, its end is one."""
    n = len(listed(op, value))
    i = integer(op, "position", position)
    if not -n <= i < n + past_end:
        raise FeedError(
            f"{op.name}: position is {i}, expected at least {-n} and below {n + past_end} in a "
            f"sequence of {n}"
        )
    return i + n if i < 0 else i
