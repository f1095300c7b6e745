"""Steps that multiply and add: products of matrices, convolutions, pools, attention."""

from __future__ import annotations

import math

from ..elements import FLOATS
from ..inference import Declined
from .program import Draw, Value, recipe

NUMBERS = (*FLOATS, "int32", "int64", "int8", "uint8", "complex64")


@recipe("matmul", "linear", "bmm", "addmm", "baddbmm", "outer", "dot", "mv", "kron", "inner")
def matmul(d: Draw, op: str) -> None:
    x = d.pick(NUMBERS, 1, 5)
    k = x.shape[-1]
    n = d.extent(33)
    if op == "matmul":
        shape = (k, n) if d.chance(0.8) else (k,)
        batch = x.shape[:-2]
        batch = tuple(1 if d.chance(0.2) else b for b in batch)[d.number(0, len(batch)) :]
        d.step(op, x, d.like(x, (*batch, *shape) if len(shape) > 1 else shape))
    elif op == "linear":
        d.step(op, x, d.like(x, (n, k)), d.fresh(x.dtype, (n,)))
    elif op in ("bmm", "baddbmm"):
        x = d.pick(NUMBERS, 3, 3)
        b, m, k = x.shape
        d.step(op, x, d.like(x, (b, k, n)), d.fresh(x.dtype, d.one_of([(b, m, n), (n,), (m, 1)])),
               alpha=d.one_of([1, 2, 3]), beta=d.one_of([0, 1, 2]))  # fmt: skip
    elif op in ("addmm", "mv"):
        x = d.pick(NUMBERS, 2, 2)
        right = (x.shape[1], n) if op == "addmm" else (x.shape[1],)
        d.step(op, x, d.like(x, right), d.fresh(x.dtype, d.one_of([(n,), (x.shape[0], n), (1,)])),
               alpha=d.one_of([1, 2, 3]), beta=d.one_of([0, 1, 2]))  # fmt: skip
    else:
        x = d.pick(NUMBERS, 1, 1)
        d.step(op, x, d.like(x, x.shape if op in ("dot", "inner") else (n,)))


EINSUMS = ("ij,jk->ik", "ij,kj->ki", "bij,bjk->bik", "bij,bkj->bki", "i,j->ij", "ij,ij->i",
           "ij,ij->", "abc,cd->abd", "abc,cbd->ad", "abcd,ae->ebcd", "ab,bc,cd->ad", "ij,j->i",
           "bhqd,bhkd->bhqk", "ijk,jl->ilk", "ijk->kji", "ijj->i", "ii->i", "ij->")  # fmt: skip


@recipe("einsum", "dot_general")
def einsum(d: Draw, op: str) -> None:
    if op == "dot_general":
        dot_general(d)
        return
    text = d.one_of(EINSUMS)
    sizes = {c: d.extent(9, int(d.chance(0.95))) for c in "abcdehijklq"}
    kind = d.dtype(FLOATS if d.chance(0.8) else NUMBERS)
    terms = [d.fresh(kind, tuple(sizes[c] for c in t)) for t in text.partition("->")[0].split(",")]
    d.step(op, *terms, text=text, raw=", ".join(t.name for t in terms))


def dot_general(d: Draw) -> None:
    """Any axes of either side are summed or go along."""
    rank = d.number(1, 4)
    x = d.pick(NUMBERS, rank, rank)
    free = [(d.extent(7),) for _ in range(d.number(0, 2))]
    axes = [int(a) for a in d.rng.permutation(x.rank)]
    batch = axes[: d.number(0, len(axes) - 1)]
    summed = axes[len(batch) : len(batch) + d.number(0, len(axes) - len(batch))]
    pieces = [("b", a) for a in batch] + [("s", a) for a in summed] + [("f", f[0]) for f in free]
    order = [pieces[int(i)] for i in d.rng.permutation(len(pieces))]
    shape = [n if k == "f" else x.shape[n] for k, n in order]
    there = {(k, n): i for i, (k, n) in enumerate(order) if k != "f"}
    dims = ((tuple(summed), tuple(there["s", a] for a in summed)),
            (tuple(batch), tuple(there["b", a] for a in batch)))  # fmt: skip
    d.step("dot_general", x, d.like(x, shape), dims=dims)


@recipe("conv", "conv_transpose", "conv_same", "conv_general")
def conv(d: Draw, op: str) -> None:
    n = d.one_of([1, 2, 2, 2, 3])
    groups = d.one_of([1, 1, 1, 2, 3, 4])
    per, out = d.one_of([1, 1, 2, 3, 4, 8]), d.one_of([1, 1, 2, 3, 4, 8]) * groups
    kernel = tuple(d.one_of([1, 1, 2, 3, 3, 4, 5]) for _ in range(n))
    dilation = tuple(d.one_of([1, 1, 1, 2, 3]) for _ in range(n))
    least = [(k - 1) * s + 1 for k, s in zip(kernel, dilation, strict=True)]
    size = tuple(m + d.number(0, 7) for m in least)
    kind = d.dtype(FLOATS)
    fitting = [v for v in d.made if v.rank == n + 2 and v.dtype in FLOATS and 0 not in v.shape
               and all(a >= b for a, b in zip(v.shape[2:], least, strict=True))]  # fmt: skip
    x = d.one_of(fitting) if fitting and d.chance(0.6) else d.fresh(
        kind, (d.number(1, 3), per * groups, *size))  # fmt: skip
    if x.shape[1] != per * groups:
        groups = d.one_of([g for g in range(1, x.shape[1] + 1) if x.shape[1] % g == 0])
        per, out = x.shape[1] // groups, groups * d.one_of([1, 2, 3])
    turned = op == "conv_transpose"
    w = d.fresh(x.dtype, (per * groups, out // groups, *kernel) if turned else (out, per, *kernel))
    stride = tuple(d.one_of([1, 1, 2, 3]) for _ in range(n))
    padding = tuple(d.number(0, 3) for _ in range(n))
    space = "DHW"[-n:]
    pads = tuple((d.number(-1, 3), d.number(-1, 3)) for _ in range(n))
    d.step(op, x, w, d.fresh(x.dtype, (out,)), n=n, stride=stride, padding=padding, pads=pads,
           dilation=dilation, groups=groups, raw_n=str(n), same=d.one_of(["SAME", "VALID"]),
           lhs=tuple(d.one_of([1, 1, 2, 3]) for _ in range(n)),
           extra=tuple(d.number(0, max(s - 1, 0)) for s in stride),
           layouts=("NC" + space, "OI" + space, "NC" + space),
           turned=("NC" + space, space + "IO", "NC" + space),
           channels_last=("N" + space + "C", space + "IO", "NC" + space))  # fmt: skip


@recipe("max_pool", "avg_pool", "lp_pool", "max_pool_indices", "reduce_window")
def pool(d: Draw, op: str) -> None:
    n = d.one_of([1, 2, 2, 2, 3])
    x = d.pick(FLOATS if op != "reduce_window" else NUMBERS[:-1], n + 1, n + 2, empty=False)
    kernel = tuple(d.number(1, 4) for _ in range(n))
    stride = tuple(d.one_of([1, 1, 2, 3, 5]) for _ in range(n))
    everywhere = tuple(d.number(1, 3) for _ in x.shape)
    d.step(op, x, results=2 if op == "max_pool_indices" else 1, raw_n=str(n), kernel=kernel,
           stride=stride, padding=tuple(d.number(0, k // 2) for k in kernel),
           dilation=tuple(d.one_of([1, 1, 2]) for _ in range(n)), ceil=d.chance(0.4),
           count=d.chance(0.5), divisor=d.one_of([None, None, 3]), p=d.one_of([1, 2, 3]),
           window=everywhere, strides=tuple(d.number(1, 3) for _ in x.shape),
           pads=tuple((d.number(0, 2), d.number(0, 2)) for _ in x.shape),
           base=tuple(d.one_of([1, 1, 2]) for _ in x.shape),
           spread=tuple(d.one_of([1, 1, 2]) for _ in x.shape),
           kind=d.one_of(["add", "max", "min", "mul"]))  # fmt: skip


@recipe("adaptive_avg_pool", "adaptive_max_pool", "interpolate")
def adapt(d: Draw, op: str) -> None:
    n = d.one_of([1, 2, 2, 3])
    x = d.pick(FLOATS, n + 2, n + 2, empty=False)
    if math.prod(x.shape[2:]) > 600:
        raise Declined
    modes = {1: ["nearest", "linear"], 2: ["nearest", "bilinear", "bicubic", "area",
    "nearest-exact"],
             3: ["nearest", "trilinear"]}  # fmt: skip
    mode = d.one_of(modes[n])
    smooth = mode.endswith(("linear", "cubic"))
    d.step(op, x, raw_n=str(n), size=tuple(d.extent(9) for _ in range(n)), mode=mode,
           align=d.chance(0.5) if smooth else None,
           scale=tuple(d.one_of([0.5, 1.5, 2.0, 3.0, 0.7]) for _ in range(n)),
           method=d.one_of(["nearest", "linear", "cubic", "lanczos3"]),
           full=(*x.shape[:2], *(d.extent(9) for _ in range(n))),
           antialias=d.chance(0.5))  # fmt: skip


@recipe("attention", "attention_masked")
def attention(d: Draw, op: str) -> None:
    b, h, q, k, e, v = (d.extent(9) for _ in range(6))
    kind = d.dtype(FLOATS)
    query, key, value = (d.fresh(kind, s) for s in ((b, h, q, e), (b, h, k, e), (b, h, k, v)))
    mask: list[Value] = []
    if op == "attention_masked":
        shape = d.one_of([(q, k), (b, 1, q, k), (1, k)])
        mask = [d.fresh("bool" if d.chance(0.5) else kind, shape)]
    d.step(op, query, key, value, *mask, scale=d.one_of([None, None, 0.5, 2.0]),
           causal=d.chance(0.4))  # fmt: skip


@recipe("cdist", "cosine_similarity", "pairwise", "cross", "bilinear", "mse", "smooth_l1", "huber",
        "bce", "bce_logits", "kl_div", "nll", "cross_entropy")  # fmt: skip
def distances(d: Draw, op: str) -> None:
    if op in ("nll", "cross_entropy"):
        n, c = d.extent(9), d.extent(9)
        more = tuple(d.extent(4) for _ in range(d.number(0, 2)))
        x = d.fresh(d.dtype(FLOATS), (n, c, *more))
        d.step(op, x, d.indices((n, *more), c), reduction=d.one_of(["none", "mean", "sum"]),
               smoothing=d.one_of([0.0, 0.0, 0.1, 0.5]), ignore=d.one_of([-100, 0, 1]))  # fmt: skip
        return
    if op == "cross":
        x = d.fresh(d.dtype(FLOATS), (*d.shape(0, 2), 3))
        d.step(op, x, d.fresh(x.dtype, x.shape))
        return
    x = d.pick(FLOATS, 2, 3 if op == "cdist" else 5)
    y = d.like(x, (*x.shape[:-2], d.extent(7), x.shape[-1]) if op == "cdist" else x.shape)
    if op == "bce":
        (x,), (y,) = d.step("sigmoid", x), d.step("sigmoid", y)
    d.step(op, x, y, axis=d.axis(x), p=d.one_of([0.0, 1.0, 2.0, 3.0, float("inf")])
           if False else d.one_of([0.0, 1.0, 2.0, 3.0]), beta=d.one_of([0.5, 1.0, 2.0]),
           reduction=d.one_of(["none", "mean", "sum"]))  # fmt: skip
