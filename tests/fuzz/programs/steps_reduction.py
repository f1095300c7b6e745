"""Steps that look at whole axes: reductions, running totals, norms, sorts."""

from __future__ import annotations

from ..elements import FLOATS
from .program import Draw, recipe

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin", "all", "any", "logsumexp", "nansum", "nanmean",
              "count_nonzero", "var", "std", "var_mean", "norm1", "norm2", "norm_inf", "norm3",
              "norm0", "reduce_and", "reduce_or", "reduce_xor")  # fmt: skip


@recipe(*REDUCTIONS)
def reduce(d: Draw, op: str) -> None:
    x = d.pick()
    d.step(op, x, results=2 if op == "var_mean" else 1, axes=d.axes(x, int(d.chance(0.9))),
           keep=d.chance(0.5), correction=d.one_of([0, 1, 1, 2]))  # fmt: skip


@recipe("argmax", "argmin", "median", "nanmedian", "max_with", "min_with", "mode", "kthvalue",
        "argmax_all", "argmin_all", "sum_all", "max_all", "prod_all", "std_all",
        "quantile")  # fmt: skip
def along(d: Draw, op: str) -> None:
    x = d.pick(least=1, empty=d.chance(0.1))
    axis = d.axis(x)
    two = op in ("median", "nanmedian", "max_with", "min_with", "mode", "kthvalue")
    d.step(op, x, results=1 + two, axis=axis, keep=d.chance(0.5),
           k=d.number(1, max(x.shape[axis], 1)),
           q=d.one_of([0.0, 0.25, 0.5, 0.9, 1.0]))  # fmt: skip


@recipe("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "cummax_values", "cummin_values",
        "cumsum_reverse", "flip_cumsum", "associative_scan", "diff",
        "cumsum_exclusive")  # fmt: skip
def running(d: Draw, op: str) -> None:
    x = d.pick(least=1)
    d.step(op, x, results=2 if op in ("cummax", "cummin") else 1, axis=d.axis(x),
           reverse=d.chance(0.5))  # fmt: skip


@recipe("softmax", "log_softmax", "softmin", "normalize", "logsumexp_axis", "glu", "standardize")
def soft(d: Draw, op: str) -> None:
    x = d.pick(FLOATS, 1)
    d.step(op, x, axis=d.axis(x))


@recipe("layer_norm", "rms_norm", "layer_norm_plain")
def layer_norm(d: Draw, op: str) -> None:
    x = d.pick(FLOATS, 1, empty=d.chance(0.2))
    shape = x.shape[-d.number(1, x.rank) :]
    d.step(op, x, d.fresh(x.dtype, shape), d.fresh(x.dtype, shape), shape=shape,
           eps=d.one_of([1e-5, 1e-3, 0.1, 1e-12]))  # fmt: skip


@recipe("batch_norm", "batch_norm_trained", "instance_norm", "group_norm")
def channel_norm(d: Draw, op: str) -> None:
    x = d.pick(FLOATS, 2, empty=d.chance(0.2))
    c = x.shape[1]
    if not c:
        c = 1
    scale, shift, mean = (d.fresh(x.dtype, (c,)) for _ in range(3))
    (spread,) = d.step("abs", d.fresh(x.dtype, (c,)))
    groups = d.one_of([g for g in range(1, c + 1) if c % g == 0])
    d.step(op, x, scale, shift, mean, spread, eps=d.one_of([1e-5, 1e-3, 0.1]), groups=groups)


@recipe("sort", "argsort", "sort_values", "sort_two", "sort_by_key")
def sort(d: Draw, op: str) -> None:
    x = d.pick(least=1)
    d.step(op, x, *([d.like(x, x.shape, d.dtype(d.writer.dtypes))] if "_" in op[4:5] else []),
           results=2 if op in ("sort", "sort_two", "sort_by_key") else 1,
           axis=d.axis(x), descending=d.chance(0.5), keys=d.number(1, 2))  # fmt: skip


@recipe("topk", "topk_smallest")
def topk(d: Draw, op: str) -> None:
    x = d.pick(least=1, empty=d.chance(0.1))
    axis = d.axis(x)
    least = 0 if d.chance(0.1) else 1
    d.step(op, x, results=2, axis=axis, k=d.number(least, max(x.shape[axis], 1)))


@recipe("searchsorted", "bucketize")
def search(d: Draw, op: str) -> None:
    edges = d.pick(least=1, most=1, empty=d.chance(0.1))
    (edges,) = d.step("sort_values", edges, axis=-1, descending=False)
    d.step(op, edges, d.fresh(edges.dtype, d.shape(0, 3)), right=d.chance(0.5))
