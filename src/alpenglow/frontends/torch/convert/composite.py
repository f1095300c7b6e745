"""Converters for operators that PyTorch writes with others before it runs them.

A ``.pt2`` file has these if it was saved as `torch.export.export` made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.movement import sliced
from alpenglow.frontends.numbers import apply, wide
from alpenglow.frontends.torch.convert.movement import (
    constant_pad,
    repeat,
    split_with_sizes,
    transpose,
)
from alpenglow.frontends.torch.convert.padding import extended_by
from alpenglow.frontends.torch.convert.reduction import norm
from alpenglow.frontends.torch.table import Made, Site, axes_of, axis_of, number, on
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import COMPLEX
from alpenglow.ops.elementwise.arithmetic import Abs, Div, Mul, Sub
from alpenglow.ops.elementwise.comparison import Greater
from alpenglow.ops.elementwise.logarithm import Log1p
from alpenglow.ops.elementwise.logic import BitXor
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.ops.product.einsum import Einsum, explicit
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Transpose

# ── what is random in training alone ──


@on("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default",
    "aten.feature_alpha_dropout.default")  # fmt: skip
def dropout(s: Site, input: Value, p: float, train: bool) -> Made:
    if train and p > 0:
        raise UnsupportedError(f"p is {p} and train is True, expected train=False (module.eval())")
    return input


# ── in another order ──


@on("aten.numpy_T.default")
def reversed_axes(s: Site, x: Value) -> Made:
    return s.g(Transpose(tuple(reversed(range(x.type.rank)))), x) if x.type.rank > 1 else x


@on("aten.mT.default")
def transposed(s: Site, x: Value) -> Made:
    return transpose(s, x, -1, -2)


@on("aten.movedim.int", "aten.movedim.intlist")
def movedim(
    s: Site, x: Value, source: int | Sequence[int], destination: int | Sequence[int]
) -> Made:  # fmt: skip
    rank = x.type.rank
    taken, put = ([axis_of(a, rank) for a in ([axes] if isinstance(axes, int) else axes)]
                  for axes in (source, destination))  # fmt: skip
    perm = [i for i in range(rank) if i not in taken]
    for to, of in sorted(zip(put, taken, strict=True)):
        perm.insert(to, of)
    return s.g(Transpose(tuple(perm)), x) if rank else x


# ── parts ──


@on("aten.narrow.default")
def narrow(s: Site, x: Value, dim: int, start: Dim, length: Dim) -> Made:
    axis = axis_of(dim, x.type.rank)
    first = x.type.shape[axis] + start if number(start) < 0 else start
    return sliced(s.g, x, axis, first, length)


@on("aten.chunk.default")
def chunk(s: Site, x: Value, chunks: int, dim: int = 0) -> Made:
    extent = number(x.type.shape[axis_of(dim, x.type.rank)])
    size = max(-(-extent // chunks), 1)
    parts = [min(size, extent - i) for i in range(0, extent, size)]
    return split_with_sizes(s, x, parts or [0] * chunks, dim)


@on("aten.tensor_split.sections")
def tensor_split(s: Site, x: Value, sections: int, dim: int = 0) -> Made:
    least, more = divmod(number(x.type.shape[axis_of(dim, x.type.rank)]), sections)
    return split_with_sizes(s, x, [least + (i < more) for i in range(sections)], dim)


@on("aten.tensor_split.indices")
def tensor_split_at(s: Site, x: Value, indices: Sequence[Dim], dim: int = 0) -> Made:
    axis = axis_of(dim, x.type.rank)
    extent = number(x.type.shape[axis])
    ends = []
    for i in indices:
        at = number(i)
        ends.append(min(max(extent + at if at < 0 else at, 0), extent))
    pairs = pairwise([0, *ends, extent])
    return [sliced(s.g, x, axis, min(a, b), max(b - a, 0)) for a, b in pairs]


# ── more of the same ──


@on("aten.tile.default")
def tile(s: Site, x: Value, dims: Sequence[Dim]) -> Made:
    return repeat(s, x, [1] * (x.type.rank - len(dims)) + list(dims))


@on("aten.repeat_interleave.self_int")
def repeat_interleave(
    s: Site, x: Value, repeats: Dim, dim: int | None = None, output_size: Dim | None = None
) -> Made:  # fmt: skip
    if dim is None:
        x = s.reshaped(x, (product(x.type.shape),))
    axis, shape = axis_of(dim or 0, max(x.type.rank, 1)), x.type.shape or (1,)
    before, after = shape[: axis + 1], shape[axis + 1 :]
    apart = s.g(Reshape((*before, 1, *after)), x)
    return s.reshaped(s.g(Broadcast((*before, repeats, *after)), apart), s.result.shape)


@on("aten.meshgrid.default", "aten.meshgrid.indexing")
def meshgrid(s: Site, tensors: Sequence[Value], indexing: str = "ij") -> Made:
    places = list(range(len(tensors)))
    if indexing == "xy" and len(tensors) > 1:
        places[:2] = 1, 0
    results = []
    for i, (v, place) in enumerate(zip(tensors, places, strict=True)):
        shape: list[Dim] = [1] * len(tensors)
        shape[place] = product(v.type.shape)
        results.append(s.spread(s.reshaped(v, shape), s.stated(i).shape))
    return results


@on("aten.pad.default")
def pad(
    s: Site, x: Value, pad: Sequence[Dim], mode: str = "constant", value: float | None = None
) -> Made:  # fmt: skip
    if mode == "constant":
        return constant_pad(s, x, pad, 0 if value is None else value)
    ours = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in ours:
        raise UnsupportedError(f"mode is '{mode}', expected one of constant, {', '.join(ours)}")
    return extended_by(s, x, pad, ours[mode])


# ── arithmetic ──


@on("aten.square.default")
def square(s: Site, x: Value) -> Made:
    return s.apply(Mul(), x, x, dtype=s.result.dtype)


@on("aten.softplus.default")
def softplus(s: Site, x: Value, beta: float = 1, threshold: float = 20) -> Made:
    """log(1 + exp(beta x)) / beta; x itself where beta x is past the threshold."""
    y = s.cast(x, wide(x.type.dtype))
    steep = s.apply(Mul(), y, float(beta))
    above = s.g(Greater(), steep, s.filled(float(threshold), steep.type))
    # The slope of exp may be infinite past the threshold, and 0 times that is NaN.
    below = s.g(Where(), above, s.filled(0, steep.type), steep)
    low = s.apply(Div(), s.g(Log1p(), s.g(Exp(), below)), float(beta))
    return s.cast(s.g(Where(), above, y, low), x.type.dtype)


@on("aten.einsum.default")
def einsum(
    s: Site, equation: str, tensors: Sequence[Value], path: Sequence[int] | None = None
) -> Made:  # fmt: skip
    op = Einsum(explicit(equation, [v.type.rank for v in tensors]))
    return s.g(op, *(s.cast(v, s.result.dtype) for v in tensors))


@on("aten.diff.default")
def diff(
    s: Site, x: Value, n: int = 1, dim: int = -1, prepend: Value | None = None,
    append: Value | None = None,
) -> Made:  # fmt: skip
    axis = axis_of(dim, x.type.rank)
    parts = [s.cast(v, s.result.dtype) for v in (prepend, x, append) if v is not None]
    y = parts[0] if len(parts) == 1 else s.g(Concat(axis), *parts)
    for _ in range(n):
        last = y.type.shape[axis] - 1
        if isinstance(last, int) and last < 1:
            return s.filled(0, s.result)
        op = BitXor() if y.type.dtype == "bool" else Sub()
        y = s.g(op, sliced(s.g, y, axis, 1, last), sliced(s.g, y, axis, 0, last))
    return y


@on("aten.linalg_vector_norm.default")
def vector_norm(
    s: Site, x: Value, ord: float = 2, dim: Sequence[int] | int | None = None,
    keepdim: bool = False, dtype: str | None = None,
) -> Made:  # fmt: skip
    axes = axes_of(dim, x.type.rank)
    lengths = apply(s.g, Abs(), x) if x.type.dtype in COMPLEX else x
    y = norm(s, last(s, s.cast(lengths, wide(s.result.dtype)), axes), float(ord))
    return s.reshaped(s.cast(y, s.result.dtype), s.result.shape)


def last(s: Site, x: Value, axes: Sequence[int]) -> Value:
    """Return x with some axes together as the last one."""
    kept = [i for i in range(x.type.rank) if i not in axes]
    perm = (*kept, *axes)
    y = x if perm == tuple(range(x.type.rank)) else s.g(Transpose(perm), x)
    shape = x.type.shape
    return s.reshaped(y, (*(shape[i] for i in kept), product([shape[i] for i in axes])))


@on("aten._weight_norm.default")
def weight_norm(s: Site, v: Value, g: Value, dim: int = 0) -> Made:
    """v over its norm by `dim`, times g."""
    kept = () if dim == -1 else (axis_of(dim, v.type.rank),)
    axes = tuple(i for i in range(v.type.rank) if i not in kept)
    y = s.cast(v, wide(v.type.dtype))
    lengths = s.reshaped(norm(s, last(s, y, axes), 2.0), g.type.shape)
    factor = s.g(Div(), s.cast(g, y.type.dtype), lengths)
    return s.cast(s.apply(Mul(), y, factor), v.type.dtype)
