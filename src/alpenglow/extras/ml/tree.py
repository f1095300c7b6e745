"""Ensembles of decision trees, as flat arrays of nodes and leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_rank
from alpenglow.ir.types import Array, TensorType

AGGREGATES = ("sum", "min", "max")
REALS = frozenset({"f32", "f64"})


class TreeEnsemble(Primitive):
    """The sum, minimum or maximum of the leaves that all trees select for each row of x, by target.

    The nodes [N, 2] are records of two words, side by side as they are read:

        the bits of a threshold; those of an f32 are in the lower half
        feature * 2^33 + nan * 2^32 + child

    A node sends a row to the record child + 1 if x[feature] <= threshold, or if that element is
    NaN and nan is 1; else to child.  A leaf has a threshold of NaN and itself for its child, so
    that a row stays; in place of a feature it has its number.  The first `trees` records are the
    roots, and no path has more than `depth` nodes above its leaf.  Leaf l adds weight[e] to the
    target target[e] for every e from first[l] up to first[l+1]; without `first` it has the one
    entry l.  A target that no leaf names is 0.

    Indices that are out of range are limited to what there is.  ONNX ML TreeEnsemble, whose modes
    of comparison all can be put as <= (see the front end).
    """

    targets: int
    trees: int
    depth: int
    aggregate: str = "sum"

    def infer(
        self,
        x: TensorType,
        nodes: TensorType,
        target: TensorType,
        weight: TensorType,
        first: TensorType | None = None,
    ) -> TensorType:
        check_dtype(self, "x", x, REALS)
        check_rank(self, "x", x, 2, 2)
        check_dtype(self, "weight", weight, REALS)
        if self.aggregate not in AGGREGATES:
            raise TypeRuleError(
                f"tree_ensemble: aggregate is '{self.aggregate}', expected one of "
                f"{', '.join(AGGREGATES)}"
            )
        if self.targets < 1 or self.trees < 1 or self.depth < 0:
            raise TypeRuleError(
                f"tree_ensemble: targets is {self.targets}, trees {self.trees} and depth "
                f"{self.depth}, expected at least 1, 1 and 0"
            )
        for what, t in (("target", target), ("weight", weight)):
            check_rank(self, what, t, 1, 1)
            if t.shape == (0,):
                raise TypeRuleError(f"tree_ensemble: {what} is {t}, expected at least one element")
        wanted: list[tuple[str, TensorType | None, str, tuple[Dim, ...]]] = [
            ("nodes", nodes, "i64", (*nodes.shape[:1], 2)),
            ("target", target, "i32", weight.shape),
            ("first", first, "i32", () if first is None else first.shape[:1]),
        ]
        for what, operand, dtype, shape in wanted:
            if operand is not None and operand != TensorType(dtype, shape):
                raise TypeRuleError(
                    f"tree_ensemble: {what} is {operand}, expected {TensorType(dtype, shape)}"
                )
        if known(nodes.shape[0]) and max(self.trees, self.depth) > nodes.shape[0]:
            raise TypeRuleError(
                f"tree_ensemble: trees is {self.trees} and depth {self.depth}, expected at most "
                f"{nodes.shape[0]}, the number of nodes"
            )
        if first is not None and known(first.shape[0]) and first.shape[0] < 2:
            raise TypeRuleError(f"tree_ensemble: first is {first}, expected one leaf or more")
        if x.shape[1] == 0 and self.depth:
            raise TypeRuleError(f"tree_ensemble: x is {x}, expected at least 1 feature")
        return TensorType(weight.dtype, (x.shape[0], self.targets))

    def reference(
        self, x: Array, nodes: Array, target: Array, weight: Array, first: Array | None = None
    ) -> Array:
        rows = np.arange(len(x))[:, None]
        threshold = _thresholds(nodes, x.dtype)
        word = nodes[:, 1].astype(np.uint64)
        feature = (word >> np.uint64(33)).astype(np.int64)
        nan, child = (word >> np.uint64(32)) % 2 == 1, (word % 2**32).astype(np.int64)
        node = np.broadcast_to(np.arange(self.trees), (len(x), self.trees))
        for _ in range(self.depth):
            value = x[rows, np.minimum(feature[node], x.shape[1] - 1)]
            yes = (value <= threshold[node]) | (np.isnan(value) & nan[node])
            node = np.minimum(child[node] + yes, len(nodes) - 1)
        return aggregated(self, feature[node], target, weight, first)

    def gradient(
        self, b: Graph, dy: Value, x: Value, nodes: Value, target: Value, weight: Value,
        first: Value | None = None,
    ) -> tuple[None, None, None, UnsupportedError, None]:  # fmt: skip
        """Nothing changes with x but where it crosses a threshold, as with any comparison."""
        error = UnsupportedError("gradient of tree_ensemble by weight is not supported")
        return None, None, None, error, None

    @classmethod
    def examples(cls) -> Examples:
        yield from small(cls(1, 2, 2), "f32[7,3]", np.float32)
        yield from small(cls(1, 2, 2, "min"), "f32[1,3]", np.float32)
        yield from small(cls(3, 2, 2, "max"), "f64[5,3]", np.float64)
        yield from small(cls(3, 2, 2), "f32[0,3]", np.float32)
        yield cls(2, 21, 3), *grown(21, 3, 2, np.float32, several=True)
        yield cls(2, 5, 3, "min"), *grown(5, 3, 2, np.float64, several=True)
        yield cls(1, 40, 4), *grown(40, 4, 1, np.float32, several=False)
        yield cls(1, 40, 4, "max"), *grown(40, 4, 1, np.float32, several=False)
        yield cls(5, 35, 4), *grown(35, 4, 5, np.float64, several=False)
        none = np.zeros(0, np.int32)
        stump = records(none, none.astype(np.float32), none.reshape(0, 2), np.array([-1]), none)
        yield (cls(1, 1, 0), "f32[3,2]", stump, np.array([0], np.int32),
               np.array([1.5], np.float32))  # fmt: skip


def records(feature: Array, threshold: Array, children: Array, roots: Array, nan: Array) -> Array:
    """Return the nodes of a TreeEnsemble from flat arrays of inner nodes that form no cycle.

    A child or a root is the number of a node, or -1 - the number of a leaf; node i sends a row to
    children[i,1] if x[feature[i]] <= threshold[i].  The roots come first, and then the children of
    all nodes in pairs, level by level: what all trees read at first lies together.
    """
    order, placed = [np.zeros(0, np.int64)], np.zeros(len(feature), np.bool_)
    front = distinct(roots, len(feature))
    while len(front):
        order.append(front)
        placed[front] = True
        following = distinct(children[front], len(feature))
        front = following[~placed[following]]
    level = np.concatenate(order)
    # Behind the nodes stands what all leaves have in common.
    last = len(feature)
    at = np.concatenate([roots, children[level].reshape(-1)]).astype(np.int64)
    inner, node = at >= 0, np.where(at >= 0, at, last)
    child = np.zeros(last + 1, np.int64)
    child[level] = len(roots) + 2 * np.arange(len(level))
    number = np.where(inner, np.append(feature, 0)[node], -1 - at)
    nodes = np.empty((len(at), 2), np.int64)
    bits = np.append(threshold, threshold.dtype.type("nan"))
    nodes[:, 0] = bits.view(f"i{bits.itemsize}")[node]
    nodes[:, 1] = number << 33
    nodes[:, 1] |= np.append(nan, False)[node].astype(np.int64) << 32
    nodes[:, 1] |= np.where(inner, child[node], np.arange(len(at)))
    return nodes


def distinct(numbers: Array, count: int) -> Array:
    """Return the different numbers of those from 0 up to `count`, in order."""
    numbers = numbers[numbers >= 0]
    if len(numbers) < count // 8:
        return np.unique(numbers)
    there = np.zeros(count, np.bool_)  # NumPy looks for many numbers ten times as long
    there[numbers] = True
    return np.flatnonzero(there)


def _thresholds(nodes: Array, dtype: np.dtype[Any]) -> Array:
    """Return the numbers whose bits are in the first words."""
    return nodes[:, 0].astype(f"i{dtype.itemsize}").view(dtype)


def aggregated(
    op: TreeEnsemble, leaf: Array, target: Array, weight: Array, first: Array | None
) -> Array:
    """Return the aggregated weights of leaves [N, trees] by target, in the order of the trees."""
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[op.aggregate]
    start = neutral(op.aggregate)
    out = np.full((len(leaf), op.targets), start, weight.dtype)
    ends = np.arange(len(weight) + 1) if first is None else np.clip(first, 0, len(weight))
    leaf = np.minimum(leaf, len(ends) - 2)
    for row, leaves in zip(out, leaf, strict=True):
        for one in leaves:
            for e in range(ends[one], ends[one + 1]):
                t = min(max(int(target[e]), 0), op.targets - 1)
                row[t] = combine(row[t], weight[e])
    if op.aggregate != "sum":
        out[out == start] = 0
    return out


def neutral(aggregate: str) -> float:
    """Return the neutral element of an aggregate."""
    return {"sum": 0.0, "min": float("inf"), "max": float("-inf")}[aggregate]


def small(op: TreeEnsemble, x: str, dtype: type[np.floating]) -> Examples:
    """Yield an ensemble of two trees, one of them a leaf, with a NaN that goes either way."""
    feature = np.array([0, 2, 1], np.int32)
    threshold = np.array([0.5, -1, 2], dtype)
    children = np.array([[1, -1], [-2, 2], [-3, -4]], np.int32)
    nan = np.array([True, False, True])
    nodes = records(feature, threshold, children, np.array([0, -5], np.int32), nan)
    target, weight = np.arange(5, dtype=np.int32) % op.targets, np.arange(5).astype(dtype) - 1.5
    yield op, x, nodes, target, weight
    rows = np.array([[np.nan, 1, 0], [9, np.nan, -2], [9, 0, np.nan]], dtype)
    yield op, rows, nodes, target, weight


def grown(
    trees: int, depth: int, targets: int, dtype: type[np.floating], several: bool
) -> tuple[str | Array | None, ...]:
    """Return operands of full trees; with `several`, leaves of none, one or two entries."""
    random = np.random.default_rng(trees)
    inner, leaves = 2**depth - 1, 2**depth
    at = np.arange(inner)
    one = np.stack([2 * at + 1, 2 * at + 2], axis=1)
    nodes, lasts = one[None] + inner * np.arange(trees)[:, None, None], one >= inner
    ends = -1 - (one[None] - inner + leaves * np.arange(trees)[:, None, None])
    children = np.where(lasts[None], ends, nodes).reshape(-1, 2).astype(np.int32)
    count = trees * leaves
    sizes = random.integers(0, 3, count) if several else np.ones(count, np.int64)
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    name = {4: "f32", 8: "f64"}[np.dtype(dtype).itemsize]
    return (
        f"{name}[9,6]",
        records(
            random.integers(0, 6, trees * inner),
            random.normal(0, 2, trees * inner).astype(dtype),
            children,
            inner * np.arange(trees),
            np.zeros(trees * inner, np.bool_),
        ),
        random.integers(0, targets, first[-1]).astype(np.int32),
        random.integers(-8, 9, first[-1]).astype(dtype),
        first if several else None,
    )
