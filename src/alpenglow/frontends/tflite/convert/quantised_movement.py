"""Converters that fill, join and resample quantized tensors.

They fill with the zero point.  Kernels need one scale and zero point in operands and results,
except CONCATENATION of u8.
"""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.tflite.convert.gather import embedding_lookup
from alpenglow.frontends.tflite.convert.movement import joined
from alpenglow.frontends.tflite.convert.slice import pad_v2, padded, space_to_batch_of
from alpenglow.frontends.tflite.file.model import Grid
from alpenglow.frontends.tflite.file.schema import Activation
from alpenglow.frontends.tflite.quantised import grid, limits, one, result_grid
from alpenglow.frontends.tflite.table import Made, Site, moved, on_quantised
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.quantized.quantize import REALS
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.lookup import Lookup
from alpenglow.ops.tensor.movement import append_axes, stretch

on_quantised("PADV2")(moved(pad_v2))


@on_quantised("PAD")
@moved
def quantised_pad(s: Site) -> Made:
    return padded(s, zero(s))


@on_quantised("SPACE_TO_BATCH_ND")
@moved
def quantised_space_to_batch(s: Site) -> Made:
    return space_to_batch_of(s, zero(s))


def zero(s: Site) -> int:
    """Return the zero point of the result."""
    return one(s, result_grid(s))[1]


@on_quantised("CONCATENATION")
def quantised_concatenation(s: Site) -> Made:
    s.activation(Activation.NONE)
    if s.output().dtype != "u8":
        return moved(lambda s: joined(s, s.required()))(s)
    return joined(s, [on_grid_of_result(s, s.input(i), grid(s, i)) for i in s.given()])


def on_grid_of_result(s: Site, x: Value, g: Grid) -> Value:
    """Return u8 as the steps of the result, halves away from zero."""
    if g == result_grid(s):
        return x
    (a, first), (b, last) = one(s, g), one(s, result_grid(s))
    ratio = np.float32(a) * (np.float32(1) / np.float32(b))
    steps = np.arange(256, dtype=np.float32) * ratio + np.float32(-first) * ratio
    return s.g(Lookup(), x, s.g.constant(table(s, away(steps) + last)))


@on_quantised("EMBEDDING_LOOKUP")
def quantised_embedding_lookup(s: Site) -> Made:
    """Rows of integers, or dequantized rows: then a row may have its own scale."""
    if s.output().dtype not in REALS:
        return moved(embedding_lookup)(s)
    rows, g = s.input(1), grid(s, 1)
    if rows.type.dtype not in ("i8", "i4"):  # whose bytes LiteRT takes for i8
        raise s.unsupported(f"a float result from value {rows.type}", "i8", "i4")
    if any(g.zeros) or not (g.uniform or g.axis == 0):
        raise s.wrong(f"value has zero points {sorted(set(g.zeros))} and quantized_dimension "
                      f"{g.axis}, expected zero points 0 and one scale or axis 0")  # fmt: skip
    places = s.within(s.input(0), 0, rows.type.shape[0] - 1, "a row index")
    chosen = s.cast(s.g(Gather(0), s.cast(rows, "i8"), places), "f32")
    scales = s.g.constant(np.array(g.scales, np.float32))
    if not g.uniform:
        scales = append_axes(s.g, s.g(Gather(0), scales, places), rows.type.rank - 1)
    return s.cast(s.g(Mul(), chosen, stretch(s.g, scales, chosen.type.shape)), s.output().dtype)


def away(steps: Array) -> Array:
    """Return f32 rounded to integers, halves away from zero."""
    near: Array = np.trunc(steps.astype(np.float64) + np.copysign(0.5, steps)).astype(np.int64)
    return near


def table(s: Site, steps: Array) -> Array:
    """Return integers limited to what the result holds, in its type."""
    return np.clip(steps, *limits(s)).astype(np.uint8 if s.output().dtype == "u8" else np.int8)
