"""Converters for products, convolutions and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch.promote import Number
from alpenglow.frontends.torch.table import Made, Site, each, on
from alpenglow.ir.dims import Dim, is_open, product
from alpenglow.ir.graph import Value
from alpenglow.ops import arithmetic, contraction
from alpenglow.ops.attention import Attention
from alpenglow.ops.movement import Transpose


@on("aten.mm.default", "aten.bmm.default")
def mm(s: Site, x: Value, mat2: Value) -> Made:
    return s.g(contraction.MatMul(), x, mat2)


@on("aten.addmm.default")
def addmm(s: Site, x: Value, mat1: Value, mat2: Value, beta: Number = 1, alpha: Number = 1) -> Made:
    return plus(s, x, s.g(contraction.MatMul(), mat1, mat2), beta, alpha)


@on("aten.baddbmm.default")
def baddbmm(
    s: Site, x: Value, batch1: Value, batch2: Value, beta: Number = 1, alpha: Number = 1
) -> Made:
    return plus(s, x, s.g(contraction.MatMul(), batch1, batch2), beta, alpha)


def plus(s: Site, x: Value, y: Value, beta: Number, alpha: Number) -> Value:
    """Return beta x + alpha y; x counts for nothing where beta is 0, not even its NaN."""
    if alpha != 1:
        y = s.g(arithmetic.Mul(), y, s.filled(alpha, y.type))
    if beta == 0:
        return y
    (wide,) = s.broadcast(x, shape=y.type.shape)
    if beta != 1:
        wide = s.g(arithmetic.Mul(), wide, s.filled(beta, y.type))
    return s.g(arithmetic.Add(), wide, y)


@on("aten.linear.default")
def linear(s: Site, input: Value, weight: Value, bias: Value | None = None) -> Made:
    columns = s.g(Transpose((1, 0)), weight) if weight.type.rank == 2 else weight
    if weight.type.rank != 2 or input.type.rank < 1:
        raise UnsupportedError(f"linear: weights are {weight.type}")
    rows = s.reshaped(input, (product(input.type.shape[:-1]), input.type.shape[-1]))
    y = s.reshaped(s.g(contraction.MatMul(), rows, columns), s.result.shape)
    return y if bias is None else s.apply(arithmetic.Add(), y, bias)


@on("aten.matmul.default")
def matmul(s: Site, x: Value, other: Value) -> Made:
    """NumPy's rules: vectors are rows on the left and columns on the right, batches broadcast."""
    a = s.reshaped(x, (1, *x.type.shape)) if x.type.rank == 1 else x
    b = s.reshaped(other, (*other.type.shape, 1)) if other.type.rank == 1 else other
    rows, inner, columns = a.type.shape[-2], a.type.shape[-1], b.type.shape[-1]
    if b.type.rank == 2:
        flat = s.reshaped(a, (product(a.type.shape[:-1]), inner))
        return s.reshaped(s.g(contraction.MatMul(), flat, b), s.result.shape)
    left = s.result.shape[: s.result.rank - (x.type.rank > 1) - (other.type.rank > 1)]
    y = s.g(contraction.MatMul(), s.spread(a, (*left, rows, inner)),
            s.spread(b, (*left, inner, columns)))  # fmt: skip
    return s.reshaped(y, s.result.shape)


# ── convolutions ──


@on("aten.convolution.default")
def convolution(
    s: Site, input: Value, weight: Value, bias: Value | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int,
) -> Made:  # fmt: skip
    n = weight.type.rank - 2
    if transposed:
        op = contraction.ConvTranspose(each(stride, n), each(padding, n) * 2, each(dilation, n),
                                       each(output_padding, n), groups)  # fmt: skip
        return s.g(op, input, weight, bias)
    pads = each(padding, n)
    return s.g(contraction.Conv(each(stride, n), pads * 2, each(dilation, n), groups),
               input, weight, bias)  # fmt: skip


def direct(n: int) -> None:
    """Register the convolutions over n spatial axes."""

    @on(f"aten.conv{n}d.default")
    def convert(
        s: Site, input: Value, weight: Value, bias: Value | None = None,
        stride: Sequence[int] = (1,) * n, padding: Sequence[int] = (0,) * n,
        dilation: Sequence[int] = (1,) * n, groups: int = 1,
    ) -> Made:  # fmt: skip
        pads = each(padding, n) * 2
        return convolved(s, input, weight, bias, each(stride, n), pads, each(dilation, n), groups)

    @on(f"aten.conv{n}d.padding")
    def named(
        s: Site, input: Value, weight: Value, bias: Value | None = None,
        stride: Sequence[int] = (1,) * n, padding: str = "valid",
        dilation: Sequence[int] = (1,) * n, groups: int = 1,
    ) -> Made:  # fmt: skip
        dilations = each(dilation, n)
        pads = (0,) * (2 * n)
        if padding == "same":
            totals = [d * (k - 1) for d, k in zip(dilations, kernel_of(weight), strict=True)]
            pads = (*(t // 2 for t in totals), *(t - t // 2 for t in totals))
        return convolved(s, input, weight, bias, each(stride, n), pads, dilations, groups)


def kernel_of(weight: Value) -> tuple[int, ...]:
    """Return the extents of a kernel, which are numbers."""
    kernel: Sequence[Dim] = weight.type.shape[2:]
    if any(map(is_open, kernel)):
        raise UnsupportedError(f"weights are {weight.type}, expected extents that are known")
    return tuple(map(int, kernel))


def convolved(
    s: Site, x: Value, w: Value, bias: Value | None, strides: tuple[int, ...],
    pads: tuple[int, ...], dilations: tuple[int, ...], groups: int,
) -> Value:  # fmt: skip
    """Return a convolution; an input without a batch is one sample."""
    single = x.type.rank == w.type.rank - 1
    batch = s.reshaped(x, (1, *x.type.shape)) if single else x
    y = s.g(contraction.Conv(strides, pads, dilations, groups), batch, w, bias)
    return s.reshaped(y, s.result.shape) if single else y


for axes in (1, 2, 3):
    direct(axes)


# ── attention ──


@on("aten.scaled_dot_product_attention.default")
def attention(
    s: Site, query: Value, key: Value, value: Value, attn_mask: Value | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Made:  # fmt: skip
    if dropout_p:
        raise UnsupportedError(f"attention with dropout, p = {dropout_p}")
    size = query.type.shape[-1]
    if scale is None:
        if is_open(size):
            raise UnsupportedError("attention whose rows have an open extent")
        scale = 1 / math.sqrt(size) if size else 1.0
    q, k, v = (_by_head(s, x) for x in (query, key, value))
    mask = attn_mask
    if mask is not None and mask.type.rank > 4:
        raise UnsupportedError(f"attention with a mask of {mask.type}")
    node = s.g.add(Attention(float(scale), causal=is_causal), [q, k, v, mask])
    return s.reshaped(node.results[0], s.result.shape)


def _by_head(s: Site, x: Value) -> Value:
    """Return x[…, rows, size] as [batch, heads, rows, size]."""
    *lead, rows, size = x.type.shape
    if len(lead) == 2:
        return x
    heads = lead[-1] if lead else 1
    return s.reshaped(x, (product(lead[:-1]), heads, rows, size))
