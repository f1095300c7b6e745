"""Operators that only move or compare strings, drawn at random, with what NumPy says of them.

NumPy works on arrays of objects here: nothing in it knows of dictionaries or ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.ops.host.demand import text

Array = NDArray[Any]
Random = np.random.Generator

WORDS = (
    "", "a", "b", "B", "ab", "a ", "a\0", "a\0b", "\0", "é", "e\u0301", "Straße", "日本", "\uffff",
    "\U0001d11e", "\udc80", "x" * 3000, "x" * 3000 + "y", "0", "-1", "10", "9",
)  # fmt: skip
"""Empty, with NUL, alike but not equal, beyond the first plane, half of a pair, and long ones."""


@dataclass
class Case:
    """One node: its operands (arrays of objects hold strings), and its results."""

    op_type: str
    operands: Sequence[Array | None]
    results: Sequence[Array]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""


def words(random: Random, shape: Sequence[int]) -> Array:
    """Return strings, of which about half occur more than once."""
    few = random.choice(len(WORDS), 1 + random.integers(len(WORDS)))
    size = int(np.prod(shape))
    return text((WORDS[i] for i in random.choice(few, size)), tuple(shape))


def extents(random: Random, least: int = 0, most: int = 4, low: int = 0) -> list[int]:
    """Return the extents of a tensor; one in twenty is 0, if `low` is."""
    drawn = random.integers(1, 5, random.integers(least, most + 1))
    return [max(low, 0) if random.random() < 0.05 else int(d) for d in drawn]


def tensor(random: Random, least: int = 0, most: int = 4, low: int = 0) -> Array:
    return words(random, extents(random, least, most, low))


def axis_of(random: Random, x: Array) -> int:
    return int(random.integers(-x.ndim, x.ndim))


def ints(values: Any) -> Array:
    return np.asarray(values, np.int64)


def positions(random: Random, extent: int, shape: Sequence[int]) -> Array:
    return ints(random.integers(-extent, extent, shape))


# ── in other shapes and orders ──


def transpose(random: Random) -> Case:
    x = tensor(random, 1)
    perm = random.permutation(x.ndim).tolist()
    return Case("Transpose", [x], [x.transpose(perm)], {"perm": perm})


def reshape(random: Random) -> Case:
    x = tensor(random, low=1)
    shape = random.permutation([*x.shape, 1]).tolist()
    return Case("Reshape", [x, ints([*shape, -1])], [x.reshape(*shape, 1)])


def flatten(random: Random) -> Case:
    x = tensor(random, 1)
    axis = axis_of(random, x)
    rows = int(np.prod(x.shape[:axis]))
    columns = int(np.prod(x.shape[axis:]))
    return Case("Flatten", [x], [x.reshape(rows, columns)], {"axis": axis})


def squeeze(random: Random) -> Case:
    x = tensor(random)
    at = int(random.integers(x.ndim + 1))
    return Case("Squeeze", [np.expand_dims(x, at), ints([at])], [x])


def unsqueeze(random: Random) -> Case:
    x = tensor(random)
    axes = (0, -1)
    return Case("Unsqueeze", [x, ints(axes)], [np.expand_dims(x, axes)])


def expand(random: Random) -> Case:
    shape = extents(random, 1)
    x = words(random, [1 if random.random() < 0.5 else d for d in shape])
    return Case("Expand", [x, ints([2, *shape])], [np.broadcast_to(x, (2, *shape))])


def shape_of(random: Random) -> Case:
    x = tensor(random)
    return Case("Shape", [x], [ints(x.shape)])


def size_of(random: Random) -> Case:
    x = tensor(random)
    return Case("Size", [x], [ints(x.size)])


def space_to_depth(random: Random) -> Case:
    n, c, h, w = random.integers(1, 3, 4).tolist()
    x = words(random, (n, c, 2 * h, 2 * w))
    y = x.reshape(n, c, h, 2, w, 2).transpose(0, 3, 5, 1, 2, 4).reshape(n, 4 * c, h, w)
    return Case("SpaceToDepth", [x], [y], {"blocksize": 2})


def depth_to_space(random: Random) -> Case:
    n, c, h, w = random.integers(1, 3, 4).tolist()
    x = words(random, (n, 4 * c, h, w))
    if mode := random.random() < 0.5:
        split = x.reshape(n, 2, 2, c, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        split = x.reshape(n, c, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3)
    attributes = {"blocksize": 2, "mode": "DCR" if mode else "CRD"}
    return Case("DepthToSpace", [x], [split.reshape(n, c, 2 * h, 2 * w)], attributes)


# ── cut and put together ──


def tile(random: Random) -> Case:
    x = tensor(random, 1)
    repeats = random.integers(0 if random.random() < 0.1 else 1, 3, x.ndim)
    return Case("Tile", [x, ints(repeats)], [np.tile(x, repeats)])


def concat(random: Random) -> Case:
    x = tensor(random, 1)
    axis = axis_of(random, x)
    shapes = [list(x.shape) for _ in range(random.integers(0, 4))]
    for shape in shapes:
        shape[axis] = int(random.integers(0, 4))
    xs = [x, *(words(random, shape) for shape in shapes)]
    return Case("Concat", xs, [np.concatenate(xs, axis)], {"axis": axis})


def split(random: Random) -> Case:
    x = tensor(random, 1)
    axis = axis_of(random, x)
    at = np.sort(random.integers(0, x.shape[axis] + 1, 2))
    sizes = np.diff([0, *at, x.shape[axis]])
    return Case("Split", [x, ints(sizes)], np.split(x, at, axis), {"axis": axis})


def slice_(random: Random) -> Case:
    x = tensor(random, 1)
    axes = random.permutation(x.ndim)[: random.integers(1, x.ndim + 1)].tolist()
    starts, ends = (random.integers(-6, 7, len(axes)).tolist() for _ in range(2))
    steps = random.choice([-2, -1, 1, 2], len(axes)).tolist()
    where = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        where[axis] = slice(start, end, step)
    return Case("Slice", [x, *map(ints, (starts, ends, axes, steps))], [x[tuple(where)]])


def pad(random: Random) -> Case:
    x = tensor(random, 1)
    width = random.integers(0, 3, (2, x.ndim))
    filler = words(random, ()) if random.random() < 0.5 else None
    y = np.resize(text([""]) if filler is None else filler, np.array(x.shape) + width.sum(0))
    y[tuple(slice(b, b + d) for b, d in zip(width[0], x.shape, strict=True))] = x
    return Case("Pad", [x, ints(width.reshape(-1)), filler], [y])


def pad_with_itself(random: Random) -> Case:
    x = words(random, random.integers(3, 5, random.integers(1, 4)))
    width = random.integers(0, 3, (2, x.ndim))
    mode = str(random.choice(["edge", "reflect", "wrap"]))
    places = np.pad(np.arange(x.size).reshape(x.shape), width.T, mode)  # type: ignore[call-overload]
    return Case("Pad", [x, ints(width.reshape(-1))], [x.reshape(-1)[places]], {"mode": mode})


def center_crop_pad(random: Random) -> Case:
    x = tensor(random, 1, low=1)
    axis = axis_of(random, x)
    wanted = int(random.integers(1, 7))
    rows = np.moveaxis(x, axis, 0)
    missing = wanted - len(rows)
    if missing > 0:
        y = np.full((wanted, *rows.shape[1:]), "", object)
        y[missing // 2 : missing // 2 + len(rows)] = rows
    else:
        y = rows[-missing // 2 :][:wanted]
    attributes = {"axes": [axis]}
    return Case("CenterCropPad", [x, ints([wanted])], [np.moveaxis(y, 0, axis)], attributes)


def reverse_sequence(random: Random) -> Case:
    x = words(random, random.integers(1, 5, random.integers(2, 4)))
    lengths = random.integers(1, x.shape[1] + 1, x.shape[0])
    y = x.copy()
    for row, n in zip(y, lengths, strict=True):
        row[:n] = row[:n][::-1].copy()
    attributes = {"batch_axis": 0, "time_axis": 1}
    return Case("ReverseSequence", [x, ints(lengths)], [y], attributes)


# ── chosen and compared ──


def gather(random: Random) -> Case:
    x = tensor(random, 1, low=1)
    axis = axis_of(random, x)
    at = positions(random, x.shape[axis], extents(random, 0, 2))
    return Case("Gather", [x, at], [np.asarray(x.take(at, axis), object)], {"axis": axis})


def gather_elements(random: Random) -> Case:
    x = tensor(random, 1, low=1)
    axis = axis_of(random, x)
    at = positions(random, x.shape[axis], x.shape)
    return Case("GatherElements", [x, at], [np.take_along_axis(x, at, axis)], {"axis": axis})


def gather_nd(random: Random) -> Case:
    x = tensor(random, 1, low=1)
    depth = int(random.integers(1, x.ndim + 1))
    count = int(random.integers(1, 5))
    at = np.stack([positions(random, d, (count,)) for d in x.shape[:depth]], -1)
    return Case("GatherND", [x, at], [np.asarray(x[tuple(at.T)], object)])


def scatter_elements(random: Random) -> Case:
    x = tensor(random, 1, low=1)
    axis = axis_of(random, x)
    at = random.random(x.shape).argsort(axis)  # no place twice
    updates = words(random, x.shape)
    y = x.copy()
    np.put_along_axis(y, at, updates, axis)
    return Case("ScatterElements", [x, ints(at), updates], [y], {"axis": axis})


def scatter_nd(random: Random) -> Case:
    x = tensor(random, 1, low=1)
    rows = random.permutation(len(x))[: random.integers(1, len(x) + 1)]
    updates = words(random, (len(rows), *x.shape[1:]))
    y = x.copy()
    y[rows] = updates
    return Case("ScatterND", [x, ints(rows)[:, None], updates], [y])


def features(random: Random) -> Case:
    x = tensor(random, 2, low=1)
    at = ints(random.integers(0, x.shape[-1], (1, 3)))
    return Case("ArrayFeatureExtractor", [x, at], [x[..., at[0]]], domain="ai.onnx.ml")


def compress(random: Random) -> Case:
    x = tensor(random, 1)
    if random.random() < 0.3:
        truth = random.random(x.size) < 0.5
        return Case("Compress", [x, truth], [np.compress(truth, x.reshape(-1))])
    axis = axis_of(random, x)
    truth = random.random(x.shape[axis]) < 0.5
    return Case("Compress", [x, truth], [np.compress(truth, x, axis)], {"axis": axis})


def where(random: Random) -> Case:
    shape = extents(random)
    truth = random.random(shape) < 0.5
    x, y = words(random, shape), words(random, [1] * len(shape))
    return Case("Where", [truth, x, y], [np.asarray(np.where(truth, x, y), object)])


def equal(random: Random) -> Case:
    shape = extents(random)
    x, y = words(random, shape), words(random, shape[1:])
    return Case("Equal", [x, y], [np.asarray(x == y, bool)])


def non_zero(random: Random) -> Case:
    x = tensor(random, 1)
    return Case("NonZero", [x], [ints(np.argwhere(x != "").T)])


def one_hot(random: Random) -> Case:
    at = ints(random.integers(-5, 5, extents(random, 0, 2)))
    values = words(random, (2,))
    hot = np.where(at < 0, at + 4, at)[..., None] == np.arange(4)
    return Case("OneHot", [at, ints(4), values], [values[hot.astype(int)]])


def trilu(random: Random) -> Case:
    x = tensor(random, 2)
    k = int(random.integers(-2, 3))
    upper = bool(random.random() < 0.5)
    rows, columns = np.indices(x.shape[-2:])
    kept = columns >= rows + k if upper else columns <= rows + k
    return Case("Trilu", [x, ints(k)], [np.where(kept, x, text([""], ()))], {"upper": int(upper)})


def unique(random: Random) -> Case:
    x = tensor(random, 1, low=1)
    axis = None if random.random() < 0.5 else axis_of(random, x)
    by_order = bool(random.random() < 0.7)
    rows = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    keys = [tuple(np.asarray(row, object).flat) for row in rows]
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    order = sorted(first) if by_order else sorted(first, key=lambda key: first[key])
    at = [first[key] for key in order]
    counts = [keys.count(key) for key in order]
    y = rows[at] if axis is None else np.moveaxis(rows[at], 0, axis)
    others = map(ints, (at, [order.index(key) for key in keys], counts))
    attributes = {"sorted": int(by_order)} | ({} if axis is None else {"axis": axis})
    return Case("Unique", [x], [y, *others], attributes)


DRAWS: tuple[Callable[[Random], Case], ...] = (
    transpose, reshape, flatten, squeeze, unsqueeze, expand, shape_of, size_of, space_to_depth,
    depth_to_space, tile, concat, split, slice_, pad, pad_with_itself, center_crop_pad,
    reverse_sequence, gather, gather_elements, gather_nd, scatter_elements, scatter_nd, features,
    compress, where, equal, non_zero, one_hot, trilu, unique,
)  # fmt: skip
