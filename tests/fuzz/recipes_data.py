"""Recipes for operators whose results are as large as their data say."""

from __future__ import annotations

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES, INTS
from .inference import allowed
from .recipe import STAGED, recipe
from .recipes_control import loosen


def made(d: Draft, op: str, given: list[Var | None], types: list[tuple[str, tuple[int, ...]]],
         **attributes: object) -> None:  # fmt: skip
    """Add a node whose results have no fixed shape."""
    for v in d.node(op, given, outputs=len(types), types=types, **attributes):
        loosen(d, v)


@recipe("NonZero", table=STAGED)
def nonzero(d: Draft, op: str) -> None:
    x = d.pick([t for t in allowed(op, d.opset) if t != "bfloat16"], 1, 4)
    made(d, op, [x], [("int64", (x.rank, 1))])


@recipe("Compress", table=STAGED)
def compress(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1, 4)
    if d.chance(0.3):
        c = d.fresh("bool", (d.number(0, int(np.prod(x.shape))),))
        made(d, op, [x, c], [(x.dtype, (1,))])
        return
    axis = d.number(0, x.rank - 1)
    c = d.fresh("bool", (d.number(0, x.shape[axis]),))
    shape = list(x.shape)
    shape[axis] = 1
    made(d, op, [x, c], [(x.dtype, tuple(shape))], axis=axis - x.rank if d.chance(0.3) else axis)


@recipe("Unique", table=STAGED)
def unique(d: Draft, op: str) -> None:
    x = d.pick([t for t in allowed(op, d.opset) if t in (*INTS, "bool", "float", "double")],
               0, 3, empty=False)  # fmt: skip
    axis = {"axis": d.number(-x.rank, x.rank - 1)} if x.rank and d.chance(0.4) else {}
    types = [(x.dtype, (1,) * (x.rank if axis else 1)), *[("int64", (1,))] * d.number(0, 3)]
    made(d, op, [x], types, **d.some(op, sorted=(0, 1)), **axis)


@recipe("NonMaxSuppression", table=STAGED)
def suppress(d: Draft, op: str) -> None:
    batch, classes, count = d.number(1, 2), d.number(1, 3), d.number(1, 12)
    corners = d.rng.integers(0, 20, (batch, count, 4)).astype(np.float32) / 8
    scores = d.rng.random((batch, classes, count)).astype(np.float32)
    most = d.given(np.array([d.number(0, 6)], np.int64), d.chance(0.6))
    if most.name in d.inputs:
        d.controls[most.name] = []
    overlap = d.given(np.array([d.one_of((0.0, 0.3, 0.6))], np.float32), True)
    least = d.given(np.array([0.25], np.float32), True) if d.chance(0.5) else None
    given: list[Var | None] = [d.given(corners), d.given(scores)]
    if d.chance(0.85):
        given += [most, overlap if d.chance(0.8) else None, least]
    made(d, op, given, [("int64", (1, 3))], **d.some(op, center_point_box=(0, 1)))


@recipe("Range", table=STAGED)
def count(d: Draft, op: str) -> None:
    kind = DTYPES[d.one_of(("int64", "int32", "float"))]
    begin, end, step = d.number(-5, 5), d.number(-9, 9), d.one_of((1, 2, -1))
    given = [d.control(np.array(n, kind), np.array(n + 2 * (n > 0), kind)) for n in (begin, end)]
    made(d, op, [*given, d.given(np.array(step, kind), True)], [(given[0].dtype, (1,))])
