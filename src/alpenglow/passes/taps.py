"""Taps of a window that see padding alone, as on images smaller than the window: they go.

Padding is zeros, so what such a tap is multiplied by does not matter; not even if it is not finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from alpenglow.ir.dims import Dim, ceil_div
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.movement import Pad, Slice
from alpenglow.ops.window.conv_filter import ConvFilter

rules = Rules()


@rules.on(Conv)
def conv_of_padding(g: Graph, node: Node) -> Rewritten:
    """conv(x, w) => conv(x, slice(w))   where the first or last taps see padding alone"""
    match node:
        case Node(Conv() as op, [Value() as x, Value() as w, *bias]):
            seen = _seen(op, x, w.type.shape[2:], node.output)
            if seen is None:
                return None
            starts = (0, 0, *(s.first for s in seen))
            sizes = (*w.type.shape[:2], *(s.taps for s in seen))
            inner = g(Slice(starts, sizes, (1,) * w.type.rank), w)
            return g(replace(op, pads=_pads(seen)), x, inner, *bias)
    return None


@rules.on(ConvFilter)
def filter_of_padding(g: Graph, node: Node) -> Rewritten:
    """conv_filter(x, dy) => pad(conv_filter(x, dy))   with fewer taps: others see padding alone"""
    match node:
        case Node(ConvFilter() as op, [Value() as x, Value() as dy]):
            seen = _seen(op.conv, x, op.taps, dy)
            if seen is None:
                return None
            dw = g(replace(op, taps=tuple(s.taps for s in seen), pads=_pads(seen)), x, dy)
            before = (0, 0, *(s.first for s in seen))
            after = (0, 0, *(t - s.first - s.taps for s, t in zip(seen, op.taps, strict=True)))
            return g(Pad(before, after), dw)
    return None


@dataclass(frozen=True)
class _Axis:
    """So many taps from the first that sees any data on, and the padding that is left."""

    first: int
    taps: int
    before: int
    after: int


def _seen(op: Conv, x: Value, taps: Sequence[Dim], y: Value) -> list[_Axis] | None:
    """Return the taps that are left on each axis; None if all see data or that is not known."""
    spatial = len(taps)
    pads, strides, dilations = op.window(spatial)
    axes = []
    for i, extents in enumerate(zip(x.type.shape[2:], taps, y.type.shape[2:], strict=True)):
        extent, count, places = extents
        if not isinstance(extent, int) or not isinstance(count, int) or not isinstance(places, int):
            return None
        axis = _Axis(0, count, pads[i], pads[spatial + i])
        axes.append(_trimmed(axis, extent, places, strides[i], dilations[i]))
    changed = any(a.taps != t for a, t in zip(axes, taps, strict=True))
    return axes if changed else None


def _trimmed(axis: _Axis, extent: int, places: int, stride: int, dilation: int) -> _Axis:
    """Return an axis without the taps at its ends that never see data; one is left.

    Padding becomes nowhere negative: a tap that sees none may have to stay for that.
    """

    def sees(tap: int) -> bool:
        offset = tap * dilation - axis.before
        place = max(0, ceil_div(-offset, stride))  # the first that is not before the data
        return place < places and place * stride + offset < extent

    first, last = 0, axis.taps - 1
    while first < last and not sees(first) and axis.before >= (first + 1) * dilation:
        first += 1
    while last > first and not sees(last) and axis.after >= (axis.taps - last) * dilation:
        last -= 1
    before = axis.before - first * dilation
    after = axis.after - (axis.taps - 1 - last) * dilation
    return _Axis(first, last - first + 1, before, after)


def _pads(axes: Sequence[_Axis]) -> tuple[int, ...]:
    return (*(a.before for a in axes), *(a.after for a in axes))
