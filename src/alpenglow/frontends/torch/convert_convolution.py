"""Converters for convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch.convert_contraction import product_of
from alpenglow.frontends.torch.table import Made, Site, each, on
from alpenglow.ir.dims import Dim, is_open, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import COMPLEX, INTS
from alpenglow.ops.arithmetic import Add, Sub
from alpenglow.ops.complex import ViewAsComplex, ViewAsReal
from alpenglow.ops.contraction import Conv
from alpenglow.ops.conv_transpose import ConvTranspose, Dilate
from alpenglow.ops.movement import Concat, Pad, Slice, Transpose, stretch

Convolution = Conv | ConvTranspose


@on("aten.convolution.default", "aten._convolution.default")
def convolution(
    s: Site, input: Value, weight: Value, bias: Value | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, benchmark: bool = False,
    deterministic: bool = False, cudnn_enabled: bool = False, allow_tf32: bool = False,
) -> Made:  # fmt: skip
    n = weight.type.rank - 2
    pads, steps, spread = each(padding, n) * 2, each(stride, n), each(dilation, n)
    if transposed:
        op = ConvTranspose(steps, pads, spread, each(output_padding, n), groups)
        return convolved(s, op, input, weight, bias)
    return convolved(s, Conv(steps, pads, spread, groups), input, weight, bias)


def direct(n: int) -> None:
    """Register the convolutions over n spatial axes."""

    @on(f"aten.conv{n}d.default")
    def convert(
        s: Site, input: Value, weight: Value, bias: Value | None = None,
        stride: Sequence[int] = (1,) * n, padding: Sequence[int] = (0,) * n,
        dilation: Sequence[int] = (1,) * n, groups: int = 1,
    ) -> Made:  # fmt: skip
        op = Conv(each(stride, n), each(padding, n) * 2, each(dilation, n), groups)
        return convolved(s, op, input, weight, bias)

    @on(f"aten.conv{n}d.padding")
    def named(
        s: Site, input: Value, weight: Value, bias: Value | None = None,
        stride: Sequence[int] = (1,) * n, padding: str = "valid",
        dilation: Sequence[int] = (1,) * n, groups: int = 1,
    ) -> Made:  # fmt: skip
        spread, pads = each(dilation, n), (0,) * (2 * n)
        if padding == "same":
            totals = [d * (k - 1) for d, k in zip(spread, kernel_of(weight), strict=True)]
            pads = (*(t // 2 for t in totals), *(t - t // 2 for t in totals))
        return convolved(s, Conv(each(stride, n), pads, spread, groups), input, weight, bias)


def transposed(n: int) -> None:
    """Register the transposed convolutions over n spatial axes."""

    @on(f"aten.conv_transpose{n}d." + ("input" if n > 1 else "default"))
    def convert(
        s: Site, input: Value, weight: Value, bias: Value | None = None,
        stride: Sequence[int] = (1,) * n, padding: Sequence[int] = (0,) * n,
        output_padding: Sequence[int] = (0,) * n, groups: int = 1,
        dilation: Sequence[int] = (1,) * n,
    ) -> Made:  # fmt: skip
        op = ConvTranspose(each(stride, n), each(padding, n) * 2, each(dilation, n),
                           each(output_padding, n), groups)  # fmt: skip
        return convolved(s, op, input, weight, bias)


def kernel_of(weight: Value) -> tuple[int, ...]:
    """Return the extents of a kernel, which are numbers."""
    kernel: Sequence[Dim] = weight.type.shape[2:]
    if any(map(is_open, kernel)):
        raise UnsupportedError(f"weights are {weight.type}, expected extents that are known")
    return tuple(map(int, kernel))


def convolved(s: Site, op: Convolution, x: Value, w: Value, bias: Value | None) -> Value:
    """Return a convolution; an input without a batch is one sample."""
    single = x.type.rank == w.type.rank - 1
    batch = s.reshaped(x, (1, *x.type.shape)) if single else x
    if x.type.dtype in COMPLEX:
        y = convolved_complex(s, op, batch, w, bias)
    elif x.type.dtype in INTS:
        y = convolved_integers(s, op, batch, w, bias)
    else:
        y = s.g(op, batch, w, bias)
    return s.reshaped(y, s.result.shape) if single else y


def convolved_complex(s: Site, op: Convolution, x: Value, w: Value, bias: Value | None) -> Value:
    """Return a convolution of complex numbers, by four of their parts."""
    (a, b), (c, d) = parts(s, x), parts(s, w)
    real = s.g(Sub(), s.g(op, a, c, None), s.g(op, b, d, None))
    imaginary = s.g(Add(), s.g(op, a, d, None), s.g(op, b, c, None))
    if bias is not None:
        ones = (1,) * (real.type.rank - 2)
        for_real, for_imaginary = (
            stretch(s.g, s.reshaped(v, (*v.type.shape, *ones)), real.type.shape)
            for v in parts(s, bias)
        )
        real, imaginary = s.g(Add(), real, for_real), s.g(Add(), imaginary, for_imaginary)
    pair = (*real.type.shape, 1)
    halves = [s.reshaped(v, pair) for v in (real, imaginary)]
    return s.g(ViewAsComplex(), s.g(Concat(len(pair) - 1), *halves))


def convolved_integers(
    s: Site, op: Convolution, x: Value, w: Value, bias: Value | None
) -> Value:  # fmt: skip
    """Return a convolution of integers: one product of matrices, which wraps as theirs do."""
    if isinstance(op, ConvTranspose):
        op, x, w = straightened(s, op, x, w)
    kernel = kernel_of(w)
    spatial, outputs, channels = len(kernel), w.type.shape[0], w.type.shape[1]
    pads, steps, apart = op.window(spatial)
    padded = s.g(Pad((0, 0, *pads[:spatial]), (0, 0, *pads[spatial:])), x)
    batch, image = x.type.shape[0], s.result.shape[-spatial:]
    rows = (batch, op.group, channels, product(image))
    taps = [
        s.reshaped(
            s.g(Slice((0, 0, *[i * d for i, d in zip(tap, apart, strict=True)]),
                      (batch, x.type.shape[1], *image), (1, 1, *steps)), padded), rows)
        for tap in np.ndindex(*kernel)
    ]  # fmt: skip
    per_group = s.reshaped(w, (op.group, outputs // op.group, channels, len(taps)))
    matrix = s.g(Transpose((0, 1, 3, 2)), per_group)
    left = s.reshaped(matrix, (op.group, outputs // op.group, len(taps) * channels))
    left = s.spread(left, (batch, *left.type.shape))
    y = s.reshaped(product_of(s, left, s.g(Concat(2), *taps)), (batch, outputs, *image))
    if bias is None:
        return y
    ones = (1,) * spatial
    return s.g(Add(), y, stretch(s.g, s.reshaped(bias, (outputs, *ones)), y.type.shape))


def straightened(
    s: Site, op: ConvTranspose, x: Value, w: Value
) -> tuple[Conv, Value, Value]:  # fmt: skip
    """Return what a transposed convolution is: one of x with zeros, by weights read backwards."""
    kernel, group = kernel_of(w), op.group
    n, (inputs, outputs) = len(kernel), w.type.shape[:2]
    reach = [(k - 1) * d for k, d in zip(kernel, op.dilations, strict=True)]
    before = [r - p for r, p in zip(reach, op.pads[:n], strict=True)]
    after = [r - p + q for r, p, q in
             zip(reach, op.pads[n:], op.output_padding, strict=True)]  # fmt: skip
    ends = (0, 0, *[k - 1 for k in kernel])
    backwards = s.g(Slice(ends, w.type.shape, (1, 1, *[-1] * n)), w)
    split = s.reshaped(backwards, (group, inputs // group, outputs, *kernel))
    turned = s.g(Transpose((0, 2, 1, *range(3, 3 + n))), split)
    weights = s.reshaped(turned, (group * outputs, inputs // group, *kernel))
    return (Conv((1,) * n, (*before, *after), op.dilations, group),
            s.g(Dilate((1, 1, *op.strides)), x), weights)  # fmt: skip


def parts(s: Site, x: Value) -> tuple[Value, Value]:
    """Return the real and the imaginary part of complex numbers."""
    pairs, rank = s.g(ViewAsReal(), x), x.type.rank
    sizes, steps = (*x.type.shape, 1), (1,) * (rank + 1)
    real, imaginary = (
        s.reshaped(s.g(Slice((*[0] * rank, i), sizes, steps), pairs), x.type.shape) for i in (0, 1)
    )
    return real, imaginary


for axes in (1, 2, 3):
    direct(axes)
    transposed(axes)
