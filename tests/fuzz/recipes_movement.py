"""Recipes for operators that move elements, pick them, or make them up."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np

from .draft import DTYPES, FLOATS, Declined, Draft, Shape, Var, allowed, recipe


def some_axes(d: Draft, rank: int) -> list[int]:
    """Return distinct axes, at least one, in any order and counted from either end."""
    if not rank:
        raise Declined
    axes = d.rng.permutation(rank)[: d.number(1, rank)].tolist()
    return [int(a) - rank if d.chance(0.3) else int(a) for a in axes]


@recipe("Transpose")
def transpose(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    perm = {"perm": d.rng.permutation(x.rank).tolist()} if x.rank and d.chance(0.85) else {}
    d.node(op, [x], **perm)


@recipe("Reshape")
def reshape(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    shape = factors(d, prod(x.shape))
    if shape and d.chance(0.4) and 0 not in shape:
        shape[d.number(0, len(shape) - 1)] = -1
    # An open extent may turn out as 0, too, and then not mean what stands there in the operand.
    wanted = 0 in shape or d.is_open
    zeros = {"allowzero": 1} if d.opset >= 14 and wanted else {}
    if wanted and (not zeros or -1 in shape):
        raise Declined
    d.node(op, [x, d.ints(shape)], **zeros)


def factors(d: Draft, size: int) -> list[int]:
    """Return random extents whose product is `size`."""
    if size == 0:
        return [0, *d.shape(0, 2, empty=False)]
    out: list[int] = []
    while size > 1 and len(out) < 4:
        divisors = [k for k in range(2, size + 1) if size % k == 0]
        out.append(int(d.one_of(divisors)))
        size //= out[-1]
    out += [size] if size > 1 or d.chance(0.4) else []
    if d.chance(0.3):
        out.insert(d.number(0, len(out)), 1)
    return out


@recipe("Flatten")
def flatten(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1)
    d.node(op, [x], axis=d.number(-x.rank, x.rank))


@recipe("Squeeze")
def squeeze(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    ones = [i for i, e in enumerate(x.shape) if e == 1]
    if ones and d.chance(0.7):
        d.node(op, [x, d.ints(d.rng.permutation(ones)[: d.number(1, len(ones))].tolist())])
    else:
        d.node(op, [x])


@recipe("Unsqueeze")
def unsqueeze(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 0, 4)
    more = d.number(1, 2)
    axes = d.rng.permutation(x.rank + more)[:more].tolist()
    d.node(op, [x, d.ints(axes)])


@recipe("Expand")
def expand(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 0, 5)
    shape = [e if e != 1 or d.chance(0.4) else d.number(1, 5) for e in x.shape]
    shape = [1 if d.chance(0.2) else e for e in shape]
    d.node(op, [x, d.ints([*d.shape(0, 1), *shape])])


@recipe("Tile")
def tile(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 4)
    d.node(op, [x, d.ints([d.one_of((1, 1, 2, 3, 0)) for _ in x.shape])])


@recipe("Concat")
def concat(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1)
    axis = d.number(0, x.rank - 1)

    def another() -> Var:
        shape = list(x.shape)
        shape[axis] = d.number(0, 5)
        return d.fresh(x.dtype, tuple(shape))

    parts = [x, *(x if d.chance(0.2) else another() for _ in range(d.number(0, 3)))]
    order = [parts[i] for i in d.rng.permutation(len(parts))]
    d.node(op, order, axis=axis if d.chance(0.6) else axis - x.rank)


@recipe("Split")
def split(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1)
    axis = d.number(0, x.rank - 1)
    parts = d.number(1, 3)
    cuts = sorted(d.number(0, x.shape[axis]) for _ in range(parts - 1))
    ends = [0, *cuts, x.shape[axis]]
    sizes = [b - a for a, b in pairwise(ends)]
    d.node(op, [x, d.ints(sizes)], outputs=parts, axis=axis)


@recipe("Slice")
def cut(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1)
    axes = some_axes(d, x.rank)
    numbers = (-(2**63) + 1, -9, -3, -1, 0, 1, 2, 5, 2**63 - 1)
    begins = [d.one_of(numbers) for _ in axes]
    ends = [d.one_of(numbers) for _ in axes]
    steps = [d.one_of((1, 1, 2, 3, -1, -2)) for _ in axes]
    # Backwards to the largest number: ONNX Runtime takes it for the very front.
    ends = [7 if s < 0 and e == numbers[-1] else e for s, e in zip(steps, ends, strict=True)]
    given = [x, d.ints(begins), d.ints(ends), d.ints(axes), d.ints(steps)]
    d.node(op, given[: d.one_of((4, 5))])


@recipe("Pad")
def pad(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 5)
    modes = ["constant", "constant", "edge", "reflect", *(["wrap"] if d.opset >= 19 else [])]
    mode = d.one_of(modes)
    low = [d.one_of((0, 0, 1, 2)) for _ in range(2 * x.rank)]
    if mode == "constant":
        low = [-1 if d.chance(0.1) and x.shape[i % x.rank] > 2 else p for i, p in enumerate(low)]
    elif min(x.shape) < 3:
        raise Declined
    value = d.fresh(x.dtype, (), True) if mode == "constant" and d.chance(0.5) else None
    d.node(op, [x, d.ints(low), value], mode=mode)


@recipe("DepthToSpace", "SpaceToDepth")
def depth(d: Draft, op: str) -> None:
    kind = d.dtype(allowed(op, d.opset))
    n, c, h, w, b = (d.number(1, 3) for _ in range(5))
    to_space = op == "DepthToSpace"
    shape = (n, c * b * b, h, w) if to_space else (n, c, h * b, w * b)
    mode = {"mode": d.one_of(("DCR", "CRD"))} if to_space and d.chance(0.6) else {}
    d.node(op, [d.fresh(kind, shape)], blocksize=b, **mode)


@recipe("Trilu")
def trilu(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 2)
    k = d.ints([d.number(-4, 4)]) if d.chance(0.6) else None
    if k is not None:
        k = d.given(np.array(d.number(-4, 4)), True)
    d.node(op, [x, k], upper=d.number(0, 1))


@recipe("EyeLike")
def eye(d: Draft, op: str) -> None:
    d.node(op, [d.pick(allowed(op, d.opset), 2, 2)], k=d.number(-3, 3))


@recipe("ConstantOfShape")
def full(d: Draft, op: str) -> None:
    d.node(op, [d.ints(d.shape(0, 4))])


@recipe("Range")
def count(d: Draft, op: str) -> None:
    kind = DTYPES[d.one_of(("int64", "int32", "float", "double"))]
    begin, end, step = d.number(-5, 5), d.number(-9, 9), d.one_of((1, 2, 3, -1, -2))
    d.node(op, [d.given(np.array(n, kind), True) for n in (begin, end, step)])


@recipe("CenterCropPad")
def center(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 4)
    axes = d.rng.permutation(x.rank)[: d.number(1, x.rank)].tolist()
    d.node(op, [x, d.ints([d.number(1, 9) for _ in axes])], axes=axes)


@recipe("Gather", "GatherElements")
def gather(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 5)
    axis = d.number(0, x.rank - 1)
    shape: Shape = d.shape(0, 2)
    if op == "GatherElements":
        shape = tuple(
            d.number(0, e) if i != axis else d.number(0, 6) for i, e in enumerate(x.shape)
        )
    indices = places(d, x.shape[axis], shape)
    d.node(op, [x, d.given(indices)], axis=axis if d.chance(0.6) else axis - x.rank)


def places(d: Draft, extent: int, shape: Shape) -> np.ndarray:
    """Return indices for an axis, counted from either end; none where the axis is empty."""
    if not extent and prod(shape):
        raise Declined
    low, high = -extent, max(extent, -extent + 1)
    return d.rng.integers(low, high, shape).astype(DTYPES[d.one_of(("int64", "int64", "int32"))])


@recipe("GatherND")
def gather_nd(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 5)
    batch = d.number(0, x.rank - 1) if d.chance(0.4) else 0
    deep = d.number(1, x.rank - batch)
    lead = (*x.shape[:batch], *d.shape(0 if batch else 1, 2))
    columns = [places(d, x.shape[batch + i], lead) for i in range(deep)]
    indices = np.stack(columns, -1).astype(np.int64)
    d.node(op, [x, d.given(indices)], **({"batch_dims": batch} if batch else {}))


@recipe("ScatterElements")
def scatter(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 4)
    axis = d.number(0, x.rank - 1)
    how = reduction(d, x, {16: ("add", "mul"), 18: ("min", "max")})
    shape = tuple(d.number(0, e) for e in x.shape)
    rows = np.stack([d.rng.permutation(max(x.shape[axis], 1)) for _ in range(max(1, prod(shape)))])
    spots = np.moveaxis(np.zeros(shape, np.int64), axis, -1)
    if spots.size:  # Without repetition: the order of equal ones is free.
        spots = rows[: prod(spots.shape[:-1]), : spots.shape[-1]].reshape(spots.shape)
    indices = np.ascontiguousarray(np.moveaxis(spots, -1, axis))
    d.node(op, [x, d.given(indices), d.fresh(x.dtype, shape)], axis=axis, **how)


def reduction(d: Draft, x: Var, since: dict[int, tuple[str, ...]]) -> dict[str, str]:
    known = [how for opset, hows in since.items() if d.opset >= opset for how in hows]
    return {"reduction": d.one_of(known)} if known and x.dtype != "bool" and d.chance(0.5) else {}


@recipe("ScatterND")
def scatter_nd(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 4)
    deep = d.number(1, x.rank)
    total = prod(x.shape[:deep])
    spots = d.rng.permutation(total)[: d.number(0, min(total, 6))]
    indices = (
        np.stack(np.unravel_index(spots, x.shape[:deep]), -1) if total else np.zeros((0, deep))
    )
    updates = d.fresh(x.dtype, (len(spots), *x.shape[deep:]))
    how = reduction(d, x, {16: ("add", "mul"), 18: ("min", "max")})
    d.node(op, [x, d.given(indices.astype(np.int64)), updates], **how)


@recipe("OneHot")
def one_hot(d: Draft, op: str) -> None:
    size = d.number(1, 6)
    indices = d.given(d.rng.integers(-size - 1, size + 2, d.shape(0, 3)).astype(np.int64))
    values = d.fresh(d.one_of(("float", "int32", "int64")), (2,))
    d.node(op, [indices, d.ints([size]), values], axis=d.number(-1, indices.rank))


@recipe("ReverseSequence")
def reverse(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 2, 4, empty=False)
    time = d.number(0, 1)
    lengths = d.rng.integers(1, x.shape[time] + 1, x.shape[1 - time]).astype(np.int64)
    d.node(op, [x, d.given(lengths)], time_axis=time, batch_axis=1 - time)


@recipe("Resize")
def resize(d: Draft, op: str) -> None:
    x = d.pick([t for t in allowed(op, d.opset) if t in ("float", "uint8", "int8")], 4, 4,
               empty=False)  # fmt: skip
    mode = d.one_of(("nearest", "linear", "cubic"))
    if mode != "nearest" and x.dtype not in FLOATS:
        raise Declined
    ways = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    given = {"mode": mode, "coordinate_transformation_mode": d.one_of(ways)}
    if mode == "nearest":
        given["nearest_mode"] = d.one_of(
            ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        )
    if d.chance(0.5):
        scales = np.array([1, 1, *(d.one_of((0.5, 1, 2, 3)) for _ in range(2))], np.float32)
        if min(int(e * s) for e, s in zip(x.shape, scales, strict=True)) < 1:
            raise Declined
        d.node(op, [x, None, d.given(scales, True)], **given)
    else:
        sizes = [*x.shape[:2], d.number(1, 9), d.number(1, 9)]
        d.node(op, [x, None, None, d.ints(sizes)], **given)
