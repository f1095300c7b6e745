"""Converters for Gemm, ConvTranspose and Einsum."""

from __future__ import annotations

from alpenglow.frontends.onnx.table import Made, Numbers, Site, on, scales, times
from alpenglow.frontends.presume import fixed
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.product.einsum import Einsum, explicit
from alpenglow.ops.tensor.movement import Transpose, stretch
from alpenglow.ops.window.conv_transpose import ConvTranspose


@on("Gemm")
@scales("alpha", "beta")
def gemm(s: Site) -> Made:
    x, y, bias = s.input(0), s.input(1), s.optional(2)
    if x.type.rank != 2 or y.type.rank != 2:
        raise s.wrong(f"A is {x.type} and B {y.type}, expected rank 2")
    x = s.g(Transpose((1, 0)), x) if s.attribute("transA", 0) else x
    y = s.g(Transpose((1, 0)), y) if s.attribute("transB", 0) else y
    alpha, beta = s.attribute("alpha", 1.0), s.attribute("beta", 1.0)
    # A constant matrix is scaled when the model is compiled; what is computed only afterwards.
    if s.input(1).array is not None:
        z = s.g(MatMul(), x, times(s, y, alpha))
    else:
        z = times(s, s.g(MatMul(), x, y), alpha)
    if bias is None or beta == 0:
        return z
    return s.g(Add(), z, stretch(s.g, times(s, bias, beta), z.type.shape))


@on("ConvTranspose")
def conv_transpose(s: Site) -> Made:
    x, w = s.input(0), s.input(1)
    spatial = max(x.type.rank - 2, 0)
    strides = s.attribute("strides", (1,) * spatial)
    dilations = s.attribute("dilations", (1,) * spatial)
    extra = s.attribute("output_padding", (0,) * spatial)
    mode = s.attribute("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise s.wrong(f"auto_pad is '{mode}', expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    wanted = s.attribute("output_shape", ())[-spatial:]
    pads = s.attribute("pads", (0,) * (2 * spatial)) if mode == "NOTSET" else (0,) * (2 * spatial)
    if wanted or mode.startswith("SAME"):
        pads, extra = fitted(s, wanted, strides, dilations, extra, mode == "SAME_UPPER")
    op = ConvTranspose(strides, pads, dilations, extra, s.attribute("group", 1))
    return s.g(op, x, w, s.optional(2))


def fitted(
    s: Site, wanted: Numbers, strides: Numbers, dilations: Numbers, extra: Numbers, upper: bool
) -> tuple[Numbers, Numbers]:
    """Return the pads and output padding with which the result has the extents `wanted`.

    Without `wanted` each extent grows by its stride.
    """
    before, after, more = [], [], []
    extents, kernel = s.input(0).type.shape[2:], s.input(1).type.shape[2:]
    wants = wanted or (None,) * len(strides)
    axes = zip(extents, kernel, wants, strides, dilations, extra, strict=True)
    for d, k, want, stride, dilation, q in axes:
        d, k = fixed(d), fixed(k)
        full = (d - 1) * stride + (k - 1) * dilation + 1 + q
        total = full - (d * stride if want is None else want)
        cut = max(total, 0)
        before.append(cut // 2 if upper else cut - cut // 2)
        after.append(cut - before[-1])
        more.append(q + max(-total, 0))
    return (*before, *after), tuple(more)


@on("Einsum")
def einsum(s: Site) -> Made:
    xs = s.required()
    equation = explicit(s.needed("equation"), [x.type.rank for x in xs])
    return s.g(Einsum(equation), *xs)
