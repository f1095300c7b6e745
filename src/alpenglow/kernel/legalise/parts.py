"""Taking vectors apart and putting them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Blend, Expr, Shuffle, Splat


def halved(m: Arithmetic, x: Expr, combine: Callable[[Expr, Expr], Expr]) -> Expr:
    """Return all lanes of x combined, as `Reduce` does it: pairwise from the halves."""
    while x.lanes > 1:
        whole, half = m.b.let(x), x.lanes // 2
        low, high = (Shuffle(whole, tuple(range(i, i + half))) for i in (0, half))
        x = combine(m.b.let(low), m.b.let(high))
    return x


def lane(x: Expr, i: int) -> Expr:
    """Return one lane, as a scalar."""
    return x if x.lanes == 1 else Shuffle(x, (i,))


def joined(b: Builder, scalars: Sequence[Expr]) -> Expr:
    """Return the vector of some scalars: of pairs, of pairs of these, and so on."""
    parts = list(scalars)
    assert len(parts).bit_count() == 1, f"{len(parts)} scalars make no vector of pairs"
    if len(parts) > 1:
        parts = [
            b.let(Blend(Splat(x, 2), Splat(y, 2), (0, 2)))
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
    while len(parts) > 1:
        parts = [
            b.let(Blend(x, y, tuple(range(2 * x.lanes))))
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def gathered(b: Builder, parts: Sequence[Expr], order: Sequence[int]) -> Expr:
    """Return lanes of vectors that stand one after the other, in another order."""
    width = parts[0].lanes
    total: Expr | None = None
    for number in sorted({i // width for i in order}):
        own = [i // width == number for i in order]
        places = tuple(i % width if mine else 0 for i, mine in zip(order, own, strict=True))
        moved = _moved(parts[number], places)
        if total is None:
            total = moved
        else:
            chosen = (len(order) * mine + i for i, mine in enumerate(own))
            total = b.let(Blend(total, moved, tuple(chosen)))
    assert total is not None, "a vector has lanes"
    return total


def _moved(x: Expr, order: tuple[int, ...]) -> Expr:
    if order == tuple(range(x.lanes)):
        return x
    return Splat(x, len(order)) if x.lanes == 1 else Shuffle(x, order)
