"""Writers of operators that move elements: reshape, transpose, slice, concat, pad, …"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.exporters.onnx.extents import extents
from alpenglow.exporters.onnx.formula import number
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.writer import SMALL, Operand, Tensor, Writer
from alpenglow.ir.dims import Dim, ceil_div, is_open
from alpenglow.ir.graph import Value
from alpenglow.ir.types import NARROW_INTS
from alpenglow.ops.tensor.movement import (
    Broadcast,
    Concat,
    Pad,
    Reshape,
    Slice,
    Transpose,
    Trilu,
)
from alpenglow.ops.tensor.packing import PackConv, PackMatrix
from alpenglow.ops.window.conv_transpose import Dilate

FAR = np.iinfo(np.int64).max
"""An end that no axis reaches; less this is one before the beginning."""


@on(Reshape)
def reshape(w: Writer, op: Reshape, x: Value) -> Tensor:
    return reshaped(w, x, op.shape)


def reshaped(w: Writer, x: Operand, shape: tuple[Dim, ...]) -> Tensor:
    """Return x in another shape.

    A single dynamic dimension is -1, so the number of elements decides it, if no other is 0.
    """
    is_empty = any(not is_open(d) and d == 0 for d in shape)
    constant = x.array if isinstance(x, Value) else x
    if (
        isinstance(constant, np.ndarray)
        and constant.nbytes <= SMALL
        and not any(map(is_open, shape))
    ):
        return w.tensor(constant.reshape([int(d) for d in shape]))
    if sum(map(is_open, shape)) == 1 and not is_empty:
        shape = tuple(-1 if is_open(d) else d for d in shape)
    attributes: dict[str, Any] = {"allowzero": 1} if is_empty or sum(map(is_open, shape)) else {}
    return w("Reshape", x, extents(w, shape), **attributes)


@on(Transpose)
def transpose(w: Writer, op: Transpose, x: Value) -> Tensor:
    return transposed(w, x, op.perm)


def transposed(w: Writer, x: Operand, perm: tuple[int, ...]) -> Tensor:
    """Return x with its axes permuted; x itself if they stay."""
    return w("Transpose", x, perm=perm) if perm != tuple(range(len(perm))) else w.tensor(x)


@on(Broadcast)
def broadcast(w: Writer, op: Broadcast, x: Value) -> Tensor:
    return expanded(w, x, op.shape)


def expanded(w: Writer, x: Operand, shape: tuple[Dim, ...]) -> Tensor:
    """Return x stretched to a shape."""
    return w("Expand", x, extents(w, shape))


@on(Slice)
def slice_(w: Writer, op: Slice, x: Value) -> Tensor:
    return sliced(w, x, x.type.shape, op.starts, op.sizes, op.steps)


def sliced(
    w: Writer, x: Operand, shape: tuple[Dim, ...],
    starts: tuple[Dim, ...], sizes: tuple[Dim, ...], steps: tuple[int, ...],
) -> Tensor:  # fmt: skip
    """Return `sizes` elements of x from `starts` on; axes that stay as they are need no mention."""
    cuts = [
        (axis, start, size, step)
        for axis, (d, start, size, step) in enumerate(zip(shape, starts, sizes, steps, strict=True))
        if (start, size, step) != (0, d, 1)
    ]
    if not cuts:
        return w.tensor(x)
    ends = [_end(w, shape[axis], start, size, step) for axis, start, size, step in cuts]
    begins = [0 if not is_open(size) and size == 0 else start for _, start, size, _ in cuts]
    axes, every = ([c[i] for c in cuts] for i in (0, 3))
    more = [np.array(every, np.int64)] if every != [1] * len(cuts) else []
    return w("Slice", x, extents(w, begins), joined(w, ends), np.array(axes, np.int64), *more)


def _end(w: Writer, extent: Dim, start: Dim, size: Dim, step: int) -> Operand:
    """Return the end of a slice as i64[1], exclusive, and not counted from the end of the axis."""
    if not is_open(size) and size == 0:
        return np.array([0], np.int64)
    if step == 1 and start + size == extent:
        return np.array([FAR], np.int64)
    end = start + size * step
    if step < 0 and not is_open(end):
        return np.array([end if end >= 0 else -FAR], np.int64)
    last = extents(w, [end])
    if step > 0:
        return last
    far = np.array([-FAR], np.int64)
    return w("Where", w("Less", last, np.array([0], np.int64)), far, last)


def joined(w: Writer, parts: list[Operand]) -> Operand:
    """Return vectors of i64 as one, a constant if all are."""
    arrays = [p for p in parts if isinstance(p, np.ndarray)]
    if len(arrays) == len(parts):
        return np.concatenate(arrays)
    return parts[0] if len(parts) == 1 else w("Concat", *parts, axis=0)


@on(Concat)
def concat(w: Writer, op: Concat, *xs: Value) -> Tensor:
    return w("Concat", *xs, axis=op.axis) if len(xs) > 1 else w.tensor(xs[0])


@on(Pad)
def pad(w: Writer, op: Pad, x: Value) -> Tensor:
    """Write what is added, then cut off what is taken away."""
    more = [max(a, 0) for a in (*op.before, *op.after)]
    y = padded(w, x, more, op.mode, op.value) if any(more) else w.tensor(x)
    rank = x.type.rank
    cuts = [(i, a, b) for i, (a, b) in enumerate(zip(op.before, op.after, strict=True))
            if min(a, b) < 0]  # fmt: skip
    if not cuts or not rank:
        return y
    begins, ends = [max(-a, 0) for _, a, _ in cuts], [b if b < 0 else FAR for _, _, b in cuts]
    axes = [i for i, _, _ in cuts]
    return w("Slice", y, *(np.array(v, np.int64) for v in (begins, ends, axes)))


def padded(w: Writer, x: Operand, amounts: list[int], mode: str, value: float = 0.0) -> Tensor:
    """Return x with so many elements more, before all axes and after them."""
    pads = np.array(amounts, np.int64)
    if mode != "constant":
        return w("Pad", x, pads, mode=mode)
    dtype = w.dtype(x)
    if dtype in NARROW_INTS:
        return w.cast(w("Pad", w.cast(x, "i32"), pads, np.array(int(value), np.int32)), dtype)
    return w("Pad", x, pads, number(value, dtype))


@on(Trilu)
def trilu(w: Writer, op: Trilu, x: Value) -> Tensor:
    return w("Trilu", x, np.array(op.k, np.int64), upper=int(op.upper))


@on(PackMatrix)
def pack_matrix(w: Writer, op: PackMatrix, x: Value) -> Tensor:
    """Put panels of columns in a row, and in each `dots` neighbours of a column together."""
    k, n = x.type.shape
    panels, steps = ceil_div(n, op.width), ceil_div(k, op.dots)
    full = filled_up(w, x, (k, n), (steps * op.dots, panels * op.width))
    split = reshaped(w, full, (steps, op.dots, panels, op.width))
    packed = transposed(w, split, (2, 0, 3, 1))
    return packed if op.dots > 1 else reshaped(w, packed, (panels, steps, op.width))


@on(PackConv)
def pack_conv(w: Writer, op: PackConv, x: Value) -> Tensor:
    o, i, *taps = x.type.shape
    outer, inner = ceil_div(o, op.width), ceil_div(i, op.lanes)
    full = filled_up(w, x, x.type.shape, (outer * op.width, inner * op.lanes, *taps))
    lanes = (op.lanes // op.dots, op.dots)
    split = reshaped(w, full, (outer, op.width, inner, *lanes, *taps))
    at = range(5, 5 + len(taps))
    packed = transposed(w, split, (0, 2, *at, 3, 1, 4))
    shape = (outer, inner, *taps, lanes[0], op.width)
    return packed if op.dots > 1 else reshaped(w, packed, shape)


def filled_up(w: Writer, x: Value, shape: tuple[Dim, ...], whole: tuple[Dim, ...]) -> Operand:
    """Return x with zeros behind its elements, on each axis as many as are missing."""
    y: Operand = x
    for axis, (d, wanted) in enumerate(zip(shape, whole, strict=True)):
        missing = wanted - d
        if missing != 0:
            rest = (*whole[:axis], missing, *shape[axis + 1 :])
            zeros = expanded(w, np.zeros((1,) * len(shape), x.type.numpy), rest)
            y = w("Concat", y, zeros, axis=axis)
    return y


@on(Dilate)
def dilate(w: Writer, op: Dilate, x: Value) -> Tensor:
    """Put each element before its zeros, and cut off those behind the last one."""
    shape = x.type.shape
    if all(s == 1 for s in op.steps):
        return w.tensor(x)
    pairs = tuple(p for d in shape for p in (d, 1))
    after = [p for s in op.steps for p in (0, s - 1)]
    spread = padded(w, reshaped(w, x, pairs), [0] * len(pairs) + after, "constant")
    whole = tuple(d * s for d, s in zip(shape, op.steps, strict=True))
    ends = tuple(
        d if s == 1 or d == 0 else (d - 1) * s + 1 for d, s in zip(shape, op.steps, strict=True)
    )
    y = reshaped(w, spread, whole)
    return sliced(w, y, whole, (0,) * len(shape), ends, (1,) * len(shape))
