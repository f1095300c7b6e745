"""Recipes for operators that move elements as they are, or make them up."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from onnx import numpy_helper

from .draft import SYMBOLS, Draft, Var
from .elements import DTYPES, Shape, code
from .inference import Declined, allowed
from .recipe import recipe


def some_axes(d: Draft, rank: int, least: int = 1) -> list[int]:
    """Return distinct axes, at least so many, in any order and counted from either end."""
    if not rank:
        raise Declined
    axes = d.rng.permutation(rank)[: d.number(least, rank)].tolist()
    return [int(a) - rank if d.chance(0.3) else int(a) for a in axes]


def front(axes: list[int], rank: int) -> list[int]:
    return sorted(a % rank for a in axes)


@recipe("Transpose")
def transpose(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    perm = d.rng.permutation(x.rank).tolist()
    if x.rank > 1 and d.chance(0.25):  # one pair, or one axis to the end
        perm = list(range(x.rank))
        perm.append(perm.pop(d.number(0, x.rank - 1)))
    d.node(op, [x], **({"perm": perm} if x.rank and d.chance(0.85) else {}))


@recipe("Reshape")
def reshape(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    shape = factors(d, prod(x.shape))
    if d.opset < 5:
        d.node(op, [x], types=[(x.dtype, tuple(shape))], shape=shape)
        return
    # An open extent may turn out as 0, too, and then not mean what stands there in the operand.
    wanted = 0 in shape or d.is_open
    zeros = {"allowzero": 1} if d.opset >= 14 and wanted else d.some(op, allowzero=(0,))
    if wanted and not zeros.get("allowzero"):
        raise Declined
    if not wanted:
        kept = [i for i, (a, b) in enumerate(zip(shape, x.shape, strict=False)) if a == b]
        for i in kept:
            shape[i] = 0 if d.chance(0.5) else shape[i]
    if shape and d.chance(0.4) and (0 not in shape or not wanted):
        shape[d.number(0, len(shape) - 1)] = -1
    d.node(op, [x, d.ints(shape)], **zeros)


def factors(d: Draft, size: int) -> list[int]:
    """Return random extents whose product is `size`."""
    if size == 0:
        return [0, *d.shape(0, 2, empty=False)]
    out: list[int] = []
    while size > 1 and len(out) < 5:
        divisors = [k for k in range(2, size + 1) if size % k == 0]
        out.append(int(d.one_of(divisors)))
        size //= out[-1]
    out += [size] if size > 1 or d.chance(0.4) else []
    for _ in range(d.one_of((0, 0, 1, 2))):
        out.insert(d.number(0, len(out)), 1)
    return out


@recipe("Flatten")
def flatten(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1)
    low = -x.rank if d.opset >= 11 else 0
    d.node(op, [x], **d.some(op, axis=range(low, x.rank + 1)))


@recipe("Squeeze")
def squeeze(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    ones = [i for i, e in enumerate(x.shape) if e == 1]
    if not ones and d.chance(0.7):
        array = d.contents(x.dtype, tuple(np.insert(x.shape, d.number(0, x.rank), 1).astype(int)))
        x = d.given(array)
        ones = [i for i, e in enumerate(x.shape) if e == 1]
    axes = d.rng.permutation(ones)[: d.number(1, max(len(ones), 1))].tolist()
    if not ones or d.chance(0.25):
        if d.opset < 1:
            raise Declined
        d.node(op, [x])
    elif d.opset >= 13:
        d.node(op, [x, d.ints([a - x.rank if d.chance(0.3) else a for a in axes])])
    else:
        low = d.opset >= 11 and d.chance(0.3)
        d.node(op, [x], axes=[a - x.rank if low else a for a in sorted(axes)])


@recipe("Unsqueeze")
def unsqueeze(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 0, 4)
    more = d.number(1, 3)
    rank = x.rank + more
    axes = d.rng.permutation(rank)[:more].tolist()
    if d.opset >= 13:
        d.node(op, [x, d.ints([a - rank if d.chance(0.3) else a for a in axes])])
    else:
        low = d.opset >= 11 and d.chance(0.3)
        d.node(op, [x], axes=[a - rank if low else a for a in sorted(axes)])


@recipe("Expand")
def expand(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 0, 5)
    shape = [e if e != 1 or d.chance(0.3) else d.extent(17, 0 if d.chance(0.1) else 1)
             for e in x.shape]  # fmt: skip
    shape = [1 if d.chance(0.15) else e for e in shape]
    front_ = d.number(0, x.rank) if d.chance(0.2) else 0  # what is missing is kept
    d.node(op, [x, d.ints([*([] if front_ else d.shape(0, 1)), *shape[front_:]])])


@recipe("Tile")
def tile(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1 if d.opset < 6 else 0, 5)
    if d.opset < 6:
        axis, times = d.number(0, x.rank - 1), d.number(1, 4)
        shape = tuple(e * times if i == axis else e for i, e in enumerate(x.shape))
        given = [d.given(np.array([n], np.int64), True) for n in (times, axis)]
        d.node(op, [x, *given], types=[(x.dtype, shape)])
        return
    room = max(4096 // max(prod(x.shape), 1), 1)
    times = [min(int(d.one_of((1, 1, 2, 3, 0 if d.chance(0.3) else 1, 5, 8))), room)
             for _ in x.shape]  # fmt: skip
    d.node(op, [x, d.ints(times)])


@recipe("Concat")
def concat(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1)
    axis = d.number(0, x.rank - 1)
    if d.opset < 4:
        axis = min(1, x.rank - 1) if d.chance(0.5) else axis

    def another() -> Var:
        shape = list(x.shape)
        shape[axis] = d.extent(17, 0 if d.chance(0.2) else 1)
        return d.fresh(x.dtype, tuple(shape))

    # The same one twice or thrice, others between them.
    again = d.one_of((0.2, 0.2, 0.8))
    parts = [x, *(x if d.chance(again) else another() for _ in range(d.number(0, 4)))]
    order = [parts[i] for i in d.rng.permutation(len(parts))]
    if d.opset < 4:
        total = sum(p.shape[axis] for p in order)
        shape = (*x.shape[:axis], total, *x.shape[axis + 1 :])
        more: dict[str, Any] = {} if axis == 1 and d.chance(0.5) else {"axis": axis}
        d.node(op, order, types=[(x.dtype, shape)], **more)
        return
    d.node(op, order, axis=axis - x.rank if d.opset >= 11 and d.chance(0.4) else axis)


@recipe("Split")
def split(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1)
    axis = d.number(0, x.rank - 1)
    extent = x.shape[axis]
    parts = d.number(1, 4)
    more: dict[str, Any] = {}
    if axis or d.chance(0.5):
        more["axis"] = axis - x.rank if d.opset >= 11 and d.chance(0.4) else axis
    if d.chance(0.3):  # equal parts
        uneven = d.opset >= 18
        fitting = [k for k in range(1, 6) if (-(-extent // k) * (k - 1) <= extent if uneven
                                              else extent % k == 0)]  # fmt: skip
        parts = d.one_of(fitting)
        if uneven:
            more["num_outputs"] = parts
        size = -(-extent // parts)
        sizes = [size] * (parts - 1) + [extent - size * (parts - 1)]
        d.node(op, [x], outputs=parts, types=pieces(x, axis, sizes), **more)
        return
    cuts = sorted(d.number(0, extent) for _ in range(parts - 1))
    sizes = np.diff([0, *cuts, extent]).tolist()
    types = pieces(x, axis, sizes)
    if d.opset >= 13:
        d.node(op, [x, d.ints(sizes)], outputs=parts, **more)
    elif d.is_open:
        raise Declined
    else:
        d.node(op, [x], outputs=parts, types=types, split=sizes, **more)


def pieces(x: Var, axis: int, sizes: list[int]) -> list[tuple[str, Shape]]:
    return [(x.dtype, (*x.shape[:axis], n, *x.shape[axis + 1 :])) for n in sizes]


FAR = (-(2**63) + 1, 2**63 - 1, 2**31 - 1, -(2**31))
STEPS = (1, 1, 1, 2, 3, 5, 16, 100, -1, -1, -2, -3, -7, -100, 2**31 - 1)


@recipe("Slice")
def cut(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1)
    axes = some_axes(d, x.rank)

    def place(extent: int) -> int:
        if d.chance(0.2):
            return int(d.one_of(FAR))
        return d.number(-extent - 2, extent + 2)

    begins = [place(x.shape[a]) for a in axes]
    ends = [place(x.shape[a]) for a in axes]
    if d.opset < 10:
        if d.chance(0.3):
            axes = list(range(len(axes)))
            d.node(op, [x], starts=begins, ends=ends)
        else:
            d.node(op, [x], axes=front(axes, x.rank), starts=begins, ends=ends)
        return
    steps = [int(d.one_of(STEPS)) for _ in axes]
    for i, (a, step) in enumerate(zip(axes, steps, strict=True)):
        if step < 0:
            # Backwards to the largest number: ONNX Runtime takes it for the very front.
            ends[i] = x.shape[a] + 2 if ends[i] > 2**30 else ends[i]
            # Further out than the front: the specification and the reference disagree.
            begins[i] = max(begins[i], -x.shape[a])
    kind = d.one_of(("int64", "int64", "int32"))
    if kind == "int32":
        begins, ends = ([max(-(2**31), min(n, 2**31 - 1)) for n in ns] for ns in (begins, ends))
    given = [x, d.ints(begins, kind), d.ints(ends, kind)]
    if axes == list(range(len(axes))) and d.chance(0.5):
        given += [None] if d.chance(0.5) else []
    else:
        given.append(d.ints(axes, kind))
    if set(steps) != {1} and len(given) == 4:
        given.append(d.ints(steps, kind))
    d.node(op, given)


@recipe("Pad")
def pad(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 6 if d.chance(0.1) else 5)
    modes = ["constant", "constant", "edge", "reflect", *(["wrap"] if d.opset >= 19 else [])]
    mode = d.one_of(modes)
    few = d.opset >= 18 and d.chance(0.4)
    axes = some_axes(d, x.rank) if few else list(range(x.rank))
    if prod(x.shape) * 8 > 4096:
        axes = axes[:2] if few else axes
    pads = [paddings(d, mode, x.shape[a % x.rank], prod(x.shape) > 1000) for a in [*axes, *axes]]
    low, high = pads[: len(axes)], pads[len(axes) :]
    for a, p, q in zip(axes, low, high, strict=True):
        left = x.shape[a % x.rank] + min(p, 0) + min(q, 0)
        if left < 1 or max(p, q) > {"reflect": left - 1, "wrap": left}.get(mode, max(p, q)):
            raise Declined  # more is cut off than there is, or repeated than is left
    if mode != "constant" and 0 in x.shape:
        raise Declined
    more = {"mode": mode} if mode != "constant" or d.chance(0.5) else {}
    if d.opset < 11:
        value = d.some(op, value=(1.5, 0.0, -1.0)) if mode == "constant" else {}
        shape = tuple(e + p + q for e, p, q in zip(x.shape, low, high, strict=True))
        name = "pads" if d.opset >= 2 else "paddings"
        d.node(op, [x], types=[(x.dtype, shape)], **{name: pads}, **more, **value)
        return
    value_ = None
    if mode == "constant" and d.chance(0.5):
        value_ = d.given(d.contents(x.dtype, ()), True)
        if d.chance(0.2) and x.dtype in ("float", "double"):
            value_ = d.given(np.array(-np.inf, DTYPES[x.dtype]), True)
    d.node(op, [x, d.ints(pads), value_, d.ints(axes) if few else None], **more)


def paddings(d: Draft, mode: str, extent: int, large: bool) -> int:
    """Return by how much to pad one end: by more than there is, where that is allowed."""
    if large and d.chance(0.7):
        return 0
    if d.chance(0.08):
        return -1 if extent > 2 else 0
    most = {"reflect": extent - 1, "wrap": extent}.get(mode, 9)
    return min(int(d.one_of((0, 0, 1, 1, 2, 3, 5, 8))), max(most, 0))


@recipe("DepthToSpace", "SpaceToDepth")
def depth(d: Draft, op: str) -> None:
    b = d.one_of((1, 2, 2, 3, 4))
    to_space = op == "DepthToSpace"

    def fits(v: Var) -> bool:
        return v.rank == 4 and (v.shape[1] % (b * b) == 0 if to_space
                                else v.shape[2] % b == 0 == v.shape[3] % b)  # fmt: skip

    def shape() -> Shape:
        n, c, h, w = d.number(1, 3), d.extent(17), d.extent(9), d.extent(9)
        return (n, c * b * b, h, w) if to_space else (n, c, h * b, w * b)

    x = d.pick(allowed(op, d.opset), 4, 4, where=fits, shape=shape)
    d.node(op, [x], blocksize=b, **d.some(op, mode=("DCR", "CRD")))


@recipe("Trilu")
def trilu(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 2)
    reach = max(x.shape[-2:]) + 1
    far = d.one_of((d.number(-reach, reach), d.number(-2, 2), 2**62, -(2**62)))
    k = d.known(np.array(far, np.int64)) if d.chance(0.7) else None
    d.node(op, [x, k], **d.some(op, upper=(0, 1)))


@recipe("EyeLike")
def eye(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 2, 2)
    kinds = ("float", "double", "float16", "int64", "int32", "uint8", "bool")
    kind = d.one_of(kinds) if d.chance(0.5) else x.dtype
    given = {} if kind == x.dtype and d.chance(0.6) else {"dtype": code(kind)}
    d.node(op, [x], **given, **d.some(op, k=range(-max(x.shape) - 1, max(x.shape) + 2)))


@recipe("ConstantOfShape")
def full(d: Draft, op: str) -> None:
    kind = d.dtype(d.makes(op))
    value = numpy_helper.from_array(d.contents(kind, (1,)))
    d.node(op, [d.ints(d.shape(0, 5))], **({"value": value} if d.chance(0.7) else {}))


@recipe("Range")
def count(d: Draft, op: str) -> None:
    kind = d.one_of(allowed(op, d.opset))
    begin, end, step = d.number(-5, 5), d.number(-9, 40), d.one_of((1, 2, 3, -1, -2, 7))
    if d.chance(0.3):
        begin, end = end, begin
    numbers = [float(n) for n in (begin, end, step)]
    if kind in ("float", "double") and d.chance(0.4):
        numbers = [n / 4 for n in numbers]
    given = [d.given(np.array(n).astype(DTYPES[kind]), True) for n in numbers]
    d.node(op, given, **d.some(op, stash_type=(1,)))


@recipe("CenterCropPad")
def center(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 5)
    if d.chance(0.3):
        axes, more = list(range(x.rank)), {}
    else:
        axes = some_axes(d, x.rank)
        more = {"axes": axes}
    sizes = [d.one_of((d.number(1, 9), x.shape[a], x.shape[a] + 1, max(x.shape[a] - 1, 1)))
             for a in axes]  # fmt: skip
    d.node(op, [x, d.ints(sizes, d.one_of(("int64", "int64", "int32")))], **more)


@recipe("Crop")
def crop(d: Draft, op: str) -> None:
    if d.opset > 9:
        raise Declined
    x = d.pick(["float"], 4, 4, empty=False, where=lambda v: min(v.shape[2:]) > 4)
    border = [d.number(0, 2) for _ in range(4)]
    left, top, right, bottom = border
    size = [x.shape[2] - top - bottom, x.shape[3] - left - right]
    more = {}
    if d.chance(0.5):
        size = [d.number(1, s) for s in size]
        more["scale"] = size
    d.node(op, [x], types=[(x.dtype, (*x.shape[:2], *size))], border=border, **more)


@recipe("ImageScaler")
def image_scaler(d: Draft, op: str) -> None:
    if d.opset > 9:
        raise Declined
    x = d.pick(["float"], 4, 4, empty=False)
    if d.is_open and x.shape[1] in SYMBOLS.values():
        raise Declined  # there is a bias for each channel
    bias = d.rng.standard_normal(x.shape[1]).astype(np.float32).tolist()
    more = {"scale": d.one_of((0.5, 2.0, 1.0))} if d.chance(0.7) else {}
    d.node(op, [x], types=[(x.dtype, x.shape)], bias=bias, **more)


@recipe("DynamicSlice")
def dynamic_slice(d: Draft, op: str) -> None:
    if d.opset > 9:
        raise Declined
    x = d.pick(["float", "int32", "int64"], 1, 4, empty=False)
    axes = front(some_axes(d, x.rank), x.rank)
    begins = [d.number(0, x.shape[a] - 1) for a in axes]
    ends = [d.number(b + 1, x.shape[a]) for a, b in zip(axes, begins, strict=True)]
    shape = list(x.shape)
    for a, b, e in zip(axes, begins, ends, strict=True):
        shape[a] = e - b
    d.node(op, [x, d.ints(begins), d.ints(ends), d.ints(axes)], types=[(x.dtype, tuple(shape))])
