"""Jumps: loops and branches become jumps when their regions are laid out in the program."""

from __future__ import annotations

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import Op
from alpenglow.ir.types import TensorType

FLAG = TensorType("bool", ())
"""The type of the truth value that decides about a jump."""


class Jump(Op):
    """Go on `by` instructions further on, or back, where `flag`, bool[], is `when`.

    Without a flag, always.  It has no results.
    """

    by: int
    when: bool = True

    def infer(self, flag: TensorType | None = None) -> tuple[TensorType, ...]:
        if flag is not None and flag != FLAG:
            raise TypeRuleError(f"jump: flag is {flag}, expected {FLAG}")
        if not self.by:
            raise TypeRuleError("jump: by is 0, expected another integer")
        return ()
