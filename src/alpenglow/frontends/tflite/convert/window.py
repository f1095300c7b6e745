"""Converters for what slides a window: convolution and pooling, channels last."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from alpenglow.frontends.nhwc import channels_first, channels_last, same_pads, window_pads
from alpenglow.frontends.presume import fixed
from alpenglow.frontends.tflite.activate import activated
from alpenglow.frontends.tflite.file.schema import Padding
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.elementwise.transcendental import Sqrt
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.movement import Pad, Transpose, append_axes, stretch
from alpenglow.ops.window.conv_transpose import ConvTranspose
from alpenglow.ops.window.pooling import AveragePool, MaxPool

PLANE = ("h", "w")
SPACE = ("d", "h", "w")


@on("CONV_2D", "Conv2DOptions")
def conv_2d(s: Site) -> Made:
    return convolved(s, *of_conv_2d(s), PLANE)


@on("CONV_3D", "Conv3DOptions")
def conv_3d(s: Site) -> Made:
    x, w = s.rank(0, 5), s.rank(1, 5)
    return convolved(s, x, s.g(Transpose((4, 3, 0, 1, 2)), w), SPACE)


@on("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions")
def depthwise_conv_2d(s: Site) -> Made:
    return convolved(s, *of_depthwise_conv_2d(s), PLANE)


def of_conv_2d(s: Site) -> tuple[Value, Value]:
    """Return x[N, H, W, C] and weights[O, C, …]."""
    return s.rank(0, 4), s.g(Transpose((0, 3, 1, 2)), s.rank(1, 4))


def of_depthwise_conv_2d(s: Site) -> tuple[Value, Value]:
    """Return x[N, H, W, C] and weights[O, 1, …]; O is a multiple of the channels."""
    x, w = s.rank(0, 4), s.rank(1, 4)
    if w.type.shape[0] != 1:
        raise s.wrong(f"weights are {w.type}, expected dimension 1 on axis 0")
    return x, s.g(Transpose((3, 0, 1, 2)), w)


def convolved(s: Site, x: Value, w: Value, axes: Sequence[str]) -> Value:
    """Return x[N, …, C] convolved with w[O, C/groups, …], activated."""
    y = s.g(Conv(*sliding(s, x, w, axes)), channels_first(s.g, x), w, s.optional(2))
    return activated(s, channels_last(s.g, y))


def sliding(
    s: Site, x: Value, w: Value, axes: Sequence[str]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    """Return strides, pads, dilations and groups of x[N, …, C] convolved with w[O, C/groups, …]."""
    channels, each = fixed(x.type.shape[-1]), fixed(w.type.shape[1])
    if each < 1 or channels % each:
        raise s.wrong(f"weights have {each} input channels, expected a divisor of {channels}, the "
                      "channels of the input")  # fmt: skip
    strides = tuple(s.option(f"stride_{a}") for a in axes)
    dilations = tuple(s.option(f"dilation_{a}_factor") for a in axes)
    kernel = [int(d) for d in w.type.shape[2:]]
    pads = window_pads(is_same(s), x.type.shape[1:-1], kernel, strides, dilations)
    return strides, pads, dilations, channels // each


def is_same(s: Site) -> bool:
    """Whether the padding is SAME."""
    return s.choice("padding", Padding) == Padding.SAME


@on("TRANSPOSE_CONV", "TransposeConvOptions")
def transpose_conv(s: Site) -> Made:
    x, w = s.rank(2, 4), s.rank(1, 4)
    y = deconvolved(s, x, s.g(Transpose((3, 0, 1, 2)), w), PLANE)
    return activated(s, y)


@on("CONV_3D_TRANSPOSE", "Conv3DOptions")
def conv_3d_transpose(s: Site) -> Made:
    x, w = s.rank(2, 5), s.rank(1, 5)
    if {s.option(f"dilation_{a}_factor") for a in SPACE} != {1}:
        raise s.unsupported("a dilation factor other than 1", "1")
    y = deconvolved(s, x, s.g(Transpose((4, 3, 0, 1, 2)), w), SPACE)
    return activated(s, y)


def deconvolved(s: Site, x: Value, w: Value, axes: Sequence[str]) -> Value:
    """Return the transposed convolution by w, plus a bias: x[N, …, C] with w[C, O, …]."""
    y = spread_out(s, x, w, axes)
    if (bias := s.optional(3)) is not None:
        column = stretch(s.g, append_axes(s.g, bias, len(axes)), y.type.shape)
        y = s.g(Add(), y, column)
    return channels_last(s.g, y)


def spread_out(s: Site, x: Value, w: Value, axes: Sequence[str]) -> Value:
    """Return x[N, …, C] with each element multiplied by a window of w[C, O, …]: [N, O, …].

    Operand 0 is the shape of the result.  Elements outside of it are cut off.
    """
    wanted = s.dims(0)
    spatial = len(axes)
    if len(wanted) != spatial + 2 or wanted[-1] != w.type.shape[1]:
        raise s.wrong(f"output_shape is {wanted}, expected {spatial + 2} entries, the last one "
                      f"{w.type.shape[1]}, the output channels of the weights")  # fmt: skip
    strides = tuple(s.option(f"stride_{a}") for a in axes)
    before, after, more = [], [], []
    for d, k, size, stride in zip(
        x.type.shape[1:-1], w.type.shape[2:], wanted[1:-1], strides, strict=True
    ):
        d, k, size = fixed(d), fixed(k), fixed(size)
        first = same_pads(size, k, stride)[0] if is_same(s) else 0
        left = (d - 1) * stride + k - size - first
        before.append(first)
        after.append(max(left, 0))
        more.append(max(-left, 0))
    op = ConvTranspose(strides, (*before, *after), (1,) * spatial, (0,) * spatial)
    y = s.g(op, channels_first(s.g, x), w)
    if any(more):
        y = s.g(Pad((0,) * y.type.rank, (0, 0, *more)), y)
    if y.type.shape[0] != wanted[0]:
        raise s.wrong(f"output_shape is {wanted}, expected batch {y.type.shape[0]}, as {x.type}")
    return y


@on("Convolution2DTransposeBias", custom=True)
def convolution_2d_transpose_bias(s: Site) -> Made:
    """MediaPipe's own: the shape of the result follows from the padding and strides.

    Its options are integers, of which the first is 1 for SAME padding and 2 for VALID.  With SAME
    so much is cut off as the last window reaches over the last stride.
    """
    x, w, bias = s.rank(0, 4), s.rank(1, 4), s.rank(2, 1)
    content = s.step.payload.operator.custom_options()
    if len(content) < 12:
        raise s.wrong(f"custom_options has {len(content)} bytes, expected 12 or more")
    padding, *strides = struct.unpack_from("<iii", content)
    if padding not in (1, 2) or min(strides) < 1:
        raise s.wrong(f"padding is {padding} and strides are {strides}, "
                      "expected 1 (SAME) or 2 (VALID), and at least 1 each")  # fmt: skip
    cut = []
    for d, k, stride in zip(x.type.shape[1:3], w.type.shape[1:3], strides[::-1], strict=True):
        d, k = fixed(d), fixed(k)
        cut.append(max(k - (d - 1) % stride - 1, 0) if padding == 1 else 0)
    before = [n // 2 for n in cut]
    after = [n - first for n, first in zip(cut, before, strict=True)]
    op = ConvTranspose((strides[1], strides[0]), (*before, *after), (1, 1), (0, 0))
    y = s.g(op, channels_first(s.g, x), s.g(Transpose((3, 0, 1, 2)), w), bias)
    return channels_last(s.g, y)


@on("MAX_POOL_2D", "Pool2DOptions")
@on("AVERAGE_POOL_2D", "Pool2DOptions")
def pool_2d(s: Site) -> Made:
    x, make = channels_first(s.g, s.rank(0, 4)), MaxPool if s.kind == "MAX_POOL_2D" else AveragePool
    return activated(s, channels_last(s.g, s.g(make(*pooling(s)), x)))


@on("L2_POOL_2D", "Pool2DOptions")
def l2_pool_2d(s: Site) -> Made:
    """The root of the mean of squares."""
    x = channels_first(s.g, s.rank(0, 4))
    mean = s.g(AveragePool(*pooling(s)), s.g(Mul(), x, x))
    return activated(s, channels_last(s.g, s.g(Sqrt(), mean)))


Window = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def pooling(s: Site) -> Window:
    """Return the kernel, strides, pads and dilations of a pooling."""
    kernel = s.option("filter_height"), s.option("filter_width")
    strides = s.option("stride_h"), s.option("stride_w")
    extents: tuple[Dim, ...] = s.input(0).type.shape[1:-1]
    return kernel, strides, window_pads(is_same(s), extents, kernel, strides, (1, 1)), (1, 1)
