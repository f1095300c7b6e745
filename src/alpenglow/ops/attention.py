"""Attention: rows of values mixed by how well their keys match a query (ONNX Attention).

It is a composite of matrix products, a softmax and what masks it, in f32 at least: half precision
is widened once at the start and rounded once at the end.  Its parts, `scores` and `mixed`, also
serve front ends whose models compute something of their own in between.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, Op, check_dtype, check_rank
from alpenglow.ir.types import ALL, FLOATS, TensorType
from alpenglow.ops.activation import Tanh
from alpenglow.ops.arithmetic import Add, Div, Mul, Sub
from alpenglow.ops.comparison import Equal, GreaterOrEqual, Less, LessOrEqual
from alpenglow.ops.contraction import MatMul
from alpenglow.ops.generate import Range, Size
from alpenglow.ops.logic import BitAnd, BitNot
from alpenglow.ops.movement import Broadcast, Reshape, Transpose
from alpenglow.ops.reduction import ReduceMax, as_type, filled, in_floats
from alpenglow.ops.select import Where
from alpenglow.ops.softmax import Softmax

STAGES = ("scores", "capped", "masked", "shares")


class Attention(Composite):
    """softmax(scale · q kᵀ) v, by head: q[B, H, S, E], k[B, G, T, E] and v[B, G, T, F].

    Each of the G heads of k and v serves H/G neighbouring heads of q.  The scores are limited to
    ±`softcap`, smoothly, where it is not 0.  A bool `mask` says which keys a query sees, and any
    other is added to the scores; it broadcasts to [B, H, S, T].  The query in row i stands at
    position p = i + `offset`; it sees no key past p if `causal`, none before p - `left` and none
    past p + `right` where these are not -1.  Of `lengths`[B], if given, each counts the keys that
    are there, and p is i + lengths[b] - S.  A query that sees no key at all gives 0.

    `precision` is the element type of the softmax, f32 or wider if it is empty.  The second result
    has the shape [B, H, S, T] and shows a `stage` of the computation: scores, capped, masked, or
    shares, which is the softmax.  ONNX Attention.
    """

    scale: float
    softcap: float = 0.0
    causal: bool = False
    left: int = -1
    right: int = -1
    offset: Dim = 0
    precision: str = ""
    stage: str = "shares"

    def infer(
        self, q: TensorType, k: TensorType, v: TensorType,
        mask: TensorType | None = None, lengths: TensorType | None = None,
    ) -> tuple[TensorType, TensorType]:  # fmt: skip
        shape = score_shape(self, q, k, v)
        if self.precision not in FLOATS | {""}:
            raise TypeRuleError(f"attention: precision is '{self.precision}', expected a float")
        if self.stage not in STAGES:
            raise TypeRuleError(f"attention: stage '{self.stage}' is not {', '.join(STAGES)}")
        if min(self.left, self.right) < -1:
            raise TypeRuleError("attention: left and right are not below -1")
        if mask is not None:
            check_dtype(self, "mask", mask, ALL)
            Broadcast(shape).infer(mask)
        if lengths is not None and lengths != TensorType("i64", q.shape[:1]):
            raise TypeRuleError(f"attention: lengths are {lengths}, expected i64[{q.shape[0]}]")
        return q.with_shape((*q.shape[:3], v.shape[3])), q.with_shape(shape)

    def lower(
        self, b: Graph, q: Value, k: Value, v: Value,
        mask: Value | None = None, lengths: Value | None = None,
    ) -> tuple[Value, Value]:  # fmt: skip
        x = scores(b, q, k, self.scale)
        shown = {"scores": x}
        if self.softcap:
            x = capped(b, x, self.softcap)
        shown["capped"] = x
        hide = keep = self._seen(b, q.type.shape[2], k.type.shape[2], lengths)
        if mask is not None and mask.type.dtype == "bool":
            hide = keep = mask if hide is None else both(b, hide, mask)
        elif mask is not None:
            mask = as_type(b, mask, x.type.dtype)
            x = b(Add(), x, b(Broadcast(x.type.shape), mask))
            some = b(BitNot(), b(Equal(), mask, filled(b, -np.inf, mask)))
            keep = some if hide is None else both(b, hide, some)
        if hide is not None:
            x = b(Where(), b(Broadcast(x.type.shape), hide), x, filled(b, -np.inf, x))
        shown["masked"] = x
        shares = self._shares(b, x, keep, mask is not None or lengths is not None)
        shown["shares"] = shares
        return mixed(b, shares, v, q.type.dtype), as_type(b, shown[self.stage], q.type.dtype)

    def _shares(self, b: Graph, x: Value, keep: Value | None, masked: bool) -> Value:
        """Return the softmax of the scores, 0 for a query that sees nothing."""
        shares = b(Softmax(-1), as_type(b, x, self.precision or x.type.dtype))
        shares = as_type(b, shares, x.type.dtype)
        behind = known(self.offset) and self.offset < 0
        if keep is None or not (masked or behind or self.left >= 0):
            return shares  # with nothing cut off on the left, every query sees the first key
        alive = b(ReduceMax((keep.type.rank - 1,)), keep)
        return b(Where(), b(Broadcast(x.type.shape), alive), shares, filled(b, 0, shares))

    def _seen(self, b: Graph, rows: Dim, keys: Dim, lengths: Value | None) -> Value | None:
        """Return which keys a query sees by its position, [S, T] or [B, 1, S, T]; None if all."""
        box: tuple[Dim, ...] = (rows, keys)
        start: Value | None = None
        if lengths is not None:
            batch = lengths.type.shape[0]
            box = (batch, 1, rows, keys)
            start = b(Broadcast(box), b(Reshape((batch, 1, 1, 1)), lengths))
        key = b(Broadcast(box), b(Range(keys)))
        parts = [] if start is None else [b(Less(), key, start)]
        at = b(Broadcast(box), b(Reshape((rows, 1)), b(Range(rows))))
        if start is not None:
            at = b(Sub(), b(Add(), at, start), number(b, rows, at))
        elif self.offset != 0:
            at = b(Add(), at, number(b, self.offset, at))
        if self.causal:
            parts.append(b(GreaterOrEqual(), at, key))
        if self.left >= 0:
            parts.append(b(LessOrEqual(), b(Sub(), at, filled(b, self.left, at)), key))
        if self.right >= 0:
            parts.append(b(GreaterOrEqual(), b(Add(), at, filled(b, self.right, at)), key))
        if not parts:
            return None
        total = parts[0]
        for part in parts[1:]:
            total = b(BitAnd(), total, part)
        return total

    @classmethod
    def examples(cls) -> Examples:
        square = ("f32[2,3,5,8]", "f32[2,3,5,8]", "f32[2,3,5,7]")
        grouped = ("f32[2,6,3,4]", "f32[2,2,5,4]", "f32[2,2,5,9]")
        yield cls(0.5), *square
        yield cls(0.5, causal=True), *square
        yield cls(0.25, 2.0, stage="capped"), *grouped
        yield cls(0.5, causal=True, offset=2, stage="masked"), *grouped
        yield cls(0.5, left=1, right=0), *square
        yield cls(0.5, left=0, offset=-2), *square
        yield cls(0.5, precision="f64", stage="scores"), *grouped, "f32[3,5]"
        yield cls(0.5, causal=True), *grouped, "bool[2,1,3,5]"
        yield cls(0.5), *grouped, np.array([[1] * 5, [0] * 5, [0, 1, 0, 0, 1]], np.bool_)
        mask = np.array([[0, -np.inf, 0, 1, -2], [-np.inf] * 5, [1] * 5], np.float32)
        yield cls(0.5, left=1), *grouped, mask
        yield cls(0.5, causal=True), *grouped, None, np.array([5, 2])
        yield cls(0.5, causal=True, left=1), *grouped, "f32[6,3,5]", np.array([4, 1])
        yield cls(1.0), "f32[1,1,0,4]", "f32[1,1,3,4]", "f32[1,1,3,2]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(0.5, causal=True), *[f"{dtype}[1,2,3,4]"] * 3, f"{dtype}[3]"


def scores(b: Graph, q: Value, k: Value, scale: float) -> Value:
    """Return scale · q kᵀ as [B, H, S, T], in f32 at least."""
    batch, heads, rows, size = q.type.shape
    wide = in_floats(b, q)
    scaled = b(Mul(), wide, filled(b, scale, wide))
    groups, keys = k.type.shape[1:3]
    columns = b(Transpose((0, 1, 3, 2)), as_type(b, k, wide.type.dtype))
    if heads == groups:
        return b(MatMul(), scaled, columns)
    together = b(Reshape((batch, groups, heads // groups * rows, size)), scaled)
    return b(Reshape((batch, heads, rows, keys)), b(MatMul(), together, columns))


def mixed(b: Graph, shares: Value, v: Value, dtype: str) -> Value:
    """Return the rows of v, added up by shares[B, H, S, T], in element type `dtype`."""
    batch, heads, rows, keys = shares.type.shape
    groups, size = v.type.shape[1], v.type.shape[3]
    values = as_type(b, v, shares.type.dtype)
    if heads == groups:
        return as_type(b, b(MatMul(), shares, values), dtype)
    together = b(Reshape((batch, groups, heads // groups * rows, keys)), shares)
    y = b(Reshape((batch, heads, rows, size)), b(MatMul(), together, values))
    return as_type(b, y, dtype)


def capped(b: Graph, x: Value, limit: float) -> Value:
    """Return limit · tanh(x / limit)."""
    wide = filled(b, limit, x)
    return b(Mul(), b(Tanh(), b(Div(), x, wide)), wide)


def both(b: Graph, x: Value, y: Value) -> Value:
    """Return where both x and y hold, stretched to each other."""
    rank = max(x.type.rank, y.type.rank)
    xs, ys = ((1,) * (rank - v.type.rank) + v.type.shape for v in (x, y))
    shape = tuple(n if m == 1 else m for m, n in zip(xs, ys, strict=True))
    return b(BitAnd(), b(Broadcast(shape), x), b(Broadcast(shape), y))


def score_shape(op: Op, q: TensorType, k: TensorType, v: TensorType) -> tuple[Dim, ...]:
    """Return the shape of the scores; raise TypeRuleError if q, k and v do not fit together."""
    for what, t in (("q", q), ("k", k), ("v", v)):
        check_dtype(op, what, t, FLOATS)
        check_rank(op, what, t, 4, 4)
    heads, groups = q.shape[1], k.shape[1]
    fits = (
        k.dtype == q.dtype
        and k.shape[0] == q.shape[0]
        and k.shape[3] == q.shape[3]
        and v.shape[:3] == k.shape[:3]
    )
    if not fits or (heads != groups and (groups == 0 or heads % groups != 0)):
        raise TypeRuleError(
            f"{op.name}: q is {q}, k is {k} and v is {v}; expected [B,H,S,E], [B,G,T,E] and "
            "[B,G,T,F], H a multiple of G"
        )
    return (*q.shape[:3], k.shape[2])


def number(b: Graph, value: Dim, like: Value) -> Value:
    """Return an extent as a tensor of the type of `like`, an i64."""
    if isinstance(value, int):
        return filled(b, value, like)
    return b(Broadcast(like.type.shape), b(Size(), b(Range(value))))
