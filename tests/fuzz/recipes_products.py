"""Recipes for products of matrices, with operands that are fed, stored, or views of others."""

from __future__ import annotations

from math import prod

from .draft import Draft
from .elements import FLOATS, INTS, Shape
from .inference import Declined, allowed
from .recipe import recipe


def wide(d: Draft, room: int) -> int:
    """Return a number of columns: around vectors, or several panels of them."""
    return d.extent(max(min(room, 300), 1), 0 if d.chance(0.05) else 1)


@recipe("MatMul")
def matmul(d: Draft, op: str) -> None:
    if d.chance(0.12):
        itself(d, op)
        return
    x = d.pick(allowed(op, d.opset), 1, 5)
    k = x.shape[-1]
    rows = prod(x.shape[:-1])
    n = wide(d, min(8192 // max(k, 1), 16384 // max(rows, 1)))
    lead: tuple[int, ...] = ()
    how = d.one_of(("none", "none", "same", "some", "more"))
    if how == "same":
        lead = x.shape[:-2]
    elif how == "some":
        lead = tuple(1 if d.chance(0.4) else e for e in x.shape[:-2])[d.number(0, 1) :]
    elif how == "more" and rows * n < 2048 and x.rank < 5:
        lead = (d.number(1, 3), *(1 for _ in x.shape[:-2]))
    shape = (*lead, k, n) if d.chance(0.85) else (k,)
    if prod(shape) > 8192:
        raise Declined
    d.node(op, [x, d.fresh(x.dtype, shape)])


def itself(d: Draft, op: str) -> None:
    """Multiply a value by itself, turned or not."""

    def square() -> Shape:
        side = d.extent(33)
        return (*d.shape(0, 2, empty=False)[:1], side, side) if side < 12 else (side, side)

    x = d.pick(allowed(op, d.opset), 2, 5, shape=square)
    if x.shape[-1] == x.shape[-2] and d.chance(0.6):
        d.node(op, [x, x])
        return
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = d.node("Transpose", [x], perm=perm)[0]
    d.node(op, [x, turned] if d.chance(0.6) else [turned, x])


@recipe("Gemm")
def gemm(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 2, 2)
    more = d.some(op, transA=(0, 1), transB=(0, 1))
    m, k = x.shape[::-1] if more.get("transA") else x.shape
    n = wide(d, min(8192 // max(k, 1), 16384 // max(m, 1)))
    w = d.fresh(x.dtype, (n, k) if more.get("transB") else (k, n))
    needed = d.opset < 11
    bias = None
    if needed or d.chance(0.7):
        shapes: list[tuple[int, ...]] = [(m, n)]
        if d.opset >= 7:
            shapes += [(), (n,), (1, n), (m, 1), (1, 1), (1,)]
        bias = d.fresh(x.dtype, d.one_of(shapes))
    if d.opset < 7 and bias is not None and d.chance(0.5):
        more["broadcast"] = 1
        bias = d.fresh(x.dtype, (n,))
    numbers = (0.5, 2.0, 0.0, 1.0, -1.0, 0.3) if x.dtype in FLOATS else (1.0, 2.0, 0.0)
    more |= d.some(op, alpha=numbers, beta=numbers)
    if x.dtype in INTS and more.get("alpha") == 0.0:
        more.pop("alpha")
    d.node(op, [x, w, bias], types=[(x.dtype, (m, n))], **more)


EQUATIONS = (
    "ab,bc->ac", "abc,acd->abd", "ab->ba", "aab->ab", "ab,ab->", "ab,cd->adcb", "...a,...a->...",
    "abc->b", "abc,c", "a,b->ab", "aa->a", "aa", "ab,ab->ab", "ab,b->a", "ab,a->b", "abc,abd->acd",
    "abcd,abed->abce", "a,a->", "ab,cb->ca", "...ab,...bc->...ac", "ab,bc,cd->ad", "ab,bc,ca->",
    "abc,bd->acd", "...,...->...", "ab,ab,ab->ab", "abc->cab", "a->", "ab->", "a,->a", "aab,bc->ac",
    "abab->ab", "ab...,b->a...", " a b , b c -> a c ",
)  # fmt: skip


@recipe("Einsum")
def einsum(d: Draft, op: str) -> None:
    letters = {c: d.extent(9) for c in "abcde"}
    equation = d.one_of(EQUATIONS)
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    kind = d.dtype(allowed(op, d.opset))
    given = []
    for t in terms:
        shape = tuple(letters[c] for c in t.replace("...", "de"))
        if prod(shape) > 4096:
            raise Declined
        given.append(d.fresh(kind, shape))
    d.node(op, given, equation=equation)
