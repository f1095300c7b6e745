"""Converters that move elements: shapes, permutations, joining, repeating, turning round."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.frontends import movement
from alpenglow.frontends.movement import pieces, tiled, turned_round
from alpenglow.frontends.nhwc import channels_first, channels_last
from alpenglow.frontends.presume import Needed, presume
from alpenglow.frontends.shapes import filled_in
from alpenglow.frontends.tflite.activate import activated
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.dims import Dim, is_open, known
from alpenglow.ir.graph import Value
from alpenglow.ir.types import width
from alpenglow.ops.elementwise.select import BitCast
from alpenglow.ops.tensor.movement import Concat, Transpose, stretch
from alpenglow.ops.tensor.order import ReverseSequence


@on("RESHAPE", "ReshapeOptions", moves=True)
def reshape(s: Site) -> Made:
    """The shape is an operand, or else an option, where [0] is the shape without axes."""
    if s.optional(1) is not None:
        return reshaped(s, s.input(0), s.dims(1))
    wanted = s.option("new_shape")
    return reshaped(s, s.input(0), () if wanted == (0,) else wanted)


def reshaped(s: Site, x: Value, wanted: Sequence[Dim]) -> Value:
    """Return x in the shape `wanted`, in which -1 takes what is left."""
    if wanted.count(-1) > 1 or any(known(d) and d < -1 for d in wanted):
        raise s.wrong(f"new_shape is {tuple(wanted)}, expected at most one -1 and no other "
                      "negative entry")  # fmt: skip
    return s.reshaped(x, filled_in(s.kind, x.type, wanted))


@on("SQUEEZE", "SqueezeOptions", moves=True)
def squeeze(s: Site) -> Made:
    """Axes of extent 1 go: those that are listed, or all."""
    x = s.input(0)
    shape = x.type.shape
    if s.option("squeeze_dims"):
        gone = set(s.axes(s.option("squeeze_dims"), len(shape)))
    elif all(map(known, shape)):
        gone = {i for i, d in enumerate(shape) if d == 1}
    else:
        raise Needed("")
    for i in gone:
        if not presume(shape[i] - 1, "=="):
            raise s.wrong(f"squeeze_dims has axis {i} of {x.type}, expected dimension 1 there")
    return s.reshaped(x, [d for i, d in enumerate(shape) if i not in gone])


@on("EXPAND_DIMS", moves=True)
def expand_dims(s: Site) -> Made:
    x = s.input(0)
    axis = s.axis(s.number(1), x.type.rank + 1)
    return s.reshaped(x, (*x.type.shape[:axis], 1, *x.type.shape[axis:]))


@on("TRANSPOSE", moves=True)
def transpose(s: Site) -> Made:
    x = s.input(0)
    return s.g(Transpose(tuple(s.axis(a, x.type.rank) for a in s.ints(1))), x)


@on("CONCATENATION", "ConcatenationOptions")
def concatenation(s: Site) -> Made:
    return activated(s, joined(s, s.required()))


def joined(s: Site, xs: Sequence[Value]) -> Value:
    """Return values put one behind the other along the axis that is an option."""
    first, *others = xs
    axis = s.axis(s.option("axis"), first.type.rank)
    return s.g(Concat(axis), first, *(beside(s, v, first, axis) for v in others))


def beside(s: Site, x: Value, first: Value, axis: int) -> Value:
    """Return x with the extents of another operand except on one axis.

    Open extents are presumed to be those that they must be.
    """
    if x.type.rank != first.type.rank:
        raise s.wrong(f"an operand is {x.type}, expected rank {first.type.rank} as operand 0")
    shape: list[Dim] = list(x.type.shape)
    for i, (d, wanted) in enumerate(zip(x.type.shape, first.type.shape, strict=True)):
        if i != axis and is_open(d - wanted) and presume(d - wanted, "=="):
            shape[i] = wanted
    return s.reshaped(x, shape)


@on("PACK", "PackOptions", moves=True)
def pack(s: Site) -> Made:
    """Operands are put side by side along a new axis."""
    xs = s.required()
    x = s.input(0).type
    axis = s.axis(s.option("axis"), x.rank + 1)
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    if any(v.type.rank != x.rank for v in xs) or len(xs) != s.option("values_count"):
        raise s.wrong(f"operands are {', '.join(str(v.type) for v in xs)}, "
                      f"expected {s.option('values_count')} of one shape")  # fmt: skip
    if any(v.type != x for v in xs):
        xs = s.broadcast(*xs)
    return s.g(Concat(axis), *(s.reshaped(v, shape) for v in xs))


@on("UNPACK", "UnpackOptions", moves=True)
def unpack(s: Site) -> Made:
    x = s.input(0)
    axis = s.axis(s.option("axis"), x.type.rank)
    count = s.option("num")
    if count != len(s.step.outputs) or not presume(x.type.shape[axis] - count, "=="):
        raise s.wrong(f"num is {count}, expected the number of results, {len(s.step.outputs)}, "
                      f"and the size of axis {axis} of {x.type}")  # fmt: skip
    kept = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
    return [s.reshaped(part, kept) for part in pieces(s.g, x, axis, (1,) * count)]


@on("SPLIT", "SplitOptions", moves=True)
def split(s: Site) -> Made:
    x, count = s.input(1), s.option("num_splits")
    axis = s.axis(s.number(0), x.type.rank)
    extent = x.type.shape[axis]
    if count < 1 or count != len(s.step.outputs) or not presume(extent % count, "=="):
        raise s.wrong(f"num_splits is {count}, expected the number of results, "
                      f"{len(s.step.outputs)}, and a divisor of axis {axis} of {x.type}")
    return pieces(s.g, x, axis, (extent // count,) * count)


@on("SPLIT_V", "SplitVOptions", moves=True)
def split_v(s: Site) -> Made:
    """One of the sizes may be -1, for what is left."""
    x, sizes = s.input(0), list(s.dims(1))
    axis = s.axis(s.number(2), x.type.rank)
    total: Dim = sum((d for d in sizes if d != -1), start=0)
    misfit = s.wrong(
        f"size_splits is {tuple(sizes)}, expected {len(s.step.outputs)} entries, at least 0 or one "
        f"-1, whose sum is the size of axis {axis} of {x.type}"
    )
    if sizes.count(-1) == 1:
        rest = x.type.shape[axis] - total
        sizes[sizes.index(-1)] = rest
        total = x.type.shape[axis]
        if not presume(rest, ">="):
            raise misfit
    negative = any(known(d) and d < 0 for d in sizes)
    if (
        negative
        or len(sizes) != len(s.step.outputs)
        or not presume(total - x.type.shape[axis], "==")
    ):
        raise misfit
    return pieces(s.g, x, axis, sizes)


@on("TILE", moves=True)
def tile(s: Site) -> Made:
    return tiled(s.g, s.kind, s.input(0), s.dims(1))


@on("BROADCAST_TO", moves=True)
def broadcast_to(s: Site) -> Made:
    return stretch(s.g, s.input(0), s.dims(1))


@on("REVERSE_V2", moves=True)
def reverse(s: Site) -> Made:
    x = s.input(0)
    return turned_round(s.g, x, s.axes(s.ints(1), x.type.rank))


@on("REVERSE_SEQUENCE", "ReverseSequenceOptions", moves=True)
def reverse_sequence(s: Site) -> Made:
    x = s.input(0)
    time, batch = (s.axis(s.option(n), x.type.rank) for n in ("seq_dim", "batch_dim"))
    lengths = s.within(s.input(1), 0, x.type.shape[time], "a sequence length")
    return s.g(ReverseSequence(batch, time), x, lengths)


@on("SPACE_TO_DEPTH", "SpaceToDepthOptions", moves=True)
def space_to_depth(s: Site) -> Made:
    x, size = s.rank(0, 4), block_size(s)
    if not all(presume(d % size, "==") for d in x.type.shape[1:3]):
        raise s.wrong(f"block_size is {size}, expected a divisor of axes 1 and 2 of {x.type}")
    return channels_last(s.g, movement.space_to_depth(s.g, channels_first(s.g, x), size, True))


@on("DEPTH_TO_SPACE", "DepthToSpaceOptions", moves=True)
def depth_to_space(s: Site) -> Made:
    x, size = s.rank(0, 4), block_size(s)
    if not presume(x.type.shape[3] % (size * size), "=="):
        raise s.wrong(f"block_size is {size}, expected its square to divide axis 3 of {x.type}")
    return channels_last(s.g, movement.depth_to_space(s.g, channels_first(s.g, x), size, True))


def block_size(s: Site) -> int:
    """Return the extent of blocks; raise ModelError unless it is positive."""
    size = int(s.option("block_size"))
    if size < 1:
        raise s.wrong(f"block_size is {size}, expected at least 1")
    return size


@on("BITCAST")
def bitcast(s: Site) -> Made:
    """The bits of elements read as another type; narrower ones are a last axis."""
    x, to = s.input(0), s.result_dtype()
    if width(to) != width(x.type.dtype):
        raise s.unsupported(f"conversion of {x.type.dtype} to {to}", "dtypes of the same width")
    return s.g(BitCast(to), x)
