"""Steps that move elements: shapes, slices, padding, gathers and scatters, and new tensors."""

from __future__ import annotations

import math

from ..inference import Declined
from .program import Draw, Value, recipe


def split_shape(d: Draw, x: Value) -> tuple[int, ...]:
    """Return another shape of as many elements."""
    count = math.prod(x.shape)
    if not count:
        return tuple(int(n) for n in d.rng.permutation(x.shape))
    out: list[int] = []
    while count > 1 and len(out) < 5:
        factor = d.one_of([f for f in range(1, count + 1) if count % f == 0])
        out.append(factor)
        count //= factor
    return tuple([*out, count] if count > 1 else out)


@recipe("reshape", "reshape_open", "view")
def reshape(d: Draw, op: str) -> None:
    x = d.pick()
    shape = list(split_shape(d, x))
    if op == "reshape_open" and shape and 0 not in shape:
        shape[d.number(0, len(shape) - 1)] = -1
    d.step(op, x, shape=tuple(shape))


@recipe("transpose", "swap", "moveaxis")
def transpose(d: Draw, op: str) -> None:
    x = d.pick(least=1)
    perm = tuple(map(int, d.rng.permutation(x.rank)))
    d.step(op, x, perm=perm, a=d.axis(x), b=d.axis(x))


@recipe("flatten", "unsqueeze", "squeeze", "squeeze_all", "expand_dims")
def ranks(d: Draw, op: str) -> None:
    x = d.pick(most=5)
    a, b = sorted((d.number(0, max(x.rank - 1, 0)), d.number(0, max(x.rank - 1, 0))))
    ones = [i for i, n in enumerate(x.shape) if n == 1]
    d.step(op, x, a=a, b=b, new=d.number(-x.rank - 1, x.rank),
           axis=d.one_of(ones) if op == "squeeze" else 0)  # fmt: skip


def slices(d: Draw, x: Value, backwards: bool) -> str:
    """Return what stands between brackets to cut x."""
    out = []
    for n in x.shape[: d.number(1, x.rank)]:
        if d.chance(0.12) and n:
            out.append(str(d.number(-n, n - 1)))
            continue
        if d.chance(0.05):
            out.append("None")
        ends = [d.one_of(["", str(d.number(-n - 2, n + 2))]) for _ in range(2)]
        step = d.one_of(["", "", "1", "2", "3", "7", *(["-1", "-2", "-3"] if backwards else [])])
        out.append(f"{ends[0]}:{ends[1]}" + (f":{step}" if step else ""))
    if d.chance(0.1):
        out.insert(0, "...")
    return ", ".join(out)


@recipe("slice", "slice_backwards")
def cut(d: Draw, op: str) -> None:
    x = d.pick(least=1)
    d.step(op, x, raw=slices(d, x, op == "slice_backwards"))


@recipe("narrow", "select", "dynamic_slice", "slice_in_dim", "index_in_dim", "strided_slice")
def narrow(d: Draw, op: str) -> None:
    x = d.pick(least=1, empty=False)
    axis = d.axis(x)
    n = x.shape[axis]
    start = d.number(0, n - 1)
    begins = [d.number(0, n - 1) for n in x.shape]
    ends = [d.number(b, n) for b, n in zip(begins, x.shape, strict=True)]
    sizes = tuple(d.number(0 if d.chance(0.1) else 1, n) for n in x.shape)
    at = [d.indices((), n + 2) for n in x.shape] if op == "dynamic_slice" else []
    d.step(op, x, *at, axis=axis, start=start, count=d.number(0, n - start), at=d.number(-n, n - 1),
           begins=tuple(begins), ends=tuple(ends), sizes=sizes,
           steps=tuple(d.one_of([1, 1, 2, 3]) for _ in x.shape),
           raw=", ".join(v.name for v in at), mask=d.number(0, 7), mask2=d.number(0, 7),
           mask3=d.one_of([0, 0, 1, 2, 5]),
           sizes_to=tuple(e - b for b, e in zip(begins, ends, strict=True)))  # fmt: skip


@recipe("dynamic_update_slice")
def update(d: Draw, op: str) -> None:
    x = d.pick(least=1, empty=False)
    sizes = [d.number(1, n) for n in x.shape]
    at = [d.indices((), n + 2) for n in x.shape]
    d.step(op, x, d.like(x, sizes), *at, raw=", ".join(v.name for v in at))


@recipe("flip", "roll", "rot90")
def turn(d: Draw, op: str) -> None:
    x = d.pick(least=2 if op == "rot90" else 1)
    axes = d.axes(x, 1)
    if op == "rot90":
        axes = tuple(map(int, d.rng.permutation(x.rank)[:2]))
    d.step(op, x, axes=axes, shifts=tuple(d.number(-9, 9) for _ in axes), k=d.number(-3, 5))


@recipe("pad", "pad_negative", "pad_interior")
def pad(d: Draw, op: str) -> None:
    x = d.pick(least=1)
    low = -2 if op != "pad" else 0
    edges = tuple((d.number(low, 3), d.number(low, 3), d.number(0, 2)) for _ in x.shape)
    plain = tuple((a, b) for a, b, _ in edges)
    flat = tuple(n for a, b in plain[::-1][: d.number(1, x.rank)] for n in (a, b))
    d.step(op, x, edges=edges, pairs=plain, flat=flat, c=d.one_of([0, 0, 1, -1, 2]))


@recipe("pad_reflect", "pad_replicate", "pad_circular", "pad_edge", "pad_symmetric", "pad_wrap")
def pad_mode(d: Draw, op: str) -> None:
    x = d.pick(least=2, empty=False)
    # PyTorch pads the last one to three axes of tensors of two more.
    last = d.number(max(1, x.rank - 2), max(1, x.rank - 1))
    flat = tuple(d.number(0, max(min(n - 1, 4), 0)) for n in x.shape[::-1][:last] for _ in "ab")
    pairs = tuple((d.number(0, 4), d.number(0, 4)) for _ in x.shape)
    d.step(op, x, flat=flat, pairs=pairs)


@recipe("cat", "stack", "hstack", "vstack")
def join(d: Draw, op: str) -> None:
    x = d.pick(least=1)
    axis = d.axis(x)
    parts = [x]
    for _ in range(d.number(0, 3)):
        shape = list(x.shape)
        if op == "cat":
            shape[axis] = d.extent(8, 0)
        kind = d.dtype(d.writer.dtypes) if d.chance(0.05) else x.dtype
        parts.append(x if d.chance(0.15) else d.like(x, shape, kind))
    d.step(op, *d.rng.permutation(parts) if False else parts, axis=axis,
           raw=", ".join(p.name for p in parts))  # fmt: skip


@recipe("split", "chunk", "unbind", "tensor_split")
def part(d: Draw, op: str) -> None:
    x = d.pick(least=1, empty=False)
    axis = d.axis(x)
    n = x.shape[axis]
    size = d.number(1, n)
    count = {"split": -(-n // size), "unbind": n, "tensor_split": size}.get(op, 0)
    if op == "chunk":
        each = -(-n // size)
        count = -(-n // each)
    if count > 6:
        raise Declined
    d.step(op, x, results=count, axis=axis, size=size,
           raw="," if count == 1 else "")  # fmt: skip


@recipe("expand", "broadcast_to", "tile", "repeat_interleave", "broadcast_in_dim")
def repeat(d: Draw, op: str) -> None:
    x = d.pick(most=4)
    ahead = tuple(d.extent(4, 0) for _ in range(d.number(0, 2)))
    shape = (*ahead, *(d.extent(6) if n == 1 else n for n in x.shape))
    times = tuple(d.number(0 if d.chance(0.1) else 1, 3) for _ in (*ahead, *x.shape))
    dims = tuple(sorted(map(int, d.rng.permutation(len(shape))[: x.rank])))
    outer = [d.extent(5) for _ in shape]
    for n, i in zip(x.shape, dims, strict=True):
        outer[i] = n if n != 1 else outer[i]
    d.step(op, x, shape=shape, times=times, times_each=times[len(ahead) :], axis=d.axis(x),
           count=d.number(0, 3), dims=dims,
           outer=tuple(outer))  # fmt: skip


@recipe("gather", "take_along", "scatter", "scatter_add", "scatter_value", "scatter_sum",
        "scatter_amax", "scatter_amin", "scatter_mean", "scatter_prod")  # fmt: skip
def gather(d: Draw, op: str) -> None:
    x = d.pick(least=1, empty=False)
    axis = d.axis(x)
    shape = [n if i == axis % x.rank else d.number(1, n) for i, n in enumerate(x.shape)]
    if op == "take_along":
        shape = list(x.shape)
    shape[axis] = d.extent(8, 0)
    at = d.indices(tuple(shape), x.shape[axis])
    more = [d.like(x, shape)] if op not in ("gather", "take_along", "scatter_value") else []
    d.step(op, x, at, *more, axis=axis, c=d.one_of([0, 1, -2]), include=d.chance(0.5))


@recipe("index_select", "take", "embedding", "index_add", "index_copy", "index_fill", "index_put",
        "index_put_add", "index_get", "at_add", "at_mul", "at_max", "at_min", "at_set",
        "get_mode")  # fmt: skip
def index(d: Draw, op: str) -> None:
    x = d.pick(least=2 if op == "embedding" else 1, most=2 if op == "embedding" else 5, empty=False)
    axis = d.axis(x) if op in ("index_select", "take", "index_add", "index_copy",
    "index_fill") else 0
    n = x.shape[axis]
    flat = op in ("index_select", "index_add", "index_copy", "index_fill")
    shape = (d.extent(8, 0),) if flat else d.shape(0, 2)
    at = d.indices(shape, n, -n if op.startswith(("index_put", "at")) else 0)
    if op == "index_copy":
        at = d.given(d.rng.permutation(n)[: d.number(1, n)], plain=True)
    values = [*x.shape]
    values[axis % x.rank : axis % x.rank + 1] = at.shape
    reads = op in ("index_select", "take", "embedding", "index_get", "index_fill", "get_mode")
    d.step(op, x, at, *([] if reads else [d.like(x, values)]), axis=axis, c=d.one_of([0, 1, -2]),
           mode=d.one_of(["fill", "clip", "promise_in_bounds", "wrap"]))  # fmt: skip


@recipe("index_mixed", "index_put_mixed", "at_set_mixed", "at_add_mixed")
def index_mixed(d: Draw, op: str) -> None:
    """Advanced indices beside slices, in every order."""
    x = d.pick(least=2, most=5, empty=False)
    shape = d.shape(0, 2, empty=False)
    words, seen = [], 0
    for n in x.shape[: d.number(1, x.rank)]:
        kind = d.number(0, 5)
        if kind < 2:
            ones = tuple(1 if d.chance(0.2) else e for e in shape)
            words.append(d.indices(ones, n, -n).name)
            seen += 1
        elif kind == 2:
            words.append(str(d.number(-n, n - 1)))
        elif kind == 3 and d.chance(0.3):
            words.append("None")
        else:
            a, b = sorted((d.number(0, n), d.number(0, n)))
            words.append(d.one_of([":", f"{a}:{b}", f"{a}:", "::2"]))
    if not seen:
        raise Declined
    d.step(op, x, raw=", ".join(words), c=d.one_of([0, 1, -2, 3]))


@recipe("tril", "triu", "diagonal", "diag_embed", "trace", "diag", "block_diag")
def triangle(d: Draw, op: str) -> None:
    x = d.pick(least=1 if op == "diag" else 2, most=2 if op in ("diag", "trace") else 5)
    a, b = map(int, d.rng.permutation(max(x.rank, 2))[:2])
    d.step(op, x, k=d.number(-4, 4), a=a, b=b)


@recipe("unfold", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "im2col", "fold_back")
def blocks(d: Draw, op: str) -> None:
    if op == "unfold":
        x = d.pick(least=1, empty=False)
        axis = d.axis(x)
        d.step(op, x, axis=axis, size=d.number(1, x.shape[axis]), step=d.number(1, 4))
        return
    r = d.number(1, 3)
    c, h, w = (d.extent(4) for _ in range(3))
    shape = {"pixel_shuffle": (2, c * r * r, h, w), "pixel_unshuffle": (2, c, h * r, w * r),
             "channel_shuffle": (2, c * r, h, w)}.get(op, (2, c, h + 2, w + 3))  # fmt: skip
    x = d.fresh(d.dtype(d.writer.dtypes), shape)
    d.step(op, x, r=r, kernel=(d.number(1, 2), d.number(1, 3)), dilation=d.number(1, 2),
           padding=d.number(0, 1), stride=d.number(1, 2))  # fmt: skip


@recipe("arange", "linspace", "full", "eye", "iota", "tri", "full_like", "zeros_like", "one_hot")
def new(d: Draw, op: str) -> None:
    if op in ("full_like", "zeros_like"):
        d.step(op, d.pick(), c=d.one_of([0, 1, 2, -1]))
        return
    if op == "one_hot":
        n = d.extent(9)
        d.step(op, d.indices(d.shape(0, 3), n), n=n + d.number(0, 2))
        return
    kind = d.dtype([t for t in d.writer.dtypes if t != "bool" and "complex" not in t])
    shape = d.shape(1, 3)
    start, step = d.number(-5, 5), d.one_of([1, 2, 3, 0.5, -1])
    d.step(op, start=start, end=start + step * d.number(0, 9), step=step, count=d.number(0, 9),
           shape=shape, c=d.number(-3, 3), dtype=kind,
           axis=d.number(0, len(shape) - 1))  # fmt: skip
