"""Places along an axis that are data: which there are, and what types they may have."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.op import Op
from alpenglow.ir.types import Array, TensorType

INDICES = frozenset({"i32", "i64"})


def clamped(indices: Array, extent: int) -> Array:
    """Return indices counted from the front and limited to what an axis of `extent` has."""
    front = np.where(indices < 0, indices + extent, indices)
    return np.clip(front, 0, max(extent - 1, 0))


def check_reachable(op: Op, data: TensorType, axis: int, shape: tuple[Dim, ...]) -> None:
    """Raise TypeRuleError if an axis of no elements is read at all."""
    if data.shape[axis] == 0 and product(shape) != 0:
        raise TypeRuleError(f"{op.name}: data is {data}, expected an element on axis {axis}")
