"""What kernels found wrong with the data of a call, and the error that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.ir.bind_op import bind_op
from alpenglow.ir.types import Array
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.program import Instr


class Faults:
    """A word for each check of a call, in which kernels leave what is out of range.

    `values` holds the values of the symbols in the call.
    """

    def __init__(self, checks: Sequence[InRange], values: Mapping[str, int]) -> None:
        self._checks = checks
        self._values = values
        self._words = np.zeros(len(checks), np.int64)

    def addresses(self) -> Array:
        """Return where the words are."""
        return self._words.ctypes.data + np.arange(self._words.size) * self._words.itemsize

    def found(self, words: Array) -> None:
        """Take over what was left elsewhere."""
        self._words[:] = words

    def error(self) -> FeedError:
        """Return the error of what was found, and forget it."""
        check = int(np.flatnonzero(self._words)[0])
        element = int(self._words[check])
        self._words.fill(0)
        op = bind_op(self._checks[check], self._values)
        assert isinstance(op, InRange), "an operator stays what it is"
        return op.fault(element)


def check_in(instr: Instr) -> InRange:
    """Return the check of data in an instruction that has one."""
    ops = [instr.op] if instr.body is None else [n.op for n in instr.body.nodes]
    (check,) = (op for op in ops if isinstance(op, InRange))
    return check
