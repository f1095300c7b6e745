"""Converters that cut and extend tensors: slices, padding, blocks of space as batches."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.frontends.movement import sliced, turned_round
from alpenglow.frontends.presume import fixed, presume
from alpenglow.frontends.slices import FAR, limits
from alpenglow.frontends.tflite.file.schema import MirrorMode
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Clip, Sub
from alpenglow.ops.elementwise.comparison import GreaterOrEqual, Less
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Concat, Pad, Reshape, Slice, Transpose, stretch
from alpenglow.ops.window.conv_transpose import Dilate

MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


@on("SLICE", moves=True)
def slice_(s: Site) -> Made:
    """A size of -1 is what is left."""
    x, begin, size = s.input(0), s.dims(1), s.dims(2)
    if not len(begin) == len(size) == x.type.rank:
        raise s.wrong(f"begin is {begin} and size is {size}, expected {x.type.rank} entries each "
                      f"for {x.type}")  # fmt: skip
    sizes = []
    for d, first, count in zip(x.type.shape, begin, size, strict=True):
        sizes.append(d - first if count == -1 else count)
        within = presume(first, ">=") and presume(sizes[-1], ">=")
        if not within or not presume(d - first - sizes[-1], ">="):
            raise s.wrong(f"begin is {begin} and size is {size}, expected a part of {x.type}; "
                          "size -1 is the rest of an axis")  # fmt: skip
    if tuple(sizes) == x.type.shape:
        return x
    return s.g(Slice(begin, tuple(sizes), (1,) * x.type.rank), x)


@on("STRIDED_SLICE", "StridedSliceOptions", moves=True)
def strided_slice(s: Site) -> Made:
    """Python's slices, with masks for what an entry means (`entries`)."""
    x = s.input(0)
    begin, end, steps = s.dims(1), s.dims(2), s.ints(3)
    if not len(begin) == len(end) == len(steps):
        raise s.wrong(f"begin is {begin}, end is {end} and strides is {steps}, expected as many "
                      "entries in each")  # fmt: skip
    first: list[Dim] = []
    sizes: list[Dim] = []
    strides: list[int] = []
    shape: list[Dim] = []
    axes = iter(x.type.shape)
    for meaning, i in entries(s, len(begin)):
        if meaning == "new":
            shape.append(1)
            continue
        d = next(axes)
        start, count, step = (
            (0, d, 1) if meaning == "all"
            else (place(s, d, masked(s, d, begin[i], i, steps[i])), 1, 1) if meaning == "one"
            else part(s, d, begin[i], end[i], steps[i], i)
        )  # fmt: skip
        first.append(start)
        sizes.append(count)
        strides.append(step)
        if meaning != "one":
            shape.append(count)
    if tuple(sizes) != x.type.shape or set(strides) - {1}:
        x = s.g(Slice(tuple(first), tuple(sizes), tuple(strides)), x)
    return s.reshaped(x, shape)


def entries(s: Site, count: int) -> list[tuple[str, int]]:
    """Return how a slice treats each axis of operand and result, with the number of its entry.

    An axis is a new one, one of which a place is taken, one cut to a part, or left whole.
    """
    _, _, ellipsis, new, one = (s.option(name) for name in MASKS)
    rank = s.input(0).type.rank
    wanted = sum(not (new >> i & 1 or ellipsis >> i & 1) for i in range(count))
    dots = [i for i in range(count) if ellipsis >> i & 1]
    if len(dots) > 1 or wanted > rank:
        raise s.wrong(f"begin has {count} entries, of which {len(dots)} are in ellipsis_mask and "
                      f"{wanted} index an axis, expected at most 1 and {rank}")  # fmt: skip
    listed: list[tuple[str, int]] = []
    for i in range(count):
        if i in dots:
            listed += [("all", i)] * (rank - wanted)
        elif new >> i & 1:
            listed.append(("new", i))
        else:
            listed.append(("one" if one >> i & 1 else "part", i))
    if not dots:
        listed += [("all", count)] * (rank - wanted)
    return listed


def masked(s: Site, extent: Dim, begin: Dim, i: int, step: int) -> Dim:
    """Return the place that entry i takes: LiteRT obeys `begin_mask` there, unlike TensorFlow."""
    if s.option("begin_mask") >> i & 1:
        return 0 if step > 0 else extent - 1
    return begin


def place(s: Site, extent: Dim, at: Dim) -> Dim:
    """Return a place on an axis, counted from the front; raise ModelError if it is outside."""
    first = at + extent if known(at) and at < 0 else at
    if not presume(first, ">=") or not presume(extent - 1 - first, ">="):
        raise s.wrong(f"begin is {at} on an axis, expected {extent * -1} to {extent - 1}")
    return first


def part(s: Site, extent: Dim, begin: Dim, end: Dim, step: int, i: int) -> tuple[Dim, Dim, int]:
    """Return the first element, how many there are, and the step of entry i of a slice."""
    if step == 0:
        raise s.wrong("strides contains 0, expected entries other than 0")
    if s.option("offset"):
        end = begin + end
    if s.option("begin_mask") >> i & 1:
        begin = 0 if step > 0 else FAR
    if s.option("end_mask") >> i & 1:
        end = FAR if step > 0 else -FAR
    first, count = limits(extent, begin, end, step)
    return first, count, step


@on("PAD")
def pad(s: Site) -> Made:
    return padded(s, 0.0)


@on("PADV2")
def pad_v2(s: Site) -> Made:
    value = s.constant(2)
    if value.size != 1:
        raise s.wrong(f"constant_values has {value.size} elements, expected one")
    number = value.reshape(-1)[0].item()
    if float(number) != number and number == number:
        raise s.unsupported(f"constant_values {number}", "integers that are exact in f64")
    return padded(s, number)


def padded(s: Site, value: float) -> Value:
    """Return operand 0 with more elements around it, all of them `value`."""
    x = s.input(0)
    before, after = amounts(s, 1, x.type.rank)
    if not any(before) and not any(after):
        return x
    return s.g(Pad(before, after, "constant", float(value)), x)


def amounts(
    s: Site, i: int, axes: int, name: str = "paddings"
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return integer operand i, pairs of numbers that are not negative, as two lists."""
    if s.input(i).type.shape != (axes, 2):
        raise s.wrong(f"{name} is {s.input(i).type}, expected shape ({axes}, 2)")
    numbers = s.ints(i)
    if min(numbers, default=0) < 0:
        raise s.wrong(f"{name} is {numbers}, expected entries of at least 0")
    return numbers[::2], numbers[1::2]


@on("MIRROR_PAD", "MirrorPadOptions", moves=True)
def mirror_pad(s: Site) -> Made:
    """A mirror at each end: on the last element (REFLECT), or behind it (SYMMETRIC)."""
    x = s.input(0)
    before, after = amounts(s, 1, x.type.rank)
    on_edge = s.choice("mode", MirrorMode) == MirrorMode.REFLECT
    for axis, pair in enumerate(zip(before, after, strict=True)):
        x = mirrored(s, x, axis, pair, int(on_edge))
    return x


def mirrored(s: Site, x: Value, axis: int, more: tuple[int, int], left_out: int) -> Value:
    """Return x with so many elements more at both ends of an axis, seen in a mirror."""
    extent = x.type.shape[axis]
    if any(not presume(extent - left_out - n, ">=") for n in more):
        raise s.wrong(f"paddings is {more} on axis {axis} of {x.type}, "
                      f"expected at most {extent - left_out} each")  # fmt: skip
    ends = []
    for n, start in zip(more, (left_out, extent - left_out - more[1]), strict=True):
        cut = sliced(s.g, x, axis, start, n) if n else None
        ends.append(None if cut is None else turned_round(s.g, cut, (axis,)))
    joined = [v for v in (ends[0], x, ends[1]) if v is not None]
    return s.g(Concat(axis), *joined) if len(joined) > 1 else x


@on("SPACE_TO_BATCH_ND")
def space_to_batch(s: Site) -> Made:
    """Blocks of padded space are taken apart: each place in a block is an image of the batch."""
    return space_to_batch_of(s, 0)


def space_to_batch_of(s: Site, value: float) -> Value:
    """Return the images of blocks of operand 0, padded with a value."""
    x, blocks = s.input(0), s.ints(1)
    count = len(blocks)
    before, after = amounts(s, 2, count)
    check_blocks(s, blocks, x.type.rank - 1 - count)
    x, kept = behind(s, x, count)
    if any(before) or any(after):
        front = (0,) * (1 + len(kept))
        x = s.g(Pad((*front, *before), (*front, *after), "constant", value), x)
    n, spatial = x.type.shape[0], x.type.shape[1 + len(kept) :]
    split: list[Dim] = []
    for d, b in zip(spatial, blocks, strict=True):
        if not presume(d % b, "=="):
            raise s.wrong(f"block_shape is {blocks}, expected divisors of the padded dimensions "
                          f"{tuple(spatial)}")  # fmt: skip
        split += [d // b, b]
    apart = s.g(Reshape((n, *kept, *split)), x)
    at = 1 + len(kept)
    inner, outer = range(at + 1, at + 2 * count, 2), range(at, at + 2 * count, 2)
    moved = s.g(Transpose((*inner, *range(at), *outer)), apart)
    return before_them(s, s.g(Reshape((n * product(blocks), *kept, *split[::2])), moved), count)


@on("BATCH_TO_SPACE_ND", moves=True)
def batch_to_space(s: Site) -> Made:
    """The images of a batch are put together to blocks, and what was padded is cut off."""
    x, blocks = s.input(0), s.ints(1)
    count = len(blocks)
    first, last = amounts(s, 2, count, "crops")
    check_blocks(s, blocks, x.type.rank - 1 - count)
    x, kept = behind(s, x, count)
    n, spatial = x.type.shape[0], x.type.shape[1 + len(kept) :]
    size = product(blocks)
    if not presume(n % size, "=="):
        raise s.wrong(f"block_shape is {blocks}, expected a product that divides the batch of {n}")
    apart = s.g(Reshape((*blocks, n // size, *kept, *spatial)), x)
    at = count + 1 + len(kept)
    turns = [a for i in range(count) for a in (at + i, i)]
    moved = s.g(Transpose((*range(count, at), *turns)), apart)
    wide = [d * b for d, b in zip(spatial, blocks, strict=True)]
    y = s.g(Reshape((n // size, *kept, *wide)), moved)
    sizes = [d - a - b for d, a, b in zip(wide, first, last, strict=True)]
    if not all(presume(d, ">=") for d in sizes):
        raise s.wrong(f"crops is {first} at starts and {last} at ends, expected in all at most "
                      f"the dimensions {tuple(wide)}")  # fmt: skip
    if any(first) or any(last):
        starts = (*[0] * (1 + len(kept)), *first)
        y = s.g(Slice(starts, (n // size, *kept, *sizes), (1,) * y.type.rank), y)
    return before_them(s, y, count)


def behind(s: Site, x: Value, count: int) -> tuple[Value, tuple[Dim, ...]]:
    """Return x with `count` axes behind all but the first, and the extents of the others."""
    rank = x.type.rank
    kept = range(1 + count, rank)
    turned = s.g(Transpose((0, *kept, *range(1, 1 + count))), x)
    return turned, tuple(x.type.shape[a] for a in kept)


def before_them(s: Site, y: Value, count: int) -> Value:
    """Undo the transposition of `behind`."""
    rank = y.type.rank
    return s.g(Transpose((0, *range(rank - count, rank), *range(1, rank - count))), y)


def check_blocks(s: Site, blocks: Sequence[int], rest: int) -> None:
    """Raise ModelError unless blocks are positive and fit the operand."""
    if min(blocks, default=0) < 1 or rest < 0:
        raise s.wrong(f"block_shape is {tuple(blocks)}, expected entries of at least 1 for 1 to "
                      f"{s.input(0).type.rank - 1} axes of {s.input(0).type}")  # fmt: skip


@on("DILATE")
def dilate(s: Site) -> Made:
    """Zeros are put between neighbours."""
    if s.constant(2).any():
        raise s.unsupported("padding_value other than 0", "0")
    return s.g(Dilate(s.ints(1)), s.input(0))


@on("DYNAMIC_UPDATE_SLICE", moves=True)
def dynamic_update_slice(s: Site) -> Made:
    """Read the update at positions less the start if these are in it, else the operand.

    The start is moved so far that all of the update finds room.
    """
    x, update = s.input(0), s.input(1)
    starts = s.cast(s.input(2), "i64")
    if update.type.rank != x.type.rank or starts.type.shape != (x.type.rank,):
        raise s.wrong(f"update is {update.type} and start_indices is {starts.type}, expected rank "
                      f"{x.type.rank} and shape ({x.type.rank},) for {x.type}")  # fmt: skip
    inside: Value | None = None
    for axis, (d, n) in enumerate(zip(x.type.shape, update.type.shape, strict=True)):
        if d == n:
            continue
        d, n = fixed(d), fixed(n)
        if n > d:
            raise s.wrong(f"update is {update.type}, expected no axis longer than in {x.type}")
        start = s.g(Clip(0, int(d - n)), s.g(Slice((axis,), (1,), (1,)), starts))
        at = s.apply(Sub(), s.g(Range(d)), start)
        fits = s.g(BitAnd(), s.g(GreaterOrEqual(), at, s.filled(0, at)),
                   s.g(Less(), at, s.filled(int(n), at)))  # fmt: skip
        column = tuple(d if i == axis else 1 for i in range(x.type.rank))
        mask = stretch(s.g, s.reshaped(fits, column), x.type.shape)
        inside = mask if inside is None else s.g(BitAnd(), inside, mask)
        update = s.g(Gather(axis), update, s.g(Clip(0, max(int(n) - 1, 0)), at))
    return update if inside is None else s.g(Where(), inside, update, x)
