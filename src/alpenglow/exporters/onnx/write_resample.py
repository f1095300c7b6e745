"""Writers of what reads tensors between their elements: resizing, and sampling at given places."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.exporters.onnx.extents import extents
from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_gather import within
from alpenglow.exporters.onnx.write_movement import reshaped
from alpenglow.exporters.onnx.writer import Operand, Refused, Tensor, Writer
from alpenglow.ir.dims import Dim, is_open, quotient
from alpenglow.ir.graph import Node, Value, is_closed
from alpenglow.ir.types import DTYPES, FLOATS, INTS
from alpenglow.ops.image.resize import Interpolate, Resize
from alpenglow.ops.image.sampling import AffineGrid, GridSample
from alpenglow.ops.window.deform import DeformConv

TAKEN_AS_THEY_ARE = frozenset({"f32", "f16", "bf16", "i32", "i8", "u8"})
"""The types whose nearest elements runtimes find."""


EXACT = 1 << 8
"""A scale that is a quotient of smaller numbers does not round extents of less than 2^16."""


@on(Interpolate)
def interpolate(w: Writer, op: Interpolate, x: Value, indices: Value, weights: Value) -> Tensor:
    """Add up what each tap reads, times its weights."""
    (taps, size), axis = indices.type.shape, op.axis % x.type.rank
    if is_open(taps):
        raise Refused("a dynamic number of indices per element is not supported")
    m, wide = OnnxMath(w), "f64" if x.type.dtype == "f64" else "f32"
    at = within(w, indices, [x.type.shape[axis]])
    column = (size, *[1] * (x.type.rank - 1 - axis))
    total: Operand = None
    for tap in range(int(taps)):
        number = np.array(tap, np.int64)
        part = w.cast(w("Gather", x, w("Gather", at, number), axis=axis), wide)
        share = reshaped(w, w.cast(w("Gather", weights, number), wide), column)
        part = m.mul(part, share)
        total = part if total is None else m.add(total, part)
    if total is None:
        raise Refused("indices has 0 rows, expected at least one")
    return narrowed(w, w.tensor(total), op.dtype)


def narrowed(w: Writer, x: Tensor, dtype: str) -> Tensor:
    """Return floats as another type; integers truncated, and limited to their range."""
    if dtype not in INTS:
        return w.cast(x, dtype)
    m, limits = OnnxMath(w), np.iinfo(DTYPES[dtype])
    over = m.ge(x, float(limits.max))
    low = m.maximum(m.where(m.isnan(x), 0.0, x), float(limits.min))
    whole = w.cast(m.where(over, 0.0, low), dtype)
    return m.where(over, int(limits.max), whole)


def _has_resize(opset: int, node: Node) -> bool:
    """Return True if runtimes have this Resize: of images, along their last axes.

    Dynamic dimensions can only be written this way.
    """
    op, (x,) = node.op, node.inputs
    assert isinstance(op, Resize) and x is not None, "asked of one operator"
    t, dtype = x.type, x.type.dtype
    changed = [i for i, d in enumerate(t.shape) if op.sizes[i] != d]
    plain = not op.roi and op.coordinates != "tf_half_pixel_for_nn"
    if not plain or 0 in (*t.shape, *op.sizes) or not _says_sizes(op, t.shape):
        return False
    if any(is_open(d) for d in (*t.shape, *op.sizes)):
        return True
    if op.mode == "nearest":
        return dtype in TAKEN_AS_THEY_ARE and not op.antialias
    images = t.rank == 4 and all(i >= 2 for i in changed)
    return images and dtype in FLOATS - {"f64"}


def _says_sizes(op: Resize, shape: tuple[Dim, ...]) -> bool:
    """Return True if the scales of the model, where there are any, tell the sizes as ONNX does."""
    for size, scale, extent in zip(op.sizes, op.scales, shape, strict=False):
        if is_open(size) or is_open(extent):
            if size != _scaled(extent, scale):
                return False
        elif int(size) != int(np.floor(np.float32(int(extent)) * np.float32(scale))):
            return False
    return True


def _scaled(extent: Dim, scale: float) -> Dim | None:
    """Return an open extent times a scale, rounded down, if floats do not round it before."""
    times, parts = float(np.float32(scale)).as_integer_ratio()
    return quotient(extent * times, parts) if times < EXACT and parts < EXACT else None


@on(Resize, when=_has_resize)
def resize(w: Writer, op: Resize, x: Value) -> Tensor:
    attributes: dict[str, Any] = {
        "mode": op.mode, "coordinate_transformation_mode": op.coordinates,
    }  # fmt: skip
    if op.mode == "nearest":
        attributes["nearest_mode"] = op.nearest
    if op.mode == "cubic":
        attributes["cubic_coeff_a"] = op.cubic
    if op.exclude_outside:
        attributes["exclude_outside"] = 1
    if op.antialias:
        attributes["antialias"] = 1
    if op.scales:
        return w("Resize", x, None, np.array(op.scales, np.float32), **attributes)
    return w("Resize", x, None, None, extents(w, op.sizes), **attributes)


def _is_image(opset: int, node: Node) -> bool:
    """Return True if runtimes have a GridSample for this: of images of floats, at places of f32."""
    x, grid = node.inputs
    assert x is not None and grid is not None, "the operands are there"
    floats = {x.type.dtype, grid.type.dtype} <= FLOATS - {"f64"}
    return opset >= 20 and x.type.rank == 4 and floats and 0 not in x.type.shape


@on(GridSample, when=_is_image)
def grid_sample(w: Writer, op: GridSample, x: Value, grid: Value) -> Tensor:
    return w("GridSample", x, grid, mode=op.mode, padding_mode=op.padding,
             align_corners=int(op.aligned))  # fmt: skip


@on(AffineGrid, when=lambda opset, node: opset >= 20 and not is_closed(node))
def affine_grid(w: Writer, op: AffineGrid, theta: Value) -> Tensor:
    if len(op.extents) not in (2, 3):
        raise Refused(f"AffineGrid has {len(op.extents)} spatial axes, expected 2 or 3")
    size = extents(w, (theta.type.shape[0], 1, *op.extents))
    return w("AffineGrid", theta, size, align_corners=int(op.aligned))


@on(DeformConv, when=lambda opset, node: node.results[0].type.rank == 4)
def deform_conv(
    w: Writer, op: DeformConv, x: Value, weights: Value, offset: Value,
    bias: Value | None, mask: Value | None,
) -> Tensor:  # fmt: skip
    return w("DeformConv", x, weights, offset, bias, mask, strides=op.strides, pads=op.pads,
             dilations=op.dilations, group=op.group, offset_group=op.offset_group)  # fmt: skip
