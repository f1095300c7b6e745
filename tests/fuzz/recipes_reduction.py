"""Recipes for reductions, running totals, and for what looks at a whole axis."""

from __future__ import annotations

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES, FLOATS
from .inference import Declined, allowed
from .recipe import PATTERNS, recipe
from .recipes_movement import front, some_axes

REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
              "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare")  # fmt: skip


@recipe(*REDUCTIONS)
def reduce(d: Draft, op: str) -> None:
    extreme = op in ("ReduceMax", "ReduceMin")
    kinds = allowed(op, d.opset)
    if "Log" in op or op == "ReduceL2":
        kinds = [k for k in kinds if k in FLOATS]  # no two runtimes agree on whole logarithms
    if d.opset < 20:
        kinds = [k for k in kinds if k != "bool"]
    x = d.pick(kinds, empty=not extreme)
    more = d.some(op, keepdims=(0, 1), noop_with_empty_axes=(0, 0, 1))
    operand = d.opset >= (13 if op == "ReduceSum" else 18)
    if not x.rank or d.chance(0.2):
        if operand and d.chance(0.3):
            d.node(op, [x, d.given(np.zeros(0, np.int64), True)], **more)
        else:
            d.node(op, [x], **more)
        return
    axes = some_axes(d, x.rank)
    if operand:
        d.node(op, [x, d.ints(axes)], **more)
    else:
        d.node(op, [x], axes=axes if d.opset >= 11 else front(axes, x.rank), **more)


@recipe("ArgMax", "ArgMin")
def arg(d: Draft, op: str, x: Var | None = None) -> None:
    x = x or d.pick(allowed(op, d.opset), 1, empty=False)
    low = -x.rank if d.opset >= 11 else 0
    d.node(op, [x], **d.some(op, axis=range(low, x.rank), keepdims=(0, 1),
                             select_last_index=(0, 1)))  # fmt: skip


@recipe("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def along(d: Draft, op: str) -> None:
    plain = op == "LpNormalization" or d.opset >= 13
    x = d.pick(allowed(op, d.opset), 1 if plain else 2)
    low = -x.rank if d.opset >= 11 or op == "LpNormalization" else 0
    d.node(op, [x], types=[(x.dtype, x.shape)],
           **d.some(op, axis=range(low, x.rank), p=(1, 2)))  # fmt: skip


@recipe("CumSum", "CumProd")
def running(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 1)
    axis = np.array(d.number(-x.rank, x.rank - 1), DTYPES[d.one_of(("int64", "int32"))])
    if d.chance(0.1):
        axis = axis.reshape(1)
    d.node(op, [x, d.known(axis)], **d.some(op, exclusive=(0, 1), reverse=(0, 1)))


@recipe("TopK")
def top(d: Draft, op: str, x: Var | None = None) -> None:
    x = x or d.pick(allowed(op, d.opset), 1, empty=False)
    low = -x.rank if d.opset >= 11 else 0
    more = d.some(op, axis=range(low, x.rank), largest=(0, 1), sorted=(1,))
    extent = x.shape[more.get("axis", -1)]
    k = d.one_of((1, extent, d.number(0 if d.chance(0.1) and d.opset >= 10 else 1, extent)))
    if d.opset < 10:
        d.node(op, [x], outputs=2, k=k, **more)
    else:
        d.node(op, [x, d.ints([k])], outputs=2, **more)


@recipe("equal elements", table=PATTERNS)
def equal(d: Draft, op: str) -> None:
    """What looks for the largest elements, or the least, where many are equal."""
    x = d.pick(["float", "float", "float16", "double", "int8", "int32", "int64"], 1, 5, empty=False)
    if x.name in d.inputs and x.name not in d.controls:
        few = d.inputs[x.name].reshape(-1)[: d.number(1, 3)]
        d.inputs[x.name] = d.rng.choice(few, x.shape)
    for _ in range(4):
        name = d.one_of(("ArgMax", "ArgMin", "TopK"))
        if x.dtype in allowed(name, d.opset):
            (top if name == "TopK" else arg)(d, name, x)


@recipe("Det")
def determinant(d: Draft, op: str) -> None:
    n = d.one_of((1, 2, 3, 4, 5, 9))

    def shape() -> tuple[int, ...]:
        return (*d.shape(0, 2, empty=False)[:2], n, n)

    x = d.pick(allowed(op, d.opset), 2, 4, where=lambda v: v.shape[-1] == v.shape[-2] < 10,
               shape=shape)  # fmt: skip
    d.node(op, [x])


@recipe("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 2, 5, empty=False)
    classes = x.shape[1]
    shape = (x.shape[0], *x.shape[2:])
    labels = d.rng.integers(0, classes, shape)
    more = d.some(op, reduction=("mean", "sum", "none"))
    if d.chance(0.3):
        more["ignore_index"] = d.one_of((0, -1, -100, classes))
        labels = np.where(d.rng.random(shape) < 0.3, more["ignore_index"], labels)
    given = labels.astype(DTYPES[d.one_of(("int64", "int32"))])
    kept = np.ones(shape, bool)
    if "ignore_index" in more:
        kept = labels != more["ignore_index"]
    if more.get("reduction", "mean") == "mean" and not kept.any():
        raise Declined  # nothing divided by nothing
    targets = d.given(given, d.chance(0.5))
    if targets.name in d.inputs:
        d.controls[targets.name] = []
    weights = None
    if d.chance(0.5):
        positive = np.abs(d.contents(x.dtype, (classes,)).astype(np.float64)) + 0.5
        weights = d.given(positive.astype(DTYPES[x.dtype]), True)
    types = [(x.dtype, shape if more.get("reduction") == "none" else ())]
    if op[0] == "S" and d.chance(0.4):
        types.append((x.dtype, x.shape))
    d.node(op, [x, targets, weights], outputs=len(types), types=types, **more)
