"""Ensembles of decision trees, as flat arrays of nodes and leaves."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_rank
from alpenglow.ir.types import Array, TensorType

AGGREGATES = ("sum", "min", "max")
REALS = frozenset({"f32", "f64"})


class TreeEnsemble(Primitive):
    """What the leaves of all trees say of each row of x, by target: its sum, minimum or maximum.

    Node i sends a row to children[i,1] if x[feature[i]] <= threshold[i], or if that element is NaN
    and nan[i] holds, else to children[i,0].  A child c counts nodes, or is the leaf -1-c if it is
    negative; so does a root, one for each tree.  Leaf l adds weight[e] to the target target[e] for
    every e from first[l] up to first[l+1]; without `first` it has the one entry l.  A target that
    no leaf names is 0.  No path has more than `depth` nodes.

    Indices that are out of range are limited to what there is.  ONNX ML TreeEnsemble, whose modes
    of comparison all can be put as <= (see the front end).
    """

    targets: int
    depth: int
    aggregate: str = "sum"

    def infer(
        self,
        x: TensorType,
        feature: TensorType,
        threshold: TensorType,
        children: TensorType,
        roots: TensorType,
        target: TensorType,
        weight: TensorType,
        first: TensorType | None = None,
        nan: TensorType | None = None,
    ) -> TensorType:
        check_dtype(self, "x", x, REALS)
        check_rank(self, "x", x, 2, 2)
        check_dtype(self, "weight", weight, REALS)
        if self.aggregate not in AGGREGATES:
            raise TypeRuleError(
                f"tree_ensemble: aggregate '{self.aggregate}' is none of {', '.join(AGGREGATES)}"
            )
        if self.targets < 1 or self.depth < 0:
            raise TypeRuleError(f"tree_ensemble: {self.targets} targets, depth {self.depth}")
        for what, t in (("roots", roots), ("target", target), ("weight", weight)):
            check_rank(self, what, t, 1, 1)
            if t.shape == (0,):
                raise TypeRuleError(f"tree_ensemble: {what} is {t}, expected at least one element")
        nodes = feature.shape
        wanted: list[tuple[str, TensorType | None, str, tuple[Dim, ...]]] = [
            ("feature", feature, "i32", nodes[:1]),
            ("threshold", threshold, x.dtype, nodes),
            ("children", children, "i32", (*nodes, 2)),
            ("roots", roots, "i32", roots.shape),
            ("target", target, "i32", weight.shape),
            ("first", first, "i32", () if first is None else first.shape[:1]),
            ("nan", nan, "bool", nodes),
        ]
        for what, given, dtype, shape in wanted:
            if given is not None and given != TensorType(dtype, shape):
                raise TypeRuleError(
                    f"tree_ensemble: {what} is {given}, expected {TensorType(dtype, shape)}"
                )
        if nodes and known(nodes[0]) and self.depth > nodes[0]:
            raise TypeRuleError(f"tree_ensemble: depth {self.depth}, of {nodes[0]} nodes")
        if first is not None and known(first.shape[0]) and first.shape[0] < 2:
            raise TypeRuleError(f"tree_ensemble: first is {first}, expected one leaf or more")
        if x.shape[1] == 0 and nodes != (0,):
            raise TypeRuleError(f"tree_ensemble: x is {x}, without a feature to compare")
        return TensorType(weight.dtype, (x.shape[0], self.targets))

    def reference(
        self,
        x: Array,
        feature: Array,
        threshold: Array,
        children: Array,
        roots: Array,
        target: Array,
        weight: Array,
        first: Array | None = None,
        nan: Array | None = None,
    ) -> Array:
        rows = np.arange(len(x))[:, None]
        node = np.broadcast_to(roots.astype(np.int64), (len(x), len(roots)))
        for _ in range(self.depth if len(feature) else 0):
            at = np.clip(node, 0, len(feature) - 1)
            value = x[rows, np.clip(feature[at], 0, x.shape[1] - 1)]
            yes = value <= threshold[at]
            if nan is not None:
                yes |= np.isnan(value) & nan[at]
            node = np.where(node < 0, node, children[at, yes.astype(np.int64)])
        leaf = np.maximum(-1 - node, 0)
        return aggregated(self, leaf, target, weight, first)

    @classmethod
    def examples(cls) -> Examples:
        yield from small(cls(1, 2), "f32[7,3]", np.float32)
        yield from small(cls(1, 2, "min"), "f32[1,3]", np.float32)
        yield from small(cls(3, 2, "max"), "f64[5,3]", np.float64)
        yield from small(cls(3, 2), "f32[0,3]", np.float32)
        yield cls(2, 3), *grown(21, 3, 2, np.float32, several=True)
        yield cls(2, 3, "min"), *grown(5, 3, 2, np.float64, several=True)
        yield cls(1, 4), *grown(40, 4, 1, np.float32, several=False)
        yield cls(1, 4, "max"), *grown(40, 4, 1, np.float32, several=False)
        stump = np.zeros(0, np.int32)
        leaf = np.array([-1], np.int32)
        yield (cls(1, 0), "f32[3,2]", stump, np.zeros(0, np.float32), np.zeros((0, 2), np.int32),
               leaf, np.array([0], np.int32), np.array([1.5], np.float32))  # fmt: skip


def aggregated(
    op: TreeEnsemble, leaf: Array, target: Array, weight: Array, first: Array | None
) -> Array:
    """Return what the leaves [N, trees] say, by target, taken in the order of the trees."""
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
    """Return what combines with any number to that number."""
    return {"sum": 0.0, "min": float("inf"), "max": float("-inf")}[aggregate]


def small(op: TreeEnsemble, x: str, dtype: type[np.floating]) -> Examples:
    """Yield an ensemble of two trees, one of them a leaf, with a NaN that goes either way."""
    feature = np.array([0, 2, 1], np.int32)
    threshold = np.array([0.5, -1, 2], dtype)
    children = np.array([[1, -1], [-2, 2], [-3, -4]], np.int32)
    roots, nan = np.array([0, -5], np.int32), np.array([True, False, True])
    target, weight = np.arange(5, dtype=np.int32) % op.targets, np.arange(5).astype(dtype) - 1.5
    yield op, x, feature, threshold, children, roots, target, weight, None, nan
    n, f = 3, 3
    rows = np.array([[np.nan, 1, 0], [9, np.nan, -2], [9, 0, np.nan]], dtype)
    assert rows.shape == (n, f)
    yield op, rows, feature, threshold, children, roots, target, weight, None, nan


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
        random.integers(0, 6, trees * inner).astype(np.int32),
        random.normal(0, 2, trees * inner).astype(dtype),
        children,
        (inner * np.arange(trees)).astype(np.int32),
        random.integers(0, targets, first[-1]).astype(np.int32),
        random.integers(-8, 9, first[-1]).astype(dtype),
        first if several else None,
    )
