"""Roots other than the square root."""

from __future__ import annotations

from typing import Any

from alpenglow.ir.op import Elementwise
from alpenglow.ir.types import FLOATS


class Cbrt(Elementwise):
    """The cube root of x, of either sign; -0, infinities and NaN stay.  NumPy cbrt.

    A power of |x| is near, and two steps of Newton's way bring what it lacks: each is a third of
    what is left over by the square.
    """

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        size = m.abs(x)
        special = m.bit_or(m.eq(x, 0.0), m.bit_or(m.isnan(x), m.isinf(x)))
        safe = m.where(special, 1.0, size)
        root = m.exp(m.div(m.log(safe), 3.0))
        for _ in range(2):
            rest = m.sub(root, m.div(m.div(safe, root), root))
            root = m.sub(root, m.div(rest, 3.0))
        return m.where(special, x, m.where(m.lt(x, 0.0), m.neg(root), root))
