"""What the threads of a subgroup exchange: the value that another one has, or all combined.

All threads of the subgroup come to such an expression.  Reductions combine halves: each thread's
value with that of the thread half a subgroup away, the results with those a quarter away, and so
on.  So the bits are defined, and the same in all threads.  In subgroups of one thread the value is
the thread's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpenglow.ir.types import Array
from alpenglow.kernel.expr import Expr
from alpenglow.kernel.scalar import BINARY_MEANING

MOVES = ("xor", "down", "up", "from")
"""Where a value comes from: from the thread whose number in the subgroup is this one's, changed in
some bits, greater or smaller by so many; or from the thread of a given number."""

COMBINES = {"add": "add", "mul": "mul", "min": "min", "max": "max", "any": "or", "all": "and"}
"""The operations that combine the values of all threads."""

TRUTH = ("any", "all")
"""Those of bool."""


@dataclass(frozen=True, slots=True, eq=False)
class Across(Expr):
    """x of another thread of the subgroup, which `at` tells, or x of all threads, combined.

    What `down` or `up` would take from past the ends is the thread's own.
    """

    op: str
    x: Expr
    at: Expr | None = None

    def __post_init__(self) -> None:
        moves = self.op in MOVES
        assert moves or self.op in COMBINES, f"nothing across threads is called {self.op}"
        assert moves == (self.at is not None), f"across.{self.op} takes {1 + moves} operands"
        bools = (self.x.dtype == "bool") == (self.op in TRUTH)
        assert moves or bools, f"across.{self.op} of {self.x.dtype}"

    @property
    def dtype(self) -> str:
        return self.x.dtype

    @property
    def lanes(self) -> int:
        return self.x.lanes


def exchanged(op: str, x: Array, at: Array) -> Array:
    """Return what each thread gets; x has an axis of subgroups, one of threads, and any others.

    `at` has the first two axes; reductions do not look at it.
    """
    count = x.shape[1]
    own = np.broadcast_to(np.arange(count), x.shape[:2])
    if op in COMBINES:
        combine, distance = BINARY_MEANING[COMBINES[op]], count // 2
        while distance:
            x = np.asarray(combine(x, x[:, own[0] ^ distance]))
            distance //= 2
        return x
    source = {"xor": own ^ at, "down": own + at, "up": own - at, "from": at}[op]
    outside = (source < 0) | (source >= count)
    if op in ("down", "up"):
        source = np.where(outside, own, source)
    elif outside.any():
        found = source[outside][0]
        raise IndexError(f"across.{op} reads thread {found}, expected 0 to {count - 1}")
    return np.asarray(x[np.arange(len(x))[:, None], source])
