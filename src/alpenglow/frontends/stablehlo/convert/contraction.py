"""Converters of products: dot_general and convolutions with all that they may say."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import ModelError
from alpenglow.frontends.numbers import apply
from alpenglow.frontends.presume import fixed
from alpenglow.frontends.stablehlo.convert.compare import converted
from alpenglow.frontends.stablehlo.convert.movement import reversed_along, spread, trimmed
from alpenglow.frontends.stablehlo.convert.reduction import padding
from alpenglow.frontends.stablehlo.module import ConvDims, DotDims
from alpenglow.frontends.stablehlo.table import Made, Site, on
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import COMPLEX, FLOATS, HALVES, INTS, NARROW_INTS
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.logic import BitNot
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.product.einsum import Einsum
from alpenglow.ops.tensor.movement import Transpose
from alpenglow.ops.window.conv_transpose import Dilate

BYTES = frozenset({"i8", "u8"})


@on("stablehlo.dot_general")
def dot_general(s: Site) -> Made:
    s.count(2)
    return contracted(s, s.dims_of("dot_dimension_numbers", DotDims))


@on("stablehlo.einsum")
def einsum(s: Site) -> Made:
    return s.g(Einsum(str(s.attribute("einsum_config")).replace(" ", "")), *s.required())


@on("stablehlo.dot")
def dot(s: Site) -> Made:
    """The last axis of the first operand goes with the first of the second."""
    x, y = s.input(0), s.input(1)
    if not 0 < x.type.rank <= 2 or not 0 < y.type.rank <= 2:
        raise ModelError(f"{s.kind}: operands are {x.type} and {y.type}")
    return contracted(s, DotDims((), (), (x.type.rank - 1,), (0,)))


def contracted(s: Site, dims: DotDims) -> Value:
    """Return sums of products over axes: batch, then the rest of both operands."""
    x, y = s.input(0), s.input(1)
    batches, inners = (dims.lhs_batch, dims.rhs_batch), (dims.lhs_contract, dims.rhs_contract)
    for name, of_x, of_y in (("batch", *batches), ("contracting", *inners)):
        if len(of_x) != len(of_y):
            raise ModelError(f"{s.kind}: {name} axes {of_x} and {of_y} are not as many")
    s.axes((*dims.lhs_batch, *dims.lhs_contract), x.type.rank)
    s.axes((*dims.rhs_batch, *dims.rhs_contract), y.type.rank)
    left = [i for i in range(x.type.rank) if i not in (*dims.lhs_batch, *dims.lhs_contract)]
    right = [i for i in range(y.type.rank) if i not in (*dims.rhs_batch, *dims.rhs_contract)]
    batch = [x.type.shape[i] for i in dims.lhs_batch]
    outer = [x.type.shape[i] for i in left], [y.type.shape[i] for i in right]
    inner = product([x.type.shape[i] for i in dims.lhs_contract])
    a = s.g(Transpose((*dims.lhs_batch, *left, *dims.lhs_contract)), x)
    b = s.g(Transpose((*dims.rhs_batch, *dims.rhs_contract, *right)), y)
    a = s.reshaped(a, (*batch, product(outer[0]), inner))
    b = s.reshaped(b, (*batch, inner, product(outer[1])))
    return s.reshaped(multiplied(s, a, b, s.dtype()), (*batch, *outer[0], *outer[1]))


def multiplied(s: Site, a: Value, b: Value, dtype: str) -> Value:
    """Return a product of matrices in an element type, in which sums are taken if it is wider."""
    if dtype in COMPLEX:
        return apply(s.g, MatMul(), *(converted(s, v, dtype) for v in (a, b)))
    if dtype == "bool":
        a, b = s.cast(a, "u8"), s.cast(b, "u8")
        total = s.g(MatMul(), a, b)
        return s.g(BitNot(), s.g(Equal(), total, s.filled(0, total)))
    pair = {a.type.dtype, b.type.dtype}
    if pair <= BYTES and dtype in INTS - {"i64", "u64"}:
        return s.cast(s.g(MatMul(), a, b), dtype)
    if pair <= HALVES and len(pair) == 1 and dtype == "f32":
        return s.g(MatMul(wide=True), a, b)
    if len(pair) == 1 and dtype in pair:
        return s.g(MatMul(), a, b)
    within = summed_in(a.type.dtype, b.type.dtype, dtype)
    return converted(s, s.g(MatMul(), *(converted(s, v, within) for v in (a, b))), dtype)


def summed_in(*dtypes: str) -> str:
    """Return the element type that sums of products are taken in: the widest, f32 at least."""
    if all(t in INTS | NARROW_INTS | {"bool"} for t in dtypes):
        return "i64" if any(t in ("i64", "u64", "u32") for t in dtypes) else "i32"
    return "f64" if "f64" in dtypes else "f32"


# ── convolutions ──


@on("stablehlo.convolution")
def convolution(s: Site) -> Made:
    s.count(2)
    dims = s.dims_of("dimension_numbers", ConvDims)
    return convolved(s, dims, padding(s, len(dims.input_spatial)))


@on("stablehlo.dynamic_conv")
def dynamic_conv(s: Site) -> Made:
    s.count(3)
    dims = s.dims_of("dimension_numbers", ConvDims)
    flat = s.ints(2)
    s.each(2 * len(dims.input_spatial), padding=flat)
    return convolved(s, dims, list(zip(flat[::2], flat[1::2], strict=True)))


def convolved(s: Site, dims: ConvDims, edges: Sequence[tuple[int, int]]) -> Value:
    """Return a convolution: operands turned to [N, C, …] and [O, I, …], and the result back."""
    t = s.result()
    if t.shape is not None and 0 in t.shape:
        return s.full(0, s.dtype(), s.extents())
    spatial = len(dims.input_spatial)
    ones = (1,) * spatial
    strides, base = s.numbers("window_strides", ones), s.numbers("lhs_dilation", ones)
    gaps, turned = s.numbers("rhs_dilation", ones), s.numbers("window_reversal", (0,) * spatial)
    s.each(spatial, window_strides=strides, lhs_dilation=base, rhs_dilation=gaps,
           window_reversal=turned)  # fmt: skip
    if min((*strides, *base, *gaps), default=1) < 1:
        raise ModelError(f"{s.kind}: strides {strides}, dilations {base} and {gaps}")
    x, w = _arranged(s, dims)
    x = _between(s, x, base)
    low, high = (0, 0, *(a for a, _ in edges)), (0, 0, *(b for _, b in edges))
    x = trimmed(s, x, low, high)
    w = reversed_along(s, w, [2 + i for i, back in enumerate(turned) if back])
    pads = (*(max(a, 0) for a, _ in edges), *(max(b, 0) for _, b in edges))
    x, w, group = _grouped(s, x, w)
    if not spatial:
        x, w = s.reshaped(x, (*x.type.shape, 1)), s.reshaped(w, (*w.type.shape, 1))
        strides, gaps, pads = (1,), (1,), (0, 0)
    y = slid(s, x, w, Conv(strides, pads, gaps, group))
    y = y if spatial else s.reshaped(y, y.type.shape[:2])
    places = (dims.output_batch, dims.output_feature, *dims.output_spatial)
    s.axes(places, y.type.rank, "output axes")
    return s.g(Transpose(tuple(places.index(i) for i in range(len(places)))), y)


def _arranged(s: Site, dims: ConvDims) -> tuple[Value, Value]:
    x, w = s.input(0), s.input(1)
    rank = len(dims.input_spatial) + 2
    if x.type.rank != rank or w.type.rank != rank:
        raise ModelError(f"{s.kind}: operands are {x.type} and {w.type}, expected rank {rank}")
    of_x = (dims.input_batch, dims.input_feature, *dims.input_spatial)
    of_w = (dims.kernel_output, dims.kernel_input, *dims.kernel_spatial)
    s.axes(of_x, rank, "input axes")
    s.axes(of_w, rank, "kernel axes")
    return s.g(Transpose(of_x), x), s.g(Transpose(of_w), w)


def _between(s: Site, x: Value, base: Sequence[int]) -> Value:
    """Return x with zeros between neighbours."""
    if all(b == 1 for b in base):
        return x
    if x.type.dtype in FLOATS:
        return s.g(Dilate((1, 1, *base)), x)
    zero = s.full(0, x.type.dtype, ())
    for i, b in enumerate(base):
        x = spread(s, x, zero, 2 + i, b - 1)
    return x


def _grouped(s: Site, x: Value, w: Value) -> tuple[Value, Value, int]:
    """Return operands and the number of groups; parts of a batch become groups of channels."""
    features, batches = s.number("feature_group_count", 1), s.number("batch_group_count", 1)
    if min(features, batches) < 1 or (features > 1 and batches > 1):
        raise ModelError(f"{s.kind}: {features} groups of features, {batches} of batches")
    if batches == 1:
        return x, w, features
    n, c, *rest = x.type.shape
    n = fixed(n)
    if n % batches:
        raise ModelError(f"{s.kind}: {n} samples are divided into {batches} groups")
    apart = s.reshaped(x, (batches, n // batches, c, *rest))
    order = (1, 0, *range(2, apart.type.rank))
    joined = s.reshaped(s.g(Transpose(order), apart), (n // batches, batches * c, *rest))
    return joined, w, batches


def slid(s: Site, x: Value, w: Value, op: Conv) -> Value:
    """Return a convolution in the element type of the result."""
    dtype = s.dtype()
    pair = {x.type.dtype, w.type.dtype}
    if pair <= BYTES and dtype in INTS - {"i64", "u64"}:
        return s.cast(s.g(op, x, w), dtype)
    if dtype in COMPLEX | INTS:
        return apply(s.g, op, converted(s, x, dtype), converted(s, w, dtype))
    if pair <= HALVES and len(pair) == 1 and dtype == "f32":
        wide = Conv(op.strides, op.pads, op.dilations, op.group, wide=True)
        return s.g(wide, x, w)
    if len(pair) == 1 and dtype in pair and dtype in FLOATS:
        return s.g(op, x, w)
    within = summed_in(x.type.dtype, w.type.dtype, dtype)
    return converted(s, s.g(op, converted(s, x, within), converted(s, w, within)), dtype)
