"""Writers of random numbers.

A draw is a function of its key.  Where the key is a hidden input, which the runtime fills anew for
each call, ONNX's operators draw the numbers; under any other key they are computed, equal to the
numbers of Alpenglow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.exporters.onnx.elements import CODES
from alpenglow.exporters.onnx.extents import extents
from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_gather import ramp
from alpenglow.exporters.onnx.write_movement import reshaped
from alpenglow.exporters.onnx.writer import Refused, Tensor, Writer
from alpenglow.ir.dims import is_open, product
from alpenglow.ir.graph import Value
from alpenglow.ops.random.random import RandomNormal, RandomUniform

MOST_STORED = 1 << 16
"""So many numbers under a constant key, and fewer, are stored as they are drawn."""

Draw = RandomUniform | RandomNormal


@on(RandomUniform, RandomNormal)
def random(w: Writer, op: Draw, key: Value) -> Tensor:
    if key.hidden:
        return _drawn_anew(w, op, key)
    is_fixed = not any(is_open(d) for d in op.shape)
    if key.array is not None and is_fixed and product(op.shape) <= MOST_STORED:
        return w.tensor(op.reference(key.array))
    return _computed(w, op, key)


def _drawn_anew(w: Writer, op: Draw, key: Value) -> Tensor:
    """Let the runtime draw; two draws under one key are one draw, so none may have its key."""
    if sum(v is key for user in key.users for v in user.inputs) > 1:
        raise Refused("several random operators that share a hidden key are not supported")
    if isinstance(op, RandomUniform):
        name, numbers = "RandomUniform", {"low": op.low, "high": op.high}
    else:
        name, numbers = "RandomNormal", {"mean": op.mean, "scale": op.scale}
    wide = "f64" if op.dtype == "f64" else "f32"
    attributes: dict[str, Any] = {"dtype": CODES[wide], **numbers}
    if any(is_open(d) for d in op.shape):
        like = w("Expand", np.zeros((1,) * len(op.shape), np.float32), extents(w, op.shape))
        return w.cast(w(f"{name}Like", like, makes=wide, **attributes), op.dtype)
    return w.cast(w(name, makes=wide, shape=op.shape, **attributes), op.dtype)


def _computed(w: Writer, op: Draw, key: Value) -> Tensor:
    """Write out the generator, for the index of each element."""
    m, count = OnnxMath(w), product(op.shape)
    index = ramp(w, count, (), (), "i64")
    words = w.cast(index, "u32"), w.cast(m.shift_right(index, 32), "u32")
    first, second = (w("Gather", key, np.array([i], np.int64), axis=0) for i in (0, 1))
    drawn = op.element(m, (first, second), words)
    return reshaped(w, w.cast(drawn, op.dtype), op.shape)
