"""Writers of spectra, and of the frames of a signal."""

from __future__ import annotations

import math

import numpy as np

from alpenglow.exporters.onnx.extents import extent, scalar_extent
from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_gather import ramp
from alpenglow.exporters.onnx.writer import Tensor, Writer
from alpenglow.ir.dims import Dim, is_open
from alpenglow.ir.graph import Node, Value, is_closed
from alpenglow.ops.sequence.signal import CosineWindow, Dft, Frames, Stft


@on(Frames)
def frames(w: Writer, op: Frames, x: Value) -> Tensor:
    """Read by a table of positions: where each frame begins, and so many elements from there."""
    axis = op.axis % x.type.rank
    count = (x.type.shape[axis] - op.length) // op.step + 1
    starts = w("Mul", ramp(w, count, (), (1,), "i64"), np.array(op.step, np.int64))
    places = w("Add", starts, ramp(w, op.length, (1,), (), "i64"))
    return w("Gather", x, places, axis=axis)


def _is_open_or_even(length: Dim) -> bool:
    """Return True where a transform is best left to the runtime.

    Of other lengths than powers of two runtimes make 1e-4 of the largest element wrong, ours less.
    """
    return is_open(length) or int(length) & (int(length) - 1) == 0


def _has_node(opset: int, node: Node) -> bool:
    """Return True unless half a spectrum becomes a signal again, which ONNX does not do."""
    assert isinstance(node.op, Dft), "asked of one operator"
    whole = not (node.op.inverse and node.op.onesided)
    return opset >= 20 and whole and _is_open_or_even(node.op.length)


@on(Dft, when=_has_node)
def dft(w: Writer, op: Dft, x: Value) -> Tensor:
    length = scalar_extent(w, op.length)
    axis = np.array(op.axis % x.type.rank, np.int64)
    return w("DFT", x, length, axis, inverse=int(op.inverse), onesided=int(op.onesided))


def _is_real(opset: int, node: Node) -> bool:
    """Return True if the signal is of reals: runtimes take no other."""
    (x, *_) = node.inputs
    assert x is not None and isinstance(node.op, Stft), "asked of one operator"
    return x.type.shape[-1] == 1 and _is_open_or_even(node.op.length)


@on(Stft, when=_is_real)
def stft(w: Writer, op: Stft, x: Value, window: Value | None) -> Tensor:
    length = scalar_extent(w, op.length) if window is None else None
    return w("STFT", x, np.array(op.step, np.int64), window, length, onesided=int(op.onesided))


@on(CosineWindow, when=lambda opset, node: not is_closed(node))
def cosine_window(w: Writer, op: CosineWindow) -> Tensor:
    """Write the sum for a size that is open, in f64 as we compute it for a number."""
    m, size = OnnxMath(w), extent(w, op.size)
    steps = m.maximum(size if op.periodic else m.sub(size, 1), 1)
    t = m.mul(w.cast(ramp(w, op.size, (), (), "i64"), "f64"),
              m.div(np.array(2 * math.pi), w.cast(steps, "f64")))  # fmt: skip
    y = m.add(m.mul(t, 0.0), op.coefficients[0])
    for i, c in enumerate(op.coefficients[1:], 1):
        y = m.add(y, m.mul(m.cos(m.mul(t, float(i))), c * (-1) ** i))
    return w.cast(y, op.dtype)
