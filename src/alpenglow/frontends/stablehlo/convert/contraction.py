"""Converters of products: dot_general and convolutions with all that they may say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from alpenglow.frontends.movement import turned_round
from alpenglow.frontends.numbers import apply
from alpenglow.frontends.presume import fixed
from alpenglow.frontends.stablehlo.convert.compare import converted
from alpenglow.frontends.stablehlo.convert.movement import spread, trimmed
from alpenglow.frontends.stablehlo.module import ConvDims, DotDims
from alpenglow.frontends.stablehlo.table import Made, Site, Window, on
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
    x, y = s.required(2)
    return contracted(s, x, y, s.dims_of("dot_dimension_numbers", DotDims))


@on("stablehlo.einsum")
def einsum(s: Site) -> Made:
    return s.g(Einsum(str(s.attribute("einsum_config")).replace(" ", "")), *s.required())


@on("stablehlo.dot")
def dot(s: Site) -> Made:
    """The last axis of the first operand goes with the first of the second."""
    x, y = s.required(2)
    if not 0 < x.type.rank <= 2 or not 0 < y.type.rank <= 2:
        raise s.wrong(f"operands are {x.type} and {y.type}, expected rank 1 or 2 each")
    return contracted(s, x, y, DotDims((), (), (x.type.rank - 1,), (0,)))


def contracted(s: Site, x: Value, y: Value, dims: DotDims) -> Value:
    """Return sums of products over axes: batch, then the rest of both operands."""
    batches, inners = (dims.lhs_batch, dims.rhs_batch), (dims.lhs_contract, dims.rhs_contract)
    for name, of_x, of_y in (("batching", *batches), ("contracting", *inners)):
        if len(of_x) != len(of_y):
            raise s.wrong(
                f"lhs_{name}_dimensions is {of_x} and rhs_{name}_dimensions is {of_y}, "
                "expected the same number"
            )
    named = "{0}_batching_dimensions and {0}_contracting_dimensions".format
    s.axes((*dims.lhs_batch, *dims.lhs_contract), x.type.rank, named("lhs"))
    s.axes((*dims.rhs_batch, *dims.rhs_contract), y.type.rank, named("rhs"))
    left = [i for i in range(x.type.rank) if i not in (*dims.lhs_batch, *dims.lhs_contract)]
    right = [i for i in range(y.type.rank) if i not in (*dims.rhs_batch, *dims.rhs_contract)]
    batch = [x.type.shape[i] for i in dims.lhs_batch]
    outer = [x.type.shape[i] for i in left], [y.type.shape[i] for i in right]
    inner = product([x.type.shape[i] for i in dims.lhs_contract])
    a = s.g(Transpose((*dims.lhs_batch, *left, *dims.lhs_contract)), x)
    b = s.g(Transpose((*dims.rhs_batch, *dims.rhs_contract, *right)), y)
    a = s.reshaped(a, (*batch, product(outer[0]), inner))
    b = s.reshaped(b, (*batch, inner, product(outer[1])))
    return s.reshaped(multiplied(s, MatMul(), a, b), (*batch, *outer[0], *outer[1]))


def multiplied(s: Site, op: MatMul | Conv, a: Value, b: Value) -> Value:
    """Return a product in the element type of the result, in which sums are taken if it is wider.

    Operands of different types are converted: to integers, whose sums wrap, before they are summed.
    """
    dtype, pair = s.dtype(), {a.type.dtype, b.type.dtype}
    if dtype == "bool":
        total = s.g(op, s.cast(a, "u8"), s.cast(b, "u8"))
        return s.g(BitNot(), s.g(Equal(), total, s.filled(0, total)))
    if pair <= BYTES and dtype in INTS - {"i64", "u64"}:
        return s.cast(s.g(op, a, b), dtype)
    if dtype in COMPLEX | INTS:
        return apply(s.g, op, *(converted(s, v, dtype) for v in (a, b)))
    if pair <= HALVES and len(pair) == 1 and dtype == "f32":
        return s.g(replace(op, wide=True), a, b)
    if pair == {dtype} and dtype in FLOATS:
        return s.g(op, a, b)
    within = summed_in(*pair, dtype)
    return converted(s, s.g(op, *(converted(s, v, within) for v in (a, b))), dtype)


def summed_in(*dtypes: str) -> str:
    """Return the element type that sums of products are taken in: the widest, f32 at least."""
    if all(t in INTS | NARROW_INTS | {"bool"} for t in dtypes):
        return "i64" if any(t in ("i64", "u64", "u32") for t in dtypes) else "i32"
    return "f64" if "f64" in dtypes else "f32"


# ── convolutions ──


@on("stablehlo.convolution")
def convolution(s: Site) -> Made:
    x, w = s.required(2)
    return convolved(s, x, w)


@on("stablehlo.dynamic_conv")
def dynamic_conv(s: Site) -> Made:
    x, w, _ = s.required(3)
    return convolved(s, x, w, s.ints(2))


def convolved(s: Site, x: Value, w: Value, padding: Sequence[int] | None = None) -> Value:
    """Return a convolution: operands turned to [N, C, …] and [O, I, …], and the result back."""
    dims = s.dims_of("dimension_numbers", ConvDims)
    rank = len(dims.input)
    window = s.window(rank - 2, "lhs_dilation", "rhs_dilation", padding)
    t = s.result()
    if t.shape is not None and 0 in t.shape:
        return s.full(0, s.dtype(), s.extents())
    perms = (dims.input, dims.kernel, dims.output)
    if {x.type.rank, w.type.rank} != {rank} or any(sorted(p) != [*range(rank)] for p in perms):
        raise s.wrong(
            f"dimension_numbers are {perms} for {x.type} and {w.type}, expected each of "
            f"{rank} dimensions once"
        )
    x = _laid(s, s.g(Transpose(dims.input), x), window)
    w = s.g(Transpose(dims.kernel), w)
    if any(window.turned):
        w = turned_round(s.g, w, [2 + i for i, back in enumerate(window.turned) if back])
    x, w, group = _grouped(s, x, w)
    pads = tuple(max(e[i], 0) for i in range(2) for e in window.edges)
    if rank == 2:
        x, w = s.reshaped(x, (*x.type.shape, 1)), s.reshaped(w, (*w.type.shape, 1))
        y = multiplied(s, Conv((1,), (0, 0), (1,), group), x, w)
        y = s.reshaped(y, y.type.shape[:2])
    else:
        y = multiplied(s, Conv(window.strides, pads, window.spread, group), x, w)
    return s.g(Transpose(tuple(map(dims.output.index, range(rank)))), y)


def _laid(s: Site, x: Value, window: Window) -> Value:
    """Return x[N, C, …] with zeros between neighbours, without what negative edges cut off."""
    if max(window.base, default=1) > 1:
        x = _between(s, x, window.base)
    if min((n for e in window.edges for n in e), default=0) < 0:
        low, high = zip((0, 0), (0, 0), *window.edges, strict=True)
        x = trimmed(s, x, low, high)
    return x


def _between(s: Site, x: Value, base: Sequence[int]) -> Value:
    """Return x with zeros between neighbours."""
    if x.type.dtype in FLOATS:
        return s.g(Dilate((1, 1, *base)), x)
    zero = s.full(0, x.type.dtype, ())
    for i, b in enumerate(base):
        x = spread(s, x, zero, 2 + i, b - 1)
    return x


def _grouped(s: Site, x: Value, w: Value) -> tuple[Value, Value, int]:
    """Return operands and the number of groups; parts of a batch become groups of channels."""
    features, batches = s.counts("feature_group_count", "batch_group_count")
    if features > 1 and batches > 1:
        raise s.wrong(
            f"feature_group_count is {features} and batch_group_count is {batches}, "
            "expected 1 for one of them"
        )
    if batches == 1:
        return x, w, features
    n, (_, c, *rest) = fixed(x.type.shape[0]), x.type.shape
    if n % batches:
        raise s.wrong(f"batch_group_count is {batches}, expected a divisor of the batch size {n}")
    apart = s.reshaped(x, (batches, n // batches, c, *rest))
    order = (1, 0, *range(2, apart.type.rank))
    joined = s.reshaped(s.g(Transpose(order), apart), (n // batches, batches * c, *rest))
    return joined, w, batches
