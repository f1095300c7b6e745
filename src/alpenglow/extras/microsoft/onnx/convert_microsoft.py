"""Converters for ONNX Runtime's own operators (com.microsoft): fused products and what moves.

Attention is in `convert_microsoft_attention`, normalisation in `convert_microsoft_normalize`,
quantized operators are in `convert_microsoft_quantize` and `convert_quantize`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np

from alpenglow.extras.linalg.inverse import Inverse
from alpenglow.frontends import nhwc
from alpenglow.frontends.onnx.convert.contraction import gemm
from alpenglow.frontends.onnx.convert.elementwise import LARGEST, MICROSOFT
from alpenglow.frontends.onnx.convert.gather import gather_nd
from alpenglow.frontends.onnx.convert.generate import number_range
from alpenglow.frontends.onnx.convert.movement import normal_axes, padded, trilu
from alpenglow.frontends.onnx.convert.vision import grid_sample
from alpenglow.frontends.onnx.convert.window import conv, convolving, max_pool, product
from alpenglow.frontends.onnx.table import Made, Site, on, scalar, scales, times
from alpenglow.ir.graph import Value
from alpenglow.ir.types import HALVES
from alpenglow.ops.elementwise.activation import HardSigmoid, LeakyRelu, Relu, Sigmoid, Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Maximum, Mul
from alpenglow.ops.elementwise.comparison import GreaterOrEqual, LessOrEqual
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Sqrt
from alpenglow.ops.image.sampling import GridSample
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice, Transpose, stretch
from alpenglow.ops.window.conv_transpose import ConvTranspose

on("Trilu", domain=MICROSOFT)(trilu)
on("GatherND", domain=MICROSOFT)(gather_nd)
on("GridSample", domain=MICROSOFT)(grid_sample)


# ── matrices ──


@on("FusedMatMul", domain=MICROSOFT)
@on("TransposeMatMul", domain=MICROSOFT)
@scales("alpha")
def fused_mat_mul(s: Site) -> Made:
    x, y = (turned(s, s.input(i), side) for i, side in enumerate("AB"))
    return times(s, product(s, x, y), s.attribute("alpha", 1.0))


def turned(s: Site, v: Value, side: str) -> Value:
    """Return an operand as it is multiplied: `transBatch` stands for its rows in front."""
    rank = v.type.rank
    if rank < 2:
        return v
    perm = list(range(rank))
    if s.attribute(f"transBatch{side}", 0):
        perm = [*perm[1:-1], 0, perm[-1]]
    if s.attribute(f"trans{side}", 0):
        perm[-2:] = perm[-1], perm[-2]
    return v if perm == list(range(rank)) else s.g(Transpose(tuple(perm)), v)


@on("FusedMatMulActivation", domain=MICROSOFT)
@scales("alpha")
def fused_mat_mul_activation(s: Site) -> Made:
    x, y = (turned(s, s.input(i), side) for i, side in enumerate("AB"))
    return activated(s, times(s, product(s, x, y), s.attribute("alpha", 1.0)), numbers(s))


@on("FusedGemm", domain=MICROSOFT)
@scales("alpha", "beta")
def fused_gemm(s: Site) -> Made:
    y = gemm(s)
    assert isinstance(y, Value), "a Gemm has one result"
    return activated(s, y, numbers(s))


def numbers(s: Site) -> dict[int, float]:
    """Return the numbers of an activation that the attributes give, by their place."""
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    pairs = ((i, s.attribute(name)) for i, name in enumerate(names))
    return {i: float(v) for i, v in pairs if v is not None}


def activated(s: Site, v: Value, parameters: dict[int, float]) -> Value:
    """Return v after the activation that the attribute names, with the numbers that it has."""
    name = s.attribute("activation", "")
    if name and name not in ACTIVATIONS:
        expected = ", ".join(ACTIVATIONS)
        raise s.refuse(f"activation is '{name}', expected one of {expected}")
    make, *defaults = ACTIVATIONS.get(name, (None,))
    return s.g(make(*(parameters.get(i, d) for i, d in enumerate(defaults))), v) if make else v


ACTIVATIONS: dict[str, tuple[Any, ...]] = {
    "Relu": (Relu,),
    "Tanh": (Tanh,),
    "Sigmoid": (Sigmoid,),
    "LeakyRelu": (LeakyRelu, 0.01),
    "HardSigmoid": (HardSigmoid, 0.2, 0.5),
    "Clip": (Clip, -LARGEST, LARGEST),
}
"""The activations that are fused with products, with the numbers where a model gives none."""


@on("CDist", domain=MICROSOFT)
def c_dist(s: Site) -> Made:
    x, y = s.input(0), s.input(1)
    metric = s.attribute("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise s.wrong(f"metric is '{metric}', expected euclidean or sqeuclidean")
    if x.type.rank != 2 or y.type.rank != 2:
        raise s.wrong(f"A is {x.type} and B {y.type}, expected matrices")
    # |x|² - 2 x·y + |y|² in f64, for f32 would cancel close vectors away.
    wide = [s.cast(v, "f64") for v in (x, y)]
    inner = s.g(MatMul(), wide[0], s.g(Transpose((1, 0)), wide[1]))
    total = s.g(Mul(), inner, scalar(s.g, -2, inner))
    for v, shape in zip(wide, ((x.type.shape[0], 1), (y.type.shape[0],)), strict=True):
        size = s.g(Reshape(shape), s.g(ReduceSum((1,)), s.g(Mul(), v, v)))
        total = s.g(Add(), total, stretch(s.g, size, total.type.shape))
    total = s.g(Maximum(), total, scalar(s.g, 0, total))
    return s.cast(s.g(Sqrt(), total) if metric == "euclidean" else total, x.type.dtype)


@on("Inverse", domain=MICROSOFT)
def inverse(s: Site) -> Made:
    x = s.input(0)
    half = x.type.dtype in HALVES
    _, y = s.g.add(Inverse(), [s.cast(x, "f32") if half else x]).results
    return s.cast(y, x.type.dtype)


# ── windows ──


@on("FusedConv", domain=MICROSOFT)
def fused_conv(s: Site) -> Made:
    y = s.g(Conv(*convolving(s)), s.input(0), s.input(1), s.optional(2))
    more = s.optional(3)
    y = y if more is None else s.g(Add(), y, stretch(s.g, more, y.type.shape))
    return activated(s, y, dict(enumerate(s.attribute("activation_params", ()))))


def channels_last(s: Site, convert: Callable[[Site], Made], *operands: int) -> Value:
    """Return what a converter makes of a node whose tensors have their channels on the last axis.

    `operands` are the ones, beside the first, of which that is true.
    """
    inputs = list(s.inputs)
    for i in (0, *operands):
        v = s.optional(i)
        if v is not None:
            inputs[i] = nhwc.channels_first(s.g, v)
    turned_site = copy(s)
    turned_site.inputs = inputs
    results = convert(turned_site)
    y = results if isinstance(results, Value) else results[0]
    return nhwc.channels_last(s.g, y)


on("NhwcConv", domain=MICROSOFT)(lambda s: channels_last(s, conv))
on("NhwcFusedConv", domain=MICROSOFT)(lambda s: channels_last(s, fused_conv, 3))
on("NhwcMaxPool", domain=MICROSOFT)(lambda s: channels_last(s, max_pool))


@on("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose_with_dynamic_pads(s: Site) -> Made:
    x = s.input(0)
    spatial = max(x.type.rank - 2, 0)
    pads = (0,) * (2 * spatial) if s.optional(2) is None else s.ints(2)
    strides, dilations = (s.attribute(n, (1,) * spatial) for n in ("strides", "dilations"))
    extra, group = s.attribute("output_padding", (0,) * spatial), s.attribute("group", 1)
    op = ConvTranspose(strides, pads, dilations, extra, group)
    return s.g(op, x, s.input(1), s.optional(3))


# ── movement ──


@on("Range", domain=MICROSOFT)
def range_by_steps(s: Site) -> Made:
    """Do what ONNX's does; the step is 1 where it is left out."""
    whole = copy(s)
    if s.optional(2) is None:
        whole.inputs = [s.input(0), s.input(1), s.g.constant(np.ones((), s.input(0).type.numpy))]
    return number_range(whole)


@on("ExpandDims", domain=MICROSOFT)
def expand_dims(s: Site) -> Made:
    x = s.input(0)
    (axis,) = normal_axes(s, s.ints(1), x.type.rank + 1)
    return s.g(Reshape((*x.type.shape[:axis], 1, *x.type.shape[axis:])), x)


@on("Pad", domain=MICROSOFT)
def pad(s: Site) -> Made:
    value = 0.0 if s.optional(2) is None else s.constant(2).reshape(-1)[0].item()
    return padded(s, s.ints(1), value)


@on("CropAndResize", domain=MICROSOFT)
def crop_and_resize(s: Site) -> Made:
    """Read each crop at a grid of points, and elsewhere what the model asks for.

    The corner points of the grid are the corners of the crop; a side of one point is its middle.
    """
    x, rois, batch = s.input(0), s.input(1), s.input(2)
    sizes, mode = s.ints(3), s.attribute("mode", "bilinear")
    if x.type.rank != 4 or len(sizes) != 2 or mode not in ("bilinear", "nearest"):
        raise s.wrong(f"mode is '{mode}', crop_size {sizes} and X {x.type}, expected bilinear or "
                      "nearest, 2 entries and rank 4")  # fmt: skip
    count = rois.type.shape[0]
    box = (count, *sizes)
    insides, places = [], []
    for axis, size in enumerate(sizes):
        start, end = (s.g(Slice((0, i), (count, 1), (1, 1)), rois) for i in (axis, axis + 2))
        steps = np.arange(size) / (size - 1) if size > 1 else np.array([0.5])
        shares = (s.g.constant(v.astype(x.type.numpy)) for v in (1 - steps, steps))
        sides = zip((start, end), shares, strict=True)
        # From 0 to 1 within the image.
        at = s.g(Add(), *(s.g(Mul(), *s.broadcast(side, share)) for side, share in sides))
        within = s.g(BitAnd(), s.g(GreaterOrEqual(), at, scalar(s.g, 0, at)),
                     s.g(LessOrEqual(), at, scalar(s.g, 1, at)))  # fmt: skip
        grid = s.g(Add(), s.g(Mul(), at, scalar(s.g, 2, at)), scalar(s.g, -1, at))
        spread = (count, size, 1) if axis == 0 else (count, 1, size)
        insides.append(stretch(s.g, s.g(Reshape(spread), within), box))
        places.append(stretch(s.g, s.g(Reshape((*spread, 1)), grid), (*box, 1)))
    batch = s.within(batch, 0, x.type.shape[0] - 1, "a batch index")
    images = s.g(Gather(0), x, batch)
    kind = "linear" if mode == "bilinear" else "nearest"
    points = s.g(Concat(3), places[1], places[0])
    y = s.g(GridSample(kind, "border", True), images, points)
    inside = s.g(Reshape((count, 1, *sizes)), s.g(BitAnd(), *insides))
    other = scalar(s.g, s.attribute("extrapolation_value", 0.0), y)
    return s.g(Where(), s.g(Broadcast(y.type.shape), inside), y, other)
