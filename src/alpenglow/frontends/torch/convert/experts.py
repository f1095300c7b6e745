"""Converters for products by groups of weights, of which data choose one for each row."""

from __future__ import annotations

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.movement import sliced
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import stretch

MOST_GROUPS = 64
"""How many groups there may be: each costs a product with all rows."""


@on("transformers.grouped_mm_fallback.default")
def grouped(s: Site, input: Value, weight: Value, offs: Value) -> Made:
    """Rows by the weights of their group; `offs` says where each group of rows ends.

    Every row is multiplied by all weights, and one product kept: which rows a group has is data.
    Rows behind the last group are 0.
    """
    groups, inner, columns = weight.type.shape
    rows = input.type.shape[0]
    if not isinstance(groups, int) or groups > MOST_GROUPS:
        raise UnsupportedError(
            f"weight has {groups} groups, expected a fixed number up to {MOST_GROUPS}"
        )
    at = stretch(s.g, s.reshaped(s.g(Range(rows)), (rows, 1)), s.result.shape)
    y = s.filled(0, s.result)
    for i in reversed(range(groups)):  # a row is of the first group that ends behind it
        weights = s.reshaped(sliced(s.g, weight, 0, i, 1), (inner, columns))
        end = s.cast(s.reshaped(sliced(s.g, offs, 0, i, 1), ()), "i64")
        is_before = s.g(Less(), at, stretch(s.g, end, s.result.shape))
        y = s.g(Where(), is_before, s.g(MatMul(), input, weights), y)
    return y
