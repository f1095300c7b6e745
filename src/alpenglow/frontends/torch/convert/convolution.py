"""Converters for convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.frontends.numbers import apply
from alpenglow.frontends.torch.table import Made, Site, each, numbers, on
from alpenglow.ir.graph import Value
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.window.conv_transpose import ConvTranspose

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
            kernel = numbers(*weight.type.shape[2:])
            totals = [d * (k - 1) for d, k in zip(spread, kernel, strict=True)]
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


def convolved(s: Site, op: Convolution, x: Value, w: Value, bias: Value | None) -> Value:
    """Return a convolution; an input without a batch is one sample."""
    single = x.type.rank == w.type.rank - 1
    batch = s.reshaped(x, (1, *x.type.shape)) if single else x
    y = apply(s.g, op, batch, w, bias)
    return s.reshaped(y, s.result.shape) if single else y


for axes in (1, 2, 3):
    direct(axes)
    transposed(axes)
