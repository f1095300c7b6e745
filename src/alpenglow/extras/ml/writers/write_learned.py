"""Writers of what classical learners are made of: trees, counts of words, coupled probabilities."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.proto import scan
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_movement import expanded, sliced
from alpenglow.exporters.onnx.writer import Operand, Refused, Tensor, Writer
from alpenglow.extras.ml.grams import CountGrams
from alpenglow.extras.ml.probability import PRECISION, ROUNDS, Couple
from alpenglow.extras.ml.tree import TreeEnsemble, neutral
from alpenglow.ir.dims import Dim, is_open
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array

REDUCED = {"sum": "ReduceSum", "min": "ReduceMin", "max": "ReduceMax"}
"""The operator of ONNX for each aggregate of trees."""


# ── trees ──


@on(TreeEnsemble)
def tree_ensemble(
    w: Writer, op: TreeEnsemble, x: Value, nodes: Value, target: Value, weight: Value,
    first: Value | None,
) -> Tensor:  # fmt: skip
    """Write a step down all trees at once, so many as there are levels, and a table of leaves."""
    operands = [v.array for v in (nodes, target, weight) if v.array is not None]
    if len(operands) < 3 or (first is not None and first.array is None):
        raise Refused("the trees are computed, expected constants")
    records, targets, weights = operands
    leaf = _leaves(w, op, x, records)
    table = said_by_leaves(op, targets, weights, None if first is None else first.array)
    last = np.array(len(table) - 1, np.int64)
    said = w("Gather", table, w("Min", leaf, last), axis=0)
    y = w(REDUCED[op.aggregate], said, np.array([1], np.int64), keepdims=0)
    if op.aggregate == "sum":
        return y
    m = OnnxMath(w)
    return m.where(m.isinf(y), 0.0, y)


def _leaves(w: Writer, op: TreeEnsemble, x: Value, records: Array) -> Tensor:
    """Return the number of the leaf that each row comes to in each tree, [rows, trees]."""
    m, word = OnnxMath(w), records[:, 1].astype(np.uint64)
    threshold = records[:, 0].astype(f"i{x.type.numpy.itemsize}").view(x.type.numpy)
    number = (word >> np.uint64(33)).astype(np.int64)
    nan = (word >> np.uint64(32)) % 2 == 1
    child = (word % 2**32).astype(np.int64)
    features = x.type.shape[1]
    if is_open(features):
        raise Refused("the number of features is dynamic, expected a fixed number")
    feature = np.minimum(number, max(int(features) - 1, 0))
    node: Tensor = expanded(w, np.arange(op.trees), (x.type.shape[0], op.trees))
    for _ in range(op.depth):
        value = w("GatherElements", x, w("Gather", feature, node, axis=0), axis=1)
        yes = m.le(value, w("Gather", threshold, node, axis=0))
        if nan.any():
            yes = m.bit_or(yes, m.bit_and(m.isnan(value), w("Gather", nan, node, axis=0)))
        following = m.add(w("Gather", child, node, axis=0), w.cast(yes, "i64"))
        node = m.minimum(following, len(records) - 1)
    return w("Gather", number, node, axis=0)


def said_by_leaves(op: TreeEnsemble, target: Array, weight: Array, first: Array | None) -> Array:
    """Return what each leaf says of each target; where it says nothing, what changes nothing."""
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[op.aggregate]
    ends = np.arange(len(weight) + 1) if first is None else np.clip(first, 0, len(weight))
    table = np.full((len(ends) - 1, op.targets), neutral(op.aggregate), weight.dtype)
    for row, (start, end) in zip(table, pairwise(ends), strict=True):
        places = np.clip(target[start:end], 0, op.targets - 1)
        combine.at(row, places, weight[start:end])
    return table


# ── counts of words ──


@on(CountGrams)
def count_grams(w: Writer, op: CountGrams, x: Value, grams: Value, columns: Value) -> Tensor:
    """Compare all places with all rows of the table, and add hits up by column."""
    (rows, length), (kinds, n) = x.type.shape, grams.type.shape
    if is_open(length) or is_open(n):
        raise Refused("the length of the texts is dynamic, expected a fixed number")
    words, m, counts = w.cast(x, "i64"), OnnxMath(w), None
    for distance in range(1, min(op.distances, int(length)) + 1):
        places = int(length) - (int(n) - 1) * distance
        if places < 1:
            break
        hits = _hits(w, words, grams, (rows, length), distance, places)
        number = w("ReduceSum", w.cast(hits, "f32"), np.array([1], np.int64), keepdims=0)
        counts = number if counts is None else m.add(counts, number)
    if counts is None:
        counts = expanded(w, np.zeros((1, 1), np.float32), (rows, kinds))
    column = w("Unsqueeze", columns, np.array([1], np.int64))
    places_of = w.cast(m.eq(column, np.arange(op.width)), "f32")
    return w("MatMul", counts, places_of)


def _hits(
    w: Writer, x: Tensor, grams: Value, shape: tuple[Dim, ...], distance: int, places: int
) -> Tensor:
    """Return if a row of the table begins at a position of x: bool[rows, places, kinds]."""
    m, hits = OnnxMath(w), None
    n = grams.type.shape[1]
    for j in range(int(n)):
        word = sliced(w, x, shape, (0, j * distance), (shape[0], places), (1, 1))
        wanted = w("Gather", grams, np.array(j, np.int64), axis=1)
        same = m.eq(w("Unsqueeze", word, np.array([2], np.int64)), wanted)
        hits = same if hits is None else m.bit_and(hits, same)
    assert hits is not None, "a gram has an element"
    return hits


# ── coupled probabilities ──


@on(Couple)
def couple(w: Writer, op: Couple, r: Value) -> Tensor:
    """Write the rounds as a loop: what is near enough stays as it is."""
    rows, classes, _ = r.type.shape
    if is_open(classes):
        raise Refused("the number of classes is dynamic, expected a fixed number")
    count, numpy = int(classes), r.type.numpy
    if 0 in (rows, count):
        return expanded(w, np.zeros((1, 1), numpy), (rows, count))
    m = OnnxMath(w)
    off = ~np.eye(count, dtype=np.bool_)
    across = w("Transpose", r, perm=(0, 2, 1))
    apart = m.where(off, m.neg(m.mul(across, r)), 0.0)
    squares = m.where(off, m.mul(across, across), 0.0)
    own = w("ReduceSum", squares, np.array([2], np.int64))
    q = m.where(off, apart, own)
    p = expanded(w, np.full((1, 1), 1 / count, numpy), (rows, count))
    going = expanded(w, np.ones((1, 1), np.bool_), (rows, 1))

    def step(b: Writer, states: list[Tensor], _: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        return _round(b, q, states[0], states[1], count), []

    rounds = w.tensor(np.zeros(ROUNDS, np.bool_))
    return scan(w, step, [p, going], [rounds], [])[0]


def _round(b: Writer, q: Tensor, p: Tensor, going: Tensor, count: int) -> list[Tensor]:
    """Return p[N, C] after one round, and which rows are still to be improved."""
    m, last = OnnxMath(b), np.array([1], np.int64)
    column = np.array([2], np.int64)
    qp = b("Squeeze", b("MatMul", q, b("Unsqueeze", p, column)), column)
    total = b("ReduceSum", m.mul(p, qp), last)
    error = b("ReduceMax", m.abs(m.sub(qp, total)), last)
    going = m.bit_and(going, m.bit_not(m.lt(error, PRECISION / count)))
    better = p
    for i in range(count):
        row = b("Gather", q, np.array(i, np.int64), axis=1)
        own, of = (b("Gather", v, np.array([i], np.int64), axis=1) for v in (row, qp))
        change = m.div(m.sub(total, of), own)
        scale = m.add(change, 1.0)
        more = m.mul(change, m.add(m.mul(change, own), m.mul(of, 2.0)))
        total = m.div(m.div(m.add(total, more), scale), scale)
        qp = m.div(m.add(qp, m.mul(change, row)), scale)
        at: Operand = np.arange(count) == i
        better = m.div(m.where(at, m.add(better, change), better), scale)
    return [m.where(going, better, p), going]
