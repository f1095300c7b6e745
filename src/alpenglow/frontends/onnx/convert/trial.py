"""Converters for operators that ONNX had on trial before opset 10, and then dropped.

Models from converters of that time (Core ML, Caffe2) still hold them; the specification does not.
"""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.onnx.convert.slice import sliced
from alpenglow.frontends.onnx.table import Made, Site, elements, on, scalar, scales, times
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.activation import Softplus, Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Sub
from alpenglow.ops.reduction.normalize import MeanVarianceNorm
from alpenglow.ops.reduction.reduction import ReduceMean
from alpenglow.ops.tensor.movement import Reshape, Slice, stretch


@on("Affine")
@scales("alpha", "beta")
def affine(s: Site) -> Made:
    """Return alpha * x + beta."""
    return plus(s, times(s, s.input(0), s.attribute("alpha", 1.0)), s.attribute("beta", 0.0))


@on("Scale")
@scales("scale")
def scale(s: Site) -> Made:
    """Return x times a number."""
    return times(s, s.input(0), s.attribute("scale", 1.0))


@on("ParametricSoftplus")
@scales("alpha", "beta")
def parametric_softplus(s: Site) -> Made:
    """Return alpha * softplus(beta * x)."""
    inner = times(s, s.input(0), s.attribute("beta", 1.0))
    return times(s, s.g(Softplus(), inner), s.attribute("alpha", 1.0))


@on("ScaledTanh")
@scales("alpha", "beta")
def scaled_tanh(s: Site) -> Made:
    """Return alpha * tanh(beta * x)."""
    inner = times(s, s.input(0), s.attribute("beta", 1.0))
    return times(s, s.g(Tanh(), inner), s.attribute("alpha", 1.0))


def plus(s: Site, x: Value, term: float) -> Value:
    return x if term == 0 else s.g(Add(), x, scalar(s.g, term, x))


@on("ImageScaler")
@scales("scale", "bias")
def image_scaler(s: Site) -> Made:
    """Return a number times an image, plus a number for each channel."""
    x, bias = images(s), s.attribute("bias", ())
    y = times(s, x, s.attribute("scale", 1.0))
    if not bias:
        return y
    column = s.g.constant(elements(bias, x.type.dtype).reshape(-1, 1, 1))
    return s.g(Add(), y, stretch(s.g, column, x.type.shape))


@on("Crop")
def crop(s: Site) -> Made:
    """Return an image without its borders; of extents `scale` from its corner, if they are given.

    The borders are those on the left, at the top, on the right, at the bottom.
    """
    x, border, wanted = images(s), s.attribute("border", (0, 0, 0, 0)), s.attribute("scale", ())
    if len(border) != 4 or len(wanted) not in (0, 2):
        raise s.wrong(f"border {border} and scale {wanted}, expected 4 and 2 numbers")
    n, c, h, w = x.type.shape
    left, top, right, bottom = border
    height, width = wanted or (h - top - bottom, w - left - right)
    return s.g(Slice((0, 0, top, left), (n, c, height, width), (1,) * 4), x)


def images(s: Site) -> Value:
    """Return input 0; raise ModelError unless it is a batch of images."""
    x = s.input(0)
    if x.type.rank != 4:
        raise s.wrong(f"input 0 is {x.type}, expected [N,C,H,W]")
    return x


@on("DynamicSlice")
def dynamic_slice(s: Site) -> Made:
    """Return the slice that Slice of opset 10 makes without steps."""
    axes = None if s.optional(3) is None else s.ints(3)
    return sliced(s, s.dims(1), s.dims(2), axes, None)


@on("GivenTensorFill")
def given_tensor_fill(s: Site) -> Made:
    """Return the attribute `values` in a shape that is an attribute, or the operand."""
    if s.optional(0) is None:
        shape = s.needed("shape")
    else:
        extents = s.dims(0) if s.attribute("input_as_shape", 0) else s.input(0).type.shape
        shape = (*extents, *s.attribute("extra_shape", ()))
    return s.g(Reshape(shape), s.g.constant(np.array(s.needed("values"), np.float32)))


@on("MeanVarianceNormalization")
def mean_variance_normalization_by_flags(s: Site) -> Made:
    """Return x less its mean, over all or in each channel, divided by its deviation or not."""
    x = images(s)
    axes = (0, 1, 2, 3) if s.attribute("across_channels", 0) else (0, 2, 3)
    if s.attribute("normalize_variance", 1):
        return s.g(MeanVarianceNorm(axes), x)
    mean = s.g(ReduceMean(axes), x)
    return s.g(Sub(), x, stretch(s.g, mean, x.type.shape))
