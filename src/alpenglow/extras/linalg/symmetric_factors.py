"""Gradients of the factors of symmetric matrices, l d lᵀ with pivots, as `Ldl` packs them.

Pivots are taken for constants: near a matrix they stay as they are, but where two are equal.
"""

from __future__ import annotations

from dataclasses import dataclass

from alpenglow.extras.linalg.matrices import (
    by_columns,
    by_rows,
    diagonal,
    halved,
    lower,
    on_diagonal,
    unit,
    with_rows,
)
from alpenglow.extras.linalg.solving import SolveTriangular, Swaps
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.algebra import product
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Div, Mul, Sub
from alpenglow.ops.elementwise.comparison import Equal, Greater, Less
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.contraction import turned
from alpenglow.ops.reduction.reduction import ReduceSum, as_type, filled
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.tensor.gather import GatherElements
from alpenglow.ops.tensor.generate import Eye, Range
from alpenglow.ops.tensor.movement import stretch


@dataclass(frozen=True, slots=True)
class Factors:
    """Packed factors and their pivots as matrices: x with rows and columns in `order` is
    low · inner · lowᵀ."""

    order: Value
    """Which row of x comes where."""
    inverse: Value
    """The position of each row of x in `order`."""
    moved: Value
    """Which packed row of a column an element of `low` comes from: later pivots move it."""
    back: Value
    """The position of each packed element of a column after later pivots."""
    below: Value
    """1 where elements are packed that are of `low`, else 0."""
    beside: Value
    """1 under the diagonal where a block has two rows, else 0."""
    low: Value
    inner: Value


def unpacked(b: Graph, factors: Value, pivots: Value) -> Factors:
    """Return packed factors as matrices."""
    *outer, n = pivots.type.shape
    dtype, rows = factors.type.dtype, stretch(b, b(Range(n, 1, 1, "i32")), pivots.type.shape)
    first = begins(b, pivots)
    steps = b(Where(), first, rows, b(Abs(), pivots))
    square = (*outer, n, n)
    # Column by column, pivots of blocks before it and its own leave it as it is.
    ends = b(Add(), rows, as_type(b, first, "i32"))
    later = b(Less(), by_rows(b, ends, square), by_columns(b, rows, square))
    each = b(Where(), later, by_columns(b, steps, square), by_columns(b, rows, square))
    moved, back = (turned(b, b(Swaps(n, inverse), each)) for inverse in (False, True))
    under = stretch(b, b(Eye(n, n, -1, dtype)), square)
    beside = b(Mul(), under, by_columns(b, as_type(b, first, dtype), square))
    ones = filled(b, 1, under)
    below = lower(b, b(Sub(), ones, beside), -1)
    low = reordered(b, b(Mul(), below, factors), moved)
    pairs = b(Mul(), beside, factors)
    eye = unit(b, factors)
    inner = b(Add(), b(Mul(), eye, factors), b(Add(), pairs, turned(b, pairs)))
    order, inverse = b(Swaps(n), steps), b(Swaps(n, True), steps)
    return Factors(order, inverse, moved, back, below, beside, b(Add(), low, eye), inner)


def begins(b: Graph, pivots: Value) -> Value:
    """Return a mask of the first of each two negative pivots, which begin a block of two rows."""
    negative = b(Less(), pivots, filled(b, 0, pivots))
    count = b(CumSum(pivots.type.rank - 1), as_type(b, negative, "i32"))
    two = filled(b, 2, count)
    half = b(Div(), count, two)
    odd = b(Greater(), count, b(Mul(), half, two))
    return b(BitAnd(), negative, odd)


def factors_of_symmetric(b: Graph, f: Factors, dy: Value) -> Value:
    """Return the gradient of a symmetric matrix from the gradient of its packed factors."""
    pairs = halved(b, b(Mul(), f.beside, dy))
    blocks = b(Add(), b(Mul(), unit(b, dy), dy), b(Add(), pairs, turned(b, pairs)))
    dlow = reordered(b, b(Mul(), f.below, dy), f.moved)
    change = product(b, product(b, turned(b, f.low), dlow), inverse_of_blocks(b, f))
    middle = b(Add(), b(Mul(), f.below, change), blocks)
    up = turned(b, f.low)
    left = b(SolveTriangular(True, True), up, middle)
    whole = turned(b, b(SolveTriangular(True, True), up, turned(b, left)))
    return on_both_sides(b, halved(b, b(Add(), whole, turned(b, whole))), f.inverse)


def packed_gradient(b: Graph, f: Factors, dx: Value) -> Value:
    """Return the gradient of packed factors from the gradient of their symmetric matrix."""
    dx = on_both_sides(b, dx, f.order)
    change = product(b, dx, product(b, f.low, f.inner))
    dlow = reordered(b, b(Add(), change, change), f.back)
    blocks = product(b, turned(b, f.low), product(b, dx, f.low))
    shares = b(Add(), unit(b, dx), b(Add(), f.beside, f.beside))
    return b(Add(), b(Mul(), f.below, dlow), b(Mul(), shares, blocks))


def inverse_of_blocks(b: Graph, f: Factors) -> Value:
    """Return the inverse of `inner`, whose blocks have one or two rows."""
    shape, axis = f.inner.type.shape, f.inner.type.rank - 1
    total = ReduceSum((axis,), False)
    own = diagonal(b, f.inner)
    others = b(Sub(), f.inner, on_diagonal(b, own))
    links = b(Add(), f.beside, turned(b, f.beside))
    linked = b(total, links)
    alone = b(Equal(), linked, filled(b, 0, linked))
    partner = b(total, b(Mul(), links, by_columns(b, own, shape)))
    determinant = b(Sub(), b(Mul(), own, partner), b(total, b(Mul(), others, others)))
    adjugate = b(Sub(), on_diagonal(b, b(Where(), alone, filled(b, 1, own), partner)), others)
    return b(Div(), adjugate, by_rows(b, b(Where(), alone, own, determinant), shape))


def on_both_sides(b: Graph, x: Value, order: Value) -> Value:
    """Return matrices with their rows and their columns in an order."""
    return turned(b, with_rows(b, turned(b, with_rows(b, x, order)), order))


def reordered(b: Graph, x: Value, at: Value) -> Value:
    """Return matrices with the elements of each column taken from rows of it."""
    return b(GatherElements(x.type.rank - 2), x, at)
