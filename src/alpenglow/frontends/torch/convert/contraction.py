"""Converters for products of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.frontends.numbers import apply
from alpenglow.frontends.torch.promote import Number
from alpenglow.frontends.torch.table import Made, Site, element, on
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import HALVES
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.product import contraction
from alpenglow.ops.reduction.reduction import ReduceSum, as_type
from alpenglow.ops.tensor.movement import Transpose


def product_of(s: Site, x: Value, y: Value) -> Value:
    """Return the product of matrices in their own element type."""
    return apply(s.g, contraction.MatMul(), x, y)


def sums_of_product(s: Site, x: Value, y: Value) -> Value:
    """Return the product of matrices as it is summed: of halves in f32, not rounded yet."""
    if x.type.dtype in HALVES:
        return s.g(contraction.MatMul(wide=True), x, y)
    return product_of(s, x, y)


@on("aten.mm.default", "aten.bmm.default")
def mm(s: Site, x: Value, mat2: Value) -> Made:
    return product_of(s, x, mat2)


@on("aten.addmm.default", "aten.baddbmm.default")
def addmm(s: Site, x: Value, mat1: Value, mat2: Value, beta: Number = 1, alpha: Number = 1) -> Made:
    """beta x + alpha a b; of halves it is rounded once, at the end."""
    y = plus(s, x, sums_of_product(s, mat1, mat2), beta, alpha)
    return as_type(s.g, y, mat1.type.dtype)


@on("aten.addbmm.default")
def addbmm(
    s: Site, x: Value, batch1: Value, batch2: Value, beta: Number = 1, alpha: Number = 1
) -> Made:
    """The sum of the products is one product of matrices that lie side by side."""
    count, rows, inner = batch1.type.shape
    flat = (count * inner,)
    left = s.reshaped(s.g(Transpose((1, 0, 2)), batch1), (rows, *flat))
    right = s.reshaped(batch2, (*flat, batch2.type.shape[2]))
    return addmm(s, x, left, right, beta, alpha)


@on("aten.mv.default")
def mv(s: Site, x: Value, vec: Value) -> Made:
    return s.reshaped(product_of(s, x, column(s, vec)), s.result.shape)


@on("aten.addmv.default")
def addmv(s: Site, x: Value, mat: Value, vec: Value, beta: Number = 1, alpha: Number = 1) -> Made:
    y = s.reshaped(sums_of_product(s, mat, column(s, vec)), s.result.shape)
    return as_type(s.g, plus(s, x, y, beta, alpha), mat.type.dtype)


def column(s: Site, vec: Value) -> Value:
    """Return a vector as a matrix of one column."""
    return s.reshaped(vec, (*vec.type.shape, 1))


@on("aten.dot.default")
def dot(s: Site, x: Value, tensor: Value) -> Made:
    row = s.reshaped(x, (1, *x.type.shape))
    return s.reshaped(product_of(s, row, column(s, tensor)), ())


def plus(s: Site, x: Value, y: Value, beta: Number, alpha: Number) -> Value:
    """Return beta x + alpha y; x counts for nothing where beta is 0, not even its NaN.

    Of numbers for integers the fractions go, as in PyTorch: 0.6 x is nothing.
    """
    alpha, beta = element(alpha, y.type.dtype), element(beta, y.type.dtype)
    if alpha != 1:
        y = apply(s.g, Mul(), y, s.filled(alpha, y.type))
    if beta == 0:
        return y
    (stretched,) = s.broadcast(s.cast(x, y.type.dtype), shape=y.type.shape)
    if beta != 1:
        stretched = apply(s.g, Mul(), stretched, s.filled(beta, y.type))
    return apply(s.g, Add(), stretched, y)


@on("aten.linear.default")
def linear(s: Site, input: Value, weight: Value, bias: Value | None = None) -> Made:
    """Weights without axes of outputs are one output."""
    single = weight.type.rank == 1
    w = s.reshaped(weight, (1, *weight.type.shape)) if single else weight
    rows = s.reshaped(input, (product(input.type.shape[:-1]), input.type.shape[-1]))
    y = s.reshaped(sums_of_product(s, rows, s.g(Transpose((1, 0)), w)), s.result.shape)
    return as_type(s.g, y if bias is None else plus(s, bias, y, 1, 1), s.result.dtype)


@on("aten.matmul.default")
def matmul(s: Site, x: Value, other: Value) -> Made:
    """NumPy's rules: vectors are rows on the left and columns on the right, batches broadcast."""
    a = s.reshaped(x, (1, *x.type.shape)) if x.type.rank == 1 else x
    b = s.reshaped(other, (*other.type.shape, 1)) if other.type.rank == 1 else other
    rows, inner, columns = a.type.shape[-2], a.type.shape[-1], b.type.shape[-1]
    if b.type.rank == 2:
        flat = s.reshaped(a, (product(a.type.shape[:-1]), inner))
        return s.reshaped(product_of(s, flat, b), s.result.shape)
    left = s.result.shape[: s.result.rank - (x.type.rank > 1) - (other.type.rank > 1)]
    y = product_of(s, s.spread(a, (*left, rows, inner)), s.spread(b, (*left, inner, columns)))
    return s.reshaped(y, s.result.shape)


@on("aten.bilinear.default")
def bilinear(
    s: Site, input1: Value, input2: Value, weight: Value, bias: Value | None = None
) -> Made:
    """Products of all pairs of features are one row, which the weights multiply."""
    outputs, first, second = weight.type.shape
    rows, dtype = product(input1.type.shape[:-1]), weight.type.dtype
    wide = "f32" if dtype in HALVES else dtype
    pairs = (rows, first, second)
    left = s.spread(s.reshaped(s.cast(input1, wide), (rows, first, 1)), pairs)
    right = s.spread(s.reshaped(s.cast(input2, wide), (rows, 1, second)), pairs)
    features = s.reshaped(apply(s.g, Mul(), left, right), (rows, first * second))
    columns = s.g(Transpose((1, 0)), s.reshaped(s.cast(weight, wide), (outputs, first * second)))
    y = s.reshaped(product_of(s, features, columns), s.result.shape)
    return s.cast(y if bias is None else plus(s, bias, y, 1, 1), dtype)


@on("aten._trilinear.default")
def trilinear(
    s: Site, i1: Value, i2: Value, i3: Value, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1,
) -> Made:  # fmt: skip
    """The sum over some axes of the product of three tensors, each with new axes of its own."""
    rank = i1.type.rank + len(expand1)
    dtype = s.result.dtype
    wide = []
    for x, axes in ((i1, expand1), (i2, expand2), (i3, expand3)):
        rest = iter(x.type.shape)
        y = s.reshaped(x, [1 if a in axes else next(rest) for a in range(rank)])
        wide.append(s.cast(y, "f32" if dtype in HALVES else dtype))
    shape = tuple(next((v.type.shape[a] for v in wide if v.type.shape[a] != 1), 1)
                  for a in range(rank))  # fmt: skip
    a, b, c = s.broadcast(*wide, shape=shape)
    y = apply(s.g, Mul(), apply(s.g, Mul(), a, b), c)
    y = apply(s.g, ReduceSum(tuple(sumdim), False), y)
    return s.cast(s.reshaped(y, s.result.shape), dtype)
