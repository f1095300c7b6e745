"""Attention: rows of values mixed by how well their keys match a query (ONNX Attention).

It is a composite of matrix products, a softmax and what masks it, in f32 at least: half precision
is widened once at the start and rounded once at the end.  Its parts, `scores` and `mixed`, also
serve front ends whose models compute something of their own in between.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, Op, check_choice, check_dtype, check_rank
from alpenglow.ir.types import ALL, FLOATS, TensorType
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul, Sub
from alpenglow.ops.elementwise.comparison import GreaterOrEqual, Less, LessOrEqual
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import as_type, filled, in_floats
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.generate import Iota, Range, Size
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Transpose

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
            raise TypeRuleError(
                f"attention: precision is '{self.precision}', expected a float dtype or ''"
            )
        check_choice(self, STAGES, stage=self.stage)
        if min(self.left, self.right) < -1:
            raise TypeRuleError(
                f"attention: left is {self.left} and right {self.right}, expected -1 or more"
            )
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
        shape = score_shape(self, q.type, k.type, v.type)
        full = b(Broadcast(shape), mask) if mask is not None else None
        q, k, v, full = by_group(b, q, k, v, full)
        x = scores(b, q, k, self.scale)
        shown = {"scores": x}
        if self.softcap:
            x = capped(b, x, self.softcap)
        shown["capped"] = x
        seen = self._seen(b, shape, x.type.shape, lengths)
        if full is not None and full.type.dtype == "bool":
            seen.append(full)
        elif full is not None:
            x = b(Add(), x, as_type(b, full, x.type.dtype))
        if seen:
            together = reduce(lambda y, z: b(BitAnd(), y, z), seen)
            x = b(Where(), together, x, filled(b, -np.inf, x))
        shown["masked"] = x
        wide = as_type(b, x, self.precision or x.type.dtype)
        shares = as_type(
            b,
            b(Softmax(-1, "masked" if self._may_see_nothing(mask, lengths) else ""), wide),
            x.type.dtype,
        )
        shown["shares"] = shares
        y = b(Reshape((*shape[:3], v.type.shape[-1])), mixed(b, shares, v, q.type.dtype))
        return y, b(Reshape(shape), as_type(b, shown[self.stage], q.type.dtype))

    def _may_see_nothing(self, mask: Value | None, lengths: Value | None) -> bool:
        """Whether a query may see no key: with nothing cut off on the left, it sees the first."""
        behind = known(self.offset) and self.offset < 0
        return mask is not None or lengths is not None or behind or self.left >= 0

    def _seen(
        self, b: Graph, heads: tuple[Dim, ...], shape: tuple[Dim, ...], lengths: Value | None
    ) -> list[Value]:
        """Return conditions on which keys a query sees by its position, each of a `shape`."""
        key = b(Iota(shape, len(shape) - 1))
        at = b(Iota(shape, len(shape) - 2))
        conditions: list[Value] = []
        if lengths is not None:
            column = (heads[0], *[1] * (len(shape) - 1))
            length = b(Broadcast(shape), b(Reshape(column), lengths))
            conditions.append(b(Less(), key, length))
            at = b(Sub(), b(Add(), at, length), number(b, heads[2], at))
        elif self.offset != 0:
            at = b(Add(), at, number(b, self.offset, at))
        if self.causal:
            conditions.append(b(GreaterOrEqual(), at, key))
        if self.left >= 0:
            first = b(Sub(), at, filled(b, self.left, at))
            conditions.append(b(LessOrEqual(), first, key))
        if self.right >= 0:
            last = b(Add(), at, filled(b, self.right, at))
            conditions.append(b(GreaterOrEqual(), last, key))
        return conditions

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


def by_group(
    b: Graph, q: Value, k: Value, v: Value, mask: Value | None
) -> tuple[Value, Value, Value, Value | None]:
    """Return operands of attention with as many heads of keys as of queries.

    If groups of heads share keys, q[B, H, S, E] becomes [B, G, H/G, S, E] and so on.
    """
    (batch, heads), groups = q.type.shape[:2], k.type.shape[1]
    if heads == groups:
        return q, k, v, mask
    split = (batch, groups, heads // groups)

    def grouped(x: Value) -> Value:
        return b(Reshape((*split, *x.type.shape[2:])), x)

    def repeated(x: Value) -> Value:
        rest = x.type.shape[2:]
        return b(Broadcast((*split, *rest)), b(Reshape((batch, groups, 1, *rest)), x))

    return grouped(q), repeated(k), repeated(v), None if mask is None else grouped(mask)


def scores(b: Graph, q: Value, k: Value, scale: float) -> Value:
    """Return scale · q kᵀ of q[…, S, E] and k[…, T, E], in f32 at least."""
    wide = in_floats(b, q)
    scaled = b(Mul(), wide, filled(b, scale, wide))
    rank = k.type.rank
    columns = b(Transpose((*range(rank - 2), rank - 1, rank - 2)), as_type(b, k, wide.type.dtype))
    return b(MatMul(), scaled, columns)


def mixed(b: Graph, shares: Value, v: Value, dtype: str) -> Value:
    """Return the rows of v[…, T, F], added up by shares[…, S, T], in element type `dtype`."""
    return as_type(b, b(MatMul(), shares, as_type(b, v, shares.type.dtype)), dtype)


def capped(b: Graph, x: Value, limit: float) -> Value:
    """Return limit · tanh(x / limit)."""
    wide = filled(b, limit, x)
    return b(Mul(), b(Tanh(), b(Div(), x, wide)), wide)


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
