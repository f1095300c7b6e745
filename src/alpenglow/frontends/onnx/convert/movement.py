"""Converters for operators that move elements: reshape, transpose, concat, tile, pad, …"""

from __future__ import annotations

from typing import cast

from alpenglow.frontends import movement
from alpenglow.frontends.movement import tiled
from alpenglow.frontends.onnx.table import Made, Site, common_shape, on
from alpenglow.frontends.presume import fixed, presume
from alpenglow.frontends.shapes import filled_in
from alpenglow.frontends.slices import FAR
from alpenglow.ir.dims import Dim, is_open, known, product
from alpenglow.ir.graph import Value
from alpenglow.ops.tensor.movement import Concat, Pad, Reshape, Slice, Transpose, Trilu, stretch
from alpenglow.ops.tensor.order import ReverseSequence


@on("Reshape")
def reshape_attribute(s: Site) -> Made:
    return reshaped(s, s.needed("shape"))


@on("Reshape", since=5)
def reshape(s: Site) -> Made:
    return reshaped(s, s.dims(1))


def reshaped(s: Site, wanted: tuple[Dim, ...]) -> Value:
    """Return input 0 in the shape `wanted`: 0 keeps an extent, -1 takes what is left."""
    x = s.input(0)
    keep_zero = bool(s.attribute("allowzero", 0))
    shape: list[Dim] = []
    for i, d in enumerate(wanted):
        if d == 0 and not keep_zero:
            if i >= x.type.rank:
                raise s.wrong(f"shape is {wanted}, expected no 0 at {i} for {x.type}")
            d = x.type.shape[i]
        shape.append(d)
    if shape.count(-1) > 1:
        raise s.wrong(f"shape is {wanted}, expected at most one -1")
    if -1 in shape:
        for i, d in enumerate(wanted):
            if d != -1 and not keep_zero and i < x.type.rank and d != x.type.shape[i]:
                presume(d, "!=")  # 0 would copy another extent
    return s.g(Reshape(tuple(filled_in(s.kind, x.type, shape))), x)


@on("Flatten")
def flatten(s: Site) -> Made:
    x = s.input(0)
    axis = s.attribute("axis", 1)
    if not -x.type.rank <= axis <= x.type.rank:
        raise s.wrong(f"axis is {axis}, expected {-x.type.rank} to {x.type.rank}")
    axis += x.type.rank if axis < 0 else 0
    return s.g(Reshape((product(x.type.shape[:axis]), product(x.type.shape[axis:]))), x)


@on("Squeeze")
def squeeze_attribute(s: Site) -> Made:
    return squeezed(s, s.attribute("axes"))


@on("Squeeze", since=13)
def squeeze(s: Site) -> Made:
    return squeezed(s, None if s.optional(1) is None else s.ints(1))


def squeezed(s: Site, axes: tuple[int, ...] | None) -> Value:
    """Return input 0 without `axes`, or without all axes of extent 1 if None."""
    x = s.input(0)
    shape = x.type.shape
    if axes is None:
        gone = {i for i, d in enumerate(shape) if not presume(d - 1, "!=")}
    else:
        gone = set(normal_axes(s, axes, len(shape)))
    for i in gone:
        if known(shape[i]) and shape[i] != 1:
            raise s.wrong(f"axis {i} of {x.type} is {shape[i]}, expected 1")
    return s.g(Reshape(tuple(d for i, d in enumerate(shape) if i not in gone)), x)


@on("Unsqueeze")
def unsqueeze_attribute(s: Site) -> Made:
    return unsqueezed(s, s.needed("axes"))


@on("Unsqueeze", since=13)
def unsqueeze(s: Site) -> Made:
    return unsqueezed(s, s.ints(1))


def unsqueezed(s: Site, axes: tuple[int, ...]) -> Value:
    """Return input 0 with new axes of extent 1 at `axes` of the result."""
    x = s.input(0)
    rank = x.type.rank + len(axes)
    fresh = normal_axes(s, axes, rank)
    old = iter(x.type.shape)
    return s.g(Reshape(tuple(1 if i in fresh else next(old) for i in range(rank))), x)


@on("Transpose")
def transpose(s: Site) -> Made:
    x = s.input(0)
    return s.g(Transpose(s.attribute("perm", tuple(reversed(range(x.type.rank))))), x)


@on("Concat")
def concat(s: Site) -> Made:
    return s.g(Concat(s.attribute("axis", 1)), *s.required())


@on("Identity")
def identity(s: Site) -> Made:
    return s.input(0)


@on("Expand", since=8)
def expand(s: Site) -> Made:
    x = s.input(0)
    return stretch(s.g, x, common_shape("Expand", [x.type.shape, s.dims(1)]))


@on("Tile")
def tile_axis(s: Site) -> Made:
    x = s.input(0)
    # Both may be floats.
    (count,), (axis,) = (tuple(map(int, s.constant(i).reshape(-1))) for i in (1, 2))
    at = normal_axes(s, (axis,), x.type.rank)[0]
    return tiled(s.g, "Tile", x, tuple(count if i == at else 1 for i in range(x.type.rank)))


@on("Tile", since=6)
def tile(s: Site) -> Made:
    return tiled(s.g, "Tile", s.input(0), s.dims(1))


@on("Pad")
def pad_oldest(s: Site) -> Made:
    return padded(s, s.needed("paddings"), s.attribute("value", 0.0))


@on("Pad", since=2)
def pad_attribute(s: Site) -> Made:
    return padded(s, s.needed("pads"), s.attribute("value", 0.0))


@on("Pad", since=11)
def pad(s: Site) -> Made:
    x = s.input(0)
    pads = cast("tuple[int, ...]", s.amounts(1))  # numbers, or what passes for them
    value = 0.0 if s.optional(2) is None else s.constant(2).reshape(-1)[0].item()
    value = float(value) if isinstance(value, bool) else value
    if s.optional(3) is None:
        return padded(s, pads, value)
    axes = normal_axes(s, s.ints(3), x.type.rank)
    if len(pads) != 2 * len(axes):
        raise s.wrong(f"{len(pads)} pads given, expected {2 * len(axes)} for axes {axes}")
    full = [0] * (2 * x.type.rank)
    for i, axis in enumerate(axes):
        full[axis], full[x.type.rank + axis] = pads[i], pads[len(axes) + i]
    return padded(s, tuple(full), value)


def padded(s: Site, pads: tuple[int, ...], value: complex) -> Value:
    """Return input 0 with `pads` elements more before each axis, then after each axis.

    A dynamic amount is fixed to its number if it is negative, and in the modes that repeat
    elements of x.
    """
    x = s.input(0)
    rank, mode = x.type.rank, s.attribute("mode", "constant")
    if len(pads) != 2 * rank:
        raise s.wrong(f"{len(pads)} pads given, expected {2 * rank} for {x.type}")
    before, after = pads[:rank], pads[rank:]
    if isinstance(value, complex):
        if value != 0:
            raise s.refuse(f"padding with {value} is not supported; supported for complex: 0")
        value = 0.0
    if mode == "constant":
        if any(p < 0 for p in pads if is_open(p)):
            before, after = tuple(map(int, before)), tuple(map(int, after))
        return s.g(Pad(before, after, mode, value), x)
    before, after = tuple(map(int, before)), tuple(map(int, after))
    if min(*before, *after, 0) < 0:
        # The other modes repeat what is left after the cut.
        starts = tuple(max(-a, 0) for a in before)
        sizes = tuple(d + min(a, 0) + min(b, 0) for d, a, b in
                      zip(x.type.shape, before, after, strict=True))  # fmt: skip
        x = s.g(Slice(starts, sizes, (1,) * rank), x)
    before, after = tuple(max(a, 0) for a in before), tuple(max(b, 0) for b in after)
    return reflected(s, x, before, after) if mode == "reflect" else s.g(Pad(before, after, mode), x)


def reflected(s: Site, x: Value, before: tuple[int, ...], after: tuple[int, ...]) -> Value:
    """Return x reflected at its ends, and then at the new ones where it is too short for once.

    An open extent is taken to be long enough.
    """
    while True:
        most = [d - 1 if known(d) and d > 1 else max(a, b) for d, a, b in
                zip(x.type.shape, before, after, strict=True)]  # fmt: skip
        first, last = tuple(map(min, before, most)), tuple(map(min, after, most))
        x = s.g(Pad(first, last, "reflect"), x)
        if (first, last) == (before, after):
            return x
        before = tuple(a - b for a, b in zip(before, first, strict=True))
        after = tuple(a - b for a, b in zip(after, last, strict=True))


@on("CenterCropPad", since=18)
def center_crop_pad(s: Site) -> Made:
    x, wanted = s.input(0), s.ints(1)
    rank = x.type.rank
    axes = normal_axes(s, s.attribute("axes", tuple(range(rank))), rank)
    if len(axes) != len(wanted):
        raise s.wrong(f"shape has {len(wanted)} elements, expected {len(axes)} for axes {axes}")
    before, after = [0] * rank, [0] * rank
    for axis, size in zip(axes, wanted, strict=True):
        extent = fixed(x.type.shape[axis])
        more = size - extent
        before[axis] = more // 2 if more > 0 else -(-more // 2)
        after[axis] = more - before[axis]
    return s.g(Pad(tuple(before), tuple(after)), x)


@on("DepthToSpace")
def depth_to_space(s: Site) -> Made:
    x, b = s.input(0), block_size(s)
    c = x.type.shape[1]
    if known(c) and c % (b * b):
        raise s.wrong(f"input has {c} channels, expected a multiple of blocksize² {b * b}")
    return movement.depth_to_space(s.g, x, b, is_depth_first(s))


@on("SpaceToDepth")
def space_to_depth(s: Site) -> Made:
    x, b = s.input(0), block_size(s)
    if any(known(d) and d % b for d in x.type.shape[2:]):
        raise s.wrong(f"input is {x.type}, expected spatial axes in multiples of blocksize {b}")
    return movement.space_to_depth(s.g, x, b, is_depth_first(s))


def is_depth_first(s: Site) -> bool:
    """Return True if channels are places in blocks first; raise ModelError for an unknown mode."""
    mode = s.attribute("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise s.wrong(f"mode is '{mode}', expected DCR or CRD")
    return bool(mode == "DCR")


def block_size(s: Site) -> int:
    """Return the block size of an operator on images; raise ModelError unless it is positive."""
    x, size = s.input(0), int(s.needed("blocksize"))
    if x.type.rank != 4 or size < 1:
        raise s.wrong(f"blocksize is {size} for {x.type}, expected 1 or more for [N,C,H,W]")
    return size


@on("Trilu", since=14)
def trilu(s: Site) -> Made:
    k = 0 if s.optional(1) is None else s.ints(1)[0]
    k = max(-FAR, min(k, FAR))
    return s.g(Trilu(k, bool(s.attribute("upper", 1))), s.input(0))


@on("ReverseSequence", since=10)
def reverse_sequence(s: Site) -> Made:
    batch, time = s.attribute("batch_axis", 1), s.attribute("time_axis", 0)
    x = s.input(0)
    extent = x.type.shape[s.axis(time, x.type.rank)]
    lengths = s.within(s.input(1), 0, extent, "a sequence length")
    return s.g(ReverseSequence(batch, time), x, lengths)


def normal_axes(s: Site, axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return axes counted from the front; raise ModelError if one is out of range or repeated."""
    normal = tuple(a + rank if a < 0 else a for a in axes)
    if any(not 0 <= a < rank for a in normal) or len(set(normal)) != len(normal):
        raise s.wrong(f"axes are {axes}, expected distinct axes of a tensor of rank {rank}")
    return normal
