"""Steps that branch and turn, and those that write in place; bodies are text of the format."""

from __future__ import annotations

import numpy as np

from .program import Draw, recipe


@recipe("cond", "switch", "while", "while_data", "fori", "fori_open", "scan", "scan_xs", "map",
"vmap", "map_two",
        "scan_reverse", "checkpoint", "while_two")  # fmt: skip
def control(d: Draw, op: str) -> None:
    x = d.pick(least=1 if op in ("scan_xs", "map", "vmap", "scan_reverse", "map_two") else 0)
    condition = d.given(np.asarray(d.chance(0.5)), False, plain=True)
    number = d.given(np.asarray(d.number(-1, 4), np.int32), False, plain=True)
    count = d.one_of([0, 1, 2, 3, 5, 20])
    d.step(op, x, d.beside(x), condition, number, results=2 if op in TWO else 1,
           count=count, low=d.number(-2, count), c=d.one_of([0.5, 1, 2, 3]), pick=d.number(0, 4),
           limit=d.one_of([0.0, 3.0, 50.0]), reverse=d.chance(0.5))  # fmt: skip


TWO = ("scan", "scan_xs", "scan_reverse", "while_two")


@recipe("add_", "mul_", "sub_", "copy_", "div_", "pow_", "clamp_", "fill_", "zero_", "relu_",
"neg_",
        "masked_fill_", "write_slice", "write_scalar", "write_view", "write_transposed",
        "write_row",
        "write_diagonal", "write_chunk", "write_expanded", "write_flat", "write_out", "write_mask",
        "squeeze_", "transpose_", "as_strided", "write_both", "sigmoid_", "write_detached",
        "sort_out",
        "write_real", "cumsum_", "index_add_", "scatter_", "write_unbound", "write_narrow", "lerp_",
        "addcmul_", "where_write", "iadd", "imul", "write_stepped", "write_self",
        "triu_")  # fmt: skip
def write(d: Draw, op: str) -> None:
    x = d.pick(least=1, where=lambda v: v.name[:1] != "w" and (v.name[:1] != "x" or d.chance(0.3)))
    if x.name[0] == "w":
        return
    axis = d.axis(x)
    n = x.shape[axis]
    a = d.number(0, max(n - 1, 0))
    b = d.number(a, n)
    cut = [*x.shape]
    cut[axis] = b - a
    brackets = ", ".join([":"] * (axis % x.rank) + [f"{a}:{b}"])
    row = ", ".join([":"] * (axis % x.rank) + [str(a - n * int(d.chance(0.3)))])
    rest = [e for i, e in enumerate(x.shape) if i != axis % x.rank]
    other = {"write_slice": cut, "write_view": cut, "write_row": rest, "write_chunk": (),
             "write_narrow": cut}.get(op)  # fmt: skip
    y = d.beside(x) if other is None else d.like(x, other if d.chance(0.7) else ())
    d.step(op, x, y, d.like(x, x.shape, "bool"), axis=axis, b=d.axis(x), raw=brackets, row=row,
           raw_row=row, c=d.one_of([0, 1, 2, -1, 3]), start=a, count=b - a, low=-1, high=2,
           size=d.number(1, max(n, 1)), step=d.number(1, 3))  # fmt: skip
