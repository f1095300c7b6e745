"""Converters that order elements along an axis.

All of them are TopK, which keeps equal elements in order and takes NaN to be the largest.  PyTorch
does not say in which order topk and kthvalue leave equal elements.
"""

from __future__ import annotations

from alpenglow.frontends.movement import sliced
from alpenglow.frontends.torch.table import Made, Site, axis_of, on
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ops.tensor.order import TopK


@on("aten.sort.default", "aten.sort.stable")
def sort(
    s: Site, x: Value, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> Made:
    return ordered(s, x, dim, None, descending)


@on("aten.topk.default")
def topk(
    s: Site, x: Value, k: Dim, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Made:
    return ordered(s, x, dim, k, largest)


@on("aten.kthvalue.default")
def kth_value(s: Site, x: Value, k: Dim, dim: int = -1, keepdim: bool = False) -> Made:
    both = ordered(s, x, dim, k, False)
    if not x.type.rank:
        return both
    axis = axis_of(dim, x.type.rank)
    return [s.reshaped(sliced(s.g, v, axis, k - 1, 1), s.stated(0).shape) for v in both]


def ordered(s: Site, x: Value, dim: int, k: Dim | None, largest: bool) -> list[Value]:
    """Return the first k elements along an axis in order, all for None, and their places."""
    dtype = x.type.dtype
    axis = axis_of(dim, x.type.rank)
    line = x if x.type.rank else s.reshaped(x, (1,))
    count = line.type.shape[axis] if k is None else k
    bits = s.cast(line, "u8") if dtype == "bool" else line
    values, places = s.g.add(TopK(axis, count, largest), [bits]).results
    shape = values.type.shape if x.type.rank else ()
    return [s.reshaped(s.cast(values, dtype), shape), s.reshaped(places, shape)]
