"""Converters for operators that move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends import movement
from alpenglow.frontends.movement import permuted, pieces, sliced, turned_round
from alpenglow.frontends.presume import fixed
from alpenglow.frontends.torch.symbols import is_untold
from alpenglow.frontends.torch.table import Made, Site, axis_of, number, on
from alpenglow.ir.dims import Dim, is_open, known, larger, names, natural
from alpenglow.ir.graph import Value
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Transpose


@on("aten.view.default", "aten._unsafe_view.default", "aten.view_copy.default",
    "aten.view_as.default", "aten.reshape.default", "aten.reshape_as.default",
    "aten.flatten.using_ints", "aten.unflatten.int", "aten.ravel.default",
    "aten.unsqueeze.default", "aten.unsqueeze_copy.default", "aten.squeeze.default",
    "aten.squeeze_copy.default", "aten.squeeze.dim", "aten.squeeze_copy.dim",
    "aten.squeeze.dims", "aten.squeeze_copy.dims")  # fmt: skip
def reshape(
    s: Site, x: Value, size: Sequence[Dim] = (), shape: Sequence[Dim] = (),
    other: Value | None = None, dim: int | Sequence[int] = 0, sizes: Sequence[Dim] = (),
    start_dim: int = 0, end_dim: int = -1,
) -> Made:  # fmt: skip
    """Reshape to the shape that PyTorch states for the result."""
    return s.reshaped(x, s.result.shape)


@on("aten.permute.default", "aten.permute_copy.default")
def permute(s: Site, x: Value, dims: Sequence[int]) -> Made:
    return permuted(s.g, x, [axis_of(d, x.type.rank) for d in dims])


@on("aten.transpose.int", "aten.transpose_copy.int", "aten.swapaxes.default",
    "aten.swapdims.default")  # fmt: skip
def transpose(s: Site, x: Value, dim0: int, dim1: int) -> Made:
    if not x.type.rank:
        return x
    perm = list(range(x.type.rank))
    a, b = axis_of(dim0, x.type.rank), axis_of(dim1, x.type.rank)
    perm[a], perm[b] = perm[b], perm[a]
    return permute(s, x, perm)


@on("aten.t.default", "aten.t_copy.default")
def t(s: Site, x: Value) -> Made:
    return s.g(Transpose((1, 0)), x) if x.type.rank == 2 else x


@on("aten.expand.default", "aten.expand_copy.default", "aten.expand_as.default",
    "aten.broadcast_to.default")  # fmt: skip
def expand(
    s: Site, x: Value, size: Sequence[Dim] = (), implicit: bool = False, other: Value | None = None
) -> Made:
    return s.spread(x, s.result.shape)


@on("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(
    s: Site, x: Value, dim: int = 0, start: Dim | None = None, end: Dim | None = None,
    step: int = 1,
) -> Made:  # fmt: skip
    axis = axis_of(dim, x.type.rank)
    extent, size = x.type.shape[axis], s.result.shape[axis]
    first = begun(extent, start)
    if any(map(is_untold, names(size))):
        size = cut(extent, first, end, step)
    if step == 1 and size == extent:  # as long as the axis, it is all of it
        return x
    return sliced(s.g, x, axis, first, size, step)


def begun(extent: Dim, start: Dim | None) -> Dim:
    """Return the first index of a slice of an axis, counted from the front."""
    first: Dim = 0 if start is None else start
    if known(first) and known(extent):
        return min(max(extent + first, 0) if first < 0 else first, extent)
    if natural(first * -1) and first != 0:
        return larger(extent + first, 0)
    return first


def cut(extent: Dim, first: Dim, end: Dim | None, step: int) -> Dim:
    """Return how long a slice is whose ends are data, which must be known by now."""
    last = extent if end is None else end
    extent, first, last = fixed(extent), fixed(first), fixed(last)
    last = max(extent + last, 0) if last < 0 else min(last, extent)
    return (max(last - first, 0) + step - 1) // step


@on("aten.select.int", "aten.select_copy.int")
def select(s: Site, x: Value, dim: int, index: Dim) -> Made:
    axis = axis_of(dim, x.type.rank)
    start = x.type.shape[axis] + index if known(index) and index < 0 else index
    return s.reshaped(sliced(s.g, x, axis, start, 1), s.result.shape)


@on("aten.split_with_sizes.default", "aten.split_with_sizes_copy.default", "aten.split.sizes")
def split_with_sizes(s: Site, x: Value, split_sizes: Sequence[Dim], dim: int = 0) -> Made:
    return pieces(s.g, x, axis_of(dim, x.type.rank), split_sizes)


@on("aten.split.Tensor", "aten.split_copy.Tensor")
def split(s: Site, x: Value, split_size: int, dim: int = 0) -> Made:
    axis = axis_of(dim, x.type.rank)
    extent = number(x.type.shape[axis])
    sizes = [min(split_size, extent - i) for i in range(0, extent, max(split_size, 1))] or [0]
    return split_with_sizes(s, x, sizes, dim)


@on("aten.unbind.int", "aten.unbind_copy.int")
def unbind(s: Site, x: Value, dim: int = 0) -> Made:
    axis = axis_of(dim, x.type.rank)
    shape = x.type.shape[:axis] + x.type.shape[axis + 1 :]
    return [s.reshaped(sliced(s.g, x, axis, i, 1), shape) for i in range(s.results)]


@on("aten.cat.default")
def cat(s: Site, tensors: Sequence[Value], dim: int = 0) -> Made:
    # PyTorch concatenates tensors of shape (0,) with any others.
    kept = [v for v in tensors if v.type.shape != (0,) or s.result.rank == 1]
    if not kept:
        raise ModelError("tensors is empty, expected at least one tensor")
    values = [s.cast(v, s.result.dtype) for v in kept]
    return values[0] if len(values) == 1 else s.g(Concat(axis_of(dim, s.result.rank)), *values)


@on("aten.stack.default")
def stack(s: Site, tensors: Sequence[Value], dim: int = 0) -> Made:
    axis = axis_of(dim, s.result.rank)
    shape = (*s.result.shape[:axis], 1, *s.result.shape[axis + 1 :])
    values = [s.reshaped(s.cast(v, s.result.dtype), shape) for v in tensors]
    return s.g(Concat(axis), *values)


@on("aten.flip.default")
def flip(s: Site, x: Value, dims: Sequence[int]) -> Made:
    return turned_round(s.g, x, [axis_of(d, x.type.rank) for d in dims] if x.type.rank else ())


@on("aten.constant_pad_nd.default")
def constant_pad(s: Site, x: Value, pad: Sequence[Dim], value: float = 0) -> Made:
    value = float(bool(value)) if x.type.dtype == "bool" else value
    before, after = amounts(pad, x.type.rank)
    if any(map(is_open, (*before, *after))):
        return extended(s, x, before, after, value)
    return s.g(Pad(tuple(map(int, before)), tuple(map(int, after)), value=value), x)


def extended(
    s: Site, x: Value, before: Sequence[Dim], after: Sequence[Dim], value: float
) -> Value:  # fmt: skip
    """Return x between elements of a value, as many as extents say, which are not negative."""
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        if not natural(low) or not natural(high):
            raise UnsupportedError(f"pad is ({low}, {high}), expected no negative dimension")
        shape = x.type.shape
        parts = [s.filled(value, x.type.with_shape((*shape[:axis], n, *shape[axis + 1 :])))
                 for n in (low, high)]  # fmt: skip
        pieces = [v for v, n in ((parts[0], low), (x, 1), (parts[1], high)) if n != 0]
        x = x if len(pieces) == 1 else s.g(Concat(axis), *pieces)
    return x


def amounts(pad: Sequence[Dim], rank: int) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Return amounts before and after each axis; PyTorch lists pairs from the last axis on."""
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for i in range(len(pad) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return tuple(before), tuple(after)


@on("aten.repeat.default")
def repeat(s: Site, x: Value, repeats: Sequence[Dim]) -> Made:
    shape = (1,) * (len(repeats) - x.type.rank) + x.type.shape
    apart = [d for pair in zip((1,) * len(shape), shape, strict=True) for d in pair]
    wide = [d for pair in zip(repeats, shape, strict=True) for d in pair]
    return s.reshaped(s.g(Broadcast(tuple(wide)), s.g(Reshape(tuple(apart)), x)), s.result.shape)


@on("aten.pixel_shuffle.default")
def pixel_shuffle(s: Site, x: Value, upscale_factor: int) -> Made:
    return movement.depth_to_space(s.g, x, upscale_factor, False)


@on("aten.pixel_unshuffle.default")
def pixel_unshuffle(s: Site, x: Value, downscale_factor: int) -> Made:
    return movement.space_to_depth(s.g, x, downscale_factor, False)


@on("aten.channel_shuffle.default", "aten.native_channel_shuffle.default")
def channel_shuffle(s: Site, x: Value, groups: int) -> Made:
    batch, channels, *rest = x.type.shape
    apart = s.g(Reshape((batch, groups, channels // groups, *rest)), x)
    perm = (0, 2, 1, *range(3, apart.type.rank))
    return s.reshaped(s.g(Transpose(perm), apart), x.type.shape)
