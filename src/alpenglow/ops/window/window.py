"""Sliding windows: what convolution and pooling share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known, quotient
from alpenglow.ir.op import Op
from alpenglow.ir.types import Array

FARTHEST = 1 << 31
"""More padding than this is a mistake in the model."""


def conv_extent(
    op: Op, extent: Dim, kernel: Dim, stride: int, before: int, after: int, dilation: int,
    ceil: bool = False,
) -> Dim:  # fmt: skip
    """Return how many windows fit along one axis.

    With `ceil` a window may hang over the end, but must begin within the data or the padding
    before it (ONNX pooling, ceil_mode).  Raises TypeRuleError if the window is empty, or if not a
    single one fits.
    """
    if known(kernel) and kernel < 1:
        raise TypeRuleError(f"{op.name}: window is {kernel} wide, expected 1 or more")
    if any(known(pad) and pad < 0 for pad in (before, after)):
        raise TypeRuleError(f"{op.name}: pads are {before} and {after}, expected 0 or more")
    if any(known(pad) and pad > FARTHEST for pad in (before, after)):
        raise TypeRuleError(
            f"{op.name}: pads are {before} and {after}, expected at most {FARTHEST}"
        )
    if stride < 1 or dilation < 1:
        raise TypeRuleError(
            f"{op.name}: stride is {stride} and dilation {dilation}, expected 1 or more"
        )
    span = (kernel - 1) * dilation + 1
    room = extent + before + after - span
    least = room + (stride - 1) if ceil else room
    if known(least) and least < 0:
        raise TypeRuleError(
            f"{op.name}: window is {span} wide, expected at most {span + least} for an axis of "
            f"{extent} padded by {before} and {after}"
        )
    if ceil:
        assert known(span) and known(after), "the windows of pooling are of known extents"
        room = extent + before + overhang(span, stride, after) - span
    return quotient(room, stride) + 1


def overhang(span: int, stride: int, after: int) -> int:
    """Return how far the last window may reach beyond the data, if windows may hang over the end.

    A window that begins `stride` or more before the end of the padding is not the last one, and
    none begins behind the data: the last element of the data is the last place to begin.
    """
    return min(after + stride - 1, span - 1)


def edged(pads: tuple[int, ...], before: int, after: int) -> tuple[int, ...]:
    """Return pads, those before each spatial axis and those after, with others around rows."""
    spatial = len(pads) // 2
    return (before, *pads[1:spatial], after, *pads[spatial + 1 :])


def windows(
    x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Array:
    """Return the windows of x[N, C, *spatial] as a view of shape [N, C, *out, *kernel]."""
    spatial = x.ndim - 2
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    rooms = [extent - span for extent, span in zip(x.shape[2:], spans, strict=True)]
    if min(rooms, default=0) < 0:  # with axes that have windows, as ONNX's ceil_mode leaves them
        counts = [max(room // s + 1, 0) for room, s in zip(rooms, strides, strict=True)]
        return np.empty((*x.shape[:2], *counts, *kernel), x.dtype)
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=tuple(range(2, x.ndim)))
    step = tuple(slice(None, None, s) for s in strides)
    tap = tuple(slice(None, None, d) for d in dilations)
    assert view.ndim == 2 + 2 * spatial
    return view[(slice(None), slice(None), *step, *tap)]
