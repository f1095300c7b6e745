"""Operators written down in NumPy, in f64, from what their specification says.

They are those that ONNX Runtime lacks for some type, and that the reference evaluator of onnx has
not right: `nodewise` asks here first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

Array = NDArray[Any]
Given = Sequence[Array | None]
Attributes = Mapping[str, Any]


def results(node: onnx.NodeProto, given: Mapping[str, Any]) -> list[Array] | None:
    """Return the results of a node, None if it is not written down here."""
    write = WRITTEN.get((node.domain, node.op_type))
    arrays = [given.get(name) if name else None for name in node.input]
    if write is None or not all(a is None or isinstance(a, np.ndarray) for a in arrays):
        return None
    with np.errstate(all="ignore"):
        return write(arrays, {a.name: helper.get_attribute_value(a) for a in node.attribute})


def _erf(given: Given, attributes: Attributes) -> list[Array] | None:
    """Of integers: what f64 cuts off."""
    x = given[0]
    if x is None or x.dtype.kind not in "iu":
        return None
    return [np.array([math.erf(v) for v in x.flat], np.float64).reshape(x.shape).astype(x.dtype)]


def _lrn(given: Given, attributes: Attributes) -> list[Array] | None:
    x = given[0]
    assert x is not None
    wide, size = x.astype(np.float64), attributes["size"]
    before = (size - 1) // 2
    sums = np.zeros_like(wide)
    for c in range(wide.shape[1]):
        window = wide[:, max(c - before, 0) : c + size - before]
        sums[:, c] = (window**2).sum(1)
    scale = attributes.get("bias", 1.0) + attributes.get("alpha", 1e-4) / size * sums
    return [(wide / scale ** attributes.get("beta", 0.75)).astype(x.dtype)]


def _lp_normalization(given: Given, attributes: Attributes) -> list[Array] | None:
    x = given[0]
    assert x is not None
    wide, axis = x.astype(np.float64), attributes.get("axis", -1)
    if attributes.get("p", 2) == 1:
        norm = np.abs(wide).sum(axis, keepdims=True)
    else:
        norm = np.sqrt((wide**2).sum(axis, keepdims=True))
    # Where all is 0, ONNX says that the result is.
    return [np.where(norm == 0, 0.0, wide / norm).astype(x.dtype)]


def _mat_mul_integer(given: Given, attributes: Attributes) -> list[Array] | None:
    a, b, *zeros = given
    assert a is not None and b is not None
    x, y = a.astype(np.int64), b.astype(np.int64)
    if zeros and zeros[0] is not None:
        rows = zeros[0].astype(np.int64)
        x = x - (rows[..., None] if rows.ndim else rows)
    if len(zeros) > 1 and zeros[1] is not None:
        columns = zeros[1].astype(np.int64)
        y = y - (columns[..., None, :] if columns.ndim == 1 else columns)
    return [(x @ y).astype(np.int32)]


def _instance_normalization(given: Given, attributes: Attributes) -> list[Array] | None:
    """ONNX Runtime takes the mean away after it has scaled: of alike numbers, not much is right."""
    x, scale, bias = given
    assert x is not None and scale is not None and bias is not None
    wide, axes = x.astype(np.float64), tuple(range(2, x.ndim))
    if not wide.size:
        return None
    spread = np.sqrt(wide.var(axes, keepdims=True) + attributes.get("epsilon", 1e-5))
    of = (-1, *[1] * len(axes))
    y = (wide - wide.mean(axes, keepdims=True)) / spread * scale.astype(np.float64).reshape(of)
    return [(y + bias.astype(np.float64).reshape(of)).astype(x.dtype)]


def _group_normalization(given: Given, attributes: Attributes) -> list[Array] | None:
    """ONNX Runtime finds variances below 0 where all are alike."""
    x, scale, bias = given
    assert x is not None and scale is not None and bias is not None
    groups = attributes["num_groups"]
    if not x.size:
        return None
    rows = x.astype(np.float64).reshape(x.shape[0], groups, -1)
    spread = np.sqrt(rows.var(-1, keepdims=True) + attributes.get("epsilon", 1e-5))
    y = ((rows - rows.mean(-1, keepdims=True)) / spread).reshape(x.shape)
    # Up to opset 20 there is one of each a group.
    each = [np.repeat(v.astype(np.float64), x.shape[1] // v.size) for v in (scale, bias)]
    a, b = (v.reshape(-1, *[1] * (x.ndim - 2)) for v in each)
    return [(y * a + b).astype(x.dtype)]


def _mean_variance(given: Given, attributes: Attributes) -> list[Array] | None:
    """ONNX Runtime adds 10^-9 to a deviation in halves, where that is nothing."""
    x = given[0]
    assert x is not None
    if {"across_channels", "normalize_variance"} & attributes.keys() or not x.size:
        return None
    wide, axes = x.astype(np.float64), tuple(attributes.get("axes", (0, 2, 3)))
    spread = wide.std(axes, keepdims=True) + 1e-9
    return [((wide - wide.mean(axes, keepdims=True)) / spread).astype(x.dtype)]


def _mat_mul_nbits(given: Given, attributes: Attributes) -> list[Array] | None:
    """Of com.microsoft, with zero points and groups in any order: ONNX Runtime mistakes the points.

    Steps and zero points of a column k are those of its group, whichever block k lies in.
    """
    x, packed, steps, zeros, groups, bias = (*given, None, None, None)[:6]
    assert x is not None and packed is not None and steps is not None
    if zeros is None or groups is None:
        return None
    n, count = packed.shape[:2]
    bits = attributes.get("bits", 4)
    levels = _unpacked(packed.reshape(n, -1), bits)[:, : attributes["K"]]
    points = zeros.reshape(n, -1)
    points = _unpacked(points, bits)[:, :count] if zeros.dtype == np.uint8 else points
    of = np.asarray(groups, np.int64)
    scales = steps.reshape(n, count).astype(np.float64)[:, of]
    weights = (levels - points.astype(np.float64)[:, of]) * scales
    y = x.astype(np.float64) @ weights.T
    return [(y if bias is None else y + bias.astype(np.float64)).astype(x.dtype)]


def _unpacked(rows: Array, bits: int) -> Array:
    """Return the numbers of so many bits that rows of bytes hold, the lowest bits first."""
    shifts = np.arange(0, 8, bits)
    return ((rows[..., None] >> shifts) & ((1 << bits) - 1)).reshape(len(rows), -1)


def _reduce_mean(given: Given, attributes: Attributes) -> list[Array] | None:
    """Of integers, whose sum others let overflow."""
    x = given[0]
    assert x is not None
    found = _reduced_axes(given, attributes)
    if x.dtype.kind not in "iu" or x.dtype.itemsize > 4 or found is None or not x.size:
        return None
    total = x.astype(np.int64).sum(found, keepdims=bool(attributes.get("keepdims", 1)))
    count = x.size // total.size
    return [np.asarray(np.sign(total) * (np.abs(total) // count)).astype(x.dtype)]


def _reduced_axes(given: Given, attributes: Attributes) -> tuple[int, ...] | None:
    """Return the axes that a reduction is along, None if it leaves all as it is."""
    x, listed = (*given, None)[:2]
    assert x is not None
    axes = attributes.get("axes", listed if listed is not None and listed.size else None)
    if axes is not None:
        return tuple(int(a) for a in axes)
    return None if attributes.get("noop_with_empty_axes", 0) else tuple(range(x.ndim))


def _reduce_sum_square(given: Given, attributes: Attributes) -> list[Array] | None:
    """Of integers, which overflow: ONNX Runtime adds up floats, and cuts off."""
    x = given[0]
    assert x is not None
    axes = _reduced_axes(given, attributes)
    if x.dtype.kind not in "iu" or axes is None:
        return None
    sums = np.square(x).sum(axes, dtype=x.dtype, keepdims=bool(attributes.get("keepdims", 1)))
    return [np.asarray(sums)]


def _group_norm(given: Given, attributes: Attributes) -> list[Array] | None:
    """Of com.microsoft: channels last or not, and SiLU after it if asked for."""
    x, gamma, beta = given[:3]
    assert x is not None and gamma is not None and beta is not None
    wide = x.astype(np.float64)
    last = attributes.get("channels_last", 1)
    wide = wide if last else np.moveaxis(wide, 1, -1)
    n, c, groups = wide.shape[0], wide.shape[-1], attributes["groups"]
    if not wide.size:
        return [x]
    parts = wide.reshape(n, -1, groups, c // groups)
    mean = parts.mean((1, 3), keepdims=True)
    spread = np.sqrt(parts.var((1, 3), keepdims=True) + attributes.get("epsilon", 1e-5))
    y = ((parts - mean) / spread).reshape(wide.shape)
    y = y * gamma.astype(np.float64) + beta.astype(np.float64)
    if attributes["activation"]:
        y = y / (1 + np.exp(-y))
    return [(y if last else np.moveaxis(y, -1, 1)).astype(x.dtype)]


def _skip_group_norm(given: Given, attributes: Attributes) -> list[Array] | None:
    x, gamma, beta, skip, *bias = given
    assert x is not None and skip is not None
    last = attributes.get("channels_last", 1)
    shape = (-1, 1, 1, x.shape[3]) if last else (-1, x.shape[1], 1, 1)
    skip = skip if skip.ndim == 4 else skip.reshape(shape)
    total = x.astype(np.float64) + skip.astype(np.float64)
    if bias and bias[0] is not None:
        total = total + bias[0].astype(np.float64).reshape(shape)
    made = _group_norm([total, gamma, beta], attributes)
    assert made is not None
    return [made[0].astype(x.dtype), total.astype(x.dtype)]


def _lstm_of_bytes(given: Given, attributes: Attributes) -> list[Array] | None:
    """DynamicQuantizeLSTM: x has one grid, the states of a step have one each."""
    x, w, r, bias, lengths, state, cell, peephole, *grids = given
    if x is None or w is None or r is None or lengths is not None or peephole is not None:
        return None
    hidden, limit = attributes["hidden_size"], attributes.get("clip", 0.0) or math.inf
    steps, batch = x.shape[:2]
    ways = w.shape[0]
    backwards = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}
    whole, last, cells = [], [], []
    for way, turned in enumerate(backwards[attributes.get("direction", b"forward").decode()]):
        added = np.zeros(8 * hidden, np.float32) if bias is None else bias[way]
        h, c = (np.zeros((batch, hidden), np.float32) if s is None else s[way]
                for s in (state, cell))  # fmt: skip
        flat = _by_bytes(x.reshape(steps * batch, -1), w, way, *grids[:2])
        ahead = flat.reshape(steps, batch, -1)
        rows = np.zeros((steps, batch, hidden), np.float32)
        for k in range(steps)[:: -1 if turned else 1]:
            sums = ahead[k] + _by_bytes(h, r, way, *grids[2:])
            sums = sums + (added[: 4 * hidden] + added[4 * hidden :])
            i, o, f, g = np.split(np.clip(sums.astype(np.float64), -limit, limit), 4, 1)
            forget = 1 - _sigmoid(i) if attributes.get("input_forget", 0) else _sigmoid(f)
            c = forget * c + _sigmoid(i) * np.tanh(g)
            h = rows[k] = (_sigmoid(o) * np.tanh(c)).astype(np.float32)
        whole, last, cells = [*whole, rows], [*last, h], [*cells, c]
    assert len(whole) == ways
    return [a.astype(x.dtype) for a in (np.stack(whole, 1), np.stack(last), np.stack(cells))]


def _by_bytes(x: Array, w: Array, way: int, scales: Array | None, zeros: Array | None) -> Array:
    """Return x[N, I] as bytes, on the grid of its range and 0, times the weights of a direction."""
    assert scales is not None and zeros is not None
    least, most = x.min(initial=0), x.max(initial=0)
    step = np.float32((most - least) / np.float32(255) or 1)
    zero = np.clip(np.rint(-least / step), 0, 255)
    steps = np.clip(np.rint(x / step) + zero, 0, 255) - zero
    total = steps.astype(np.int64) @ (w[way].astype(np.int64) - zeros[way].astype(np.int64))
    return np.asarray(total.astype(np.float32) * (step * scales[way]))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


WRITTEN: dict[tuple[str, str], Callable[[Given, Attributes], list[Array] | None]] = {
    ("", "Erf"): _erf,
    ("", "GroupNormalization"): _group_normalization,
    ("", "InstanceNormalization"): _instance_normalization,
    ("", "LRN"): _lrn,
    ("", "LpNormalization"): _lp_normalization,
    ("", "MatMulInteger"): _mat_mul_integer,
    ("", "MeanVarianceNormalization"): _mean_variance,
    ("", "ReduceMean"): _reduce_mean,
    ("", "ReduceSumSquare"): _reduce_sum_square,
    ("com.microsoft", "DynamicQuantizeLSTM"): _lstm_of_bytes,
    ("com.microsoft", "GroupNorm"): _group_norm,
    ("com.microsoft", "MatMulNBits"): _mat_mul_nbits,
    ("com.microsoft", "SkipGroupNorm"): _skip_group_norm,
}
"""By domain and name."""
