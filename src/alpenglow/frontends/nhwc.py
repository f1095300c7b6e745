"""Shared by the formats of TensorFlow: channels last, SAME padding, fused activations.

Our operators have channels on axis 1.  A converter turns its operand there and its result back;
between two of them the turns cancel (`passes.sink`).
"""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import ModelError
from alpenglow.frontends.presume import presume
from alpenglow.ir.dims import Dim, ceil_div, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.tensor.movement import Transpose


def channels_first(g: Graph, x: Value) -> Value:
    """Return x[N, …, C] as [N, C, …]."""
    rank = x.type.rank
    return g(Transpose((0, rank - 1, *range(1, rank - 1))), x)


def channels_last(g: Graph, x: Value) -> Value:
    """Return x[N, C, …] as [N, …, C]."""
    return g(Transpose((0, *range(2, x.type.rank), 1)), x)


def by_channel(values: Sequence[Value]) -> bool:
    """Whether what is stretched among operands is what an image has for each of its channels.

    Such operands are better stretched with channels first: then turns around them cancel.
    """
    ranks = {v.type.rank for v in values}
    if len(ranks) > 1 or min(ranks, default=0) < 4:
        return False
    one = [all(d == 1 for d in v.type.shape[1:-1]) for v in values]
    return any(one) and not all(one)


def window_pads(
    same: bool, extents: Sequence[Dim], kernel: Sequence[int], strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...]:  # fmt: skip
    """Return the pads before each axis, then those after, of SAME or VALID padding.

    SAME makes as many windows as there are steps on an axis, and pads less before than after.
    """
    if not same:
        return (0,) * (2 * len(extents))
    pairs = [
        same_pads(d, (k - 1) * dilation + 1, stride)
        for d, k, stride, dilation in zip(extents, kernel, strides, dilations, strict=True)
    ]
    return (*(before for before, _ in pairs), *(after for _, after in pairs))


def same_pads(extent: Dim, span: int, stride: int) -> tuple[int, int]:
    """Return the pads before and after an axis for windows that span so many elements.

    A stride is presumed to divide a dynamic dimension if the pad before depends on that.
    """
    if stride < 1:
        raise ModelError(f"a stride is {stride}, expected 1 or more")
    ends = same_ends(extent, span, stride)
    if ends is None:
        presume(extent % stride, "==")
        total = max(span - stride, 0)
        ends = total // 2, total - total // 2
    return ends


def same_ends(
    extent: Dim, span: int, stride: int, lower: bool = False
) -> tuple[int, int] | None:
    """Return the pads of SAME before and after an axis; None if the first hangs on the extent.

    With `lower` there is more before than after.
    """
    if known(extent):
        total = max(int((ceil_div(extent, stride) - 1) * stride - extent) + span, 0)
        first = total - total // 2 if lower else total // 2
        return first, total - first
    totals = [max(span - stride + left, 0) for left in (0, stride - 1)]
    firsts = {n - n // 2 if lower else n // 2 for n in totals}
    # A longer pad behind adds no window to other extents, and none of their windows reads it.
    first = firsts.pop()
    return None if firsts else (first, max(span - 1 - first, 0))
