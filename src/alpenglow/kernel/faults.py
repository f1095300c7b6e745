"""Faults: what a kernel finds wrong with data, and how it says so.

A kernel that checks data has two more operands.  `stop` is the stop word of the call
(`kernel.stoppable`), which it sets to `OUT_OF_RANGE`, so that nothing more is begun; in `fault`, a
word of this instruction alone, it leaves the element that was out of range.  That is never 0: every
range has 0 in it, or is empty.  Several threads may find something; any of it is what is reported.
"""

from __future__ import annotations

from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Buffer, Const, Expr
from alpenglow.kernel.stoppable import STOP

FAULT = Buffer("fault", "i64", mutable=True, volatile=True)

OUT_OF_RANGE = 4
"""The stop word's value once an element was out of range (`runtime.call.calls` has the others)."""


def report(b: Builder, element: Expr) -> None:
    """Say that a scalar i64 is out of range."""
    b.buffers += [x for x in (STOP, FAULT) if x not in b.buffers]
    b.store(FAULT, 0, element)
    b.store(STOP, 0, Const(OUT_OF_RANGE))
