"""What kernels found wrong with the data of a call, and the error that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.ir.graph import bind_op
from alpenglow.ir.types import Array
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.program import Instr


class Faults:
    """A word for each check, in each of some turns, in which it leaves what is out of range.

    `values` tells what symbols stand for in a turn.
    """

    def __init__(
        self, checks: Sequence[InRange], turns: int, values: Callable[[int], Mapping[str, int]]
    ) -> None:
        self._checks = checks
        self._values = values
        self._words = np.zeros((turns, len(checks)), np.int64)

    def addresses(self) -> Array:
        """Return where the words are, a row for each turn."""
        steps = np.arange(self._words.size) * self._words.itemsize
        return (self._words.ctypes.data + steps).reshape(self._words.shape)

    def found(self, words: Array) -> None:
        """Take over what was left elsewhere, in one turn."""
        self._words[0] = words

    def error(self) -> FeedError:
        """Return the error of what was found, and forget it."""
        turns, checks = np.nonzero(self._words)
        turn, check = int(turns[0]), int(checks[0])
        element = int(self._words[turn, check])
        self._words.fill(0)
        op = bind_op(self._checks[check], self._values(turn))
        assert isinstance(op, InRange), "an operator stays what it is"
        return op.fault(element)


def check_in(instr: Instr) -> InRange:
    """Return the check of data in an instruction that has one."""
    ops = [instr.op] if instr.body is None else [n.op for n in instr.body.nodes]
    (check,) = (op for op in ops if isinstance(op, InRange))
    return check
