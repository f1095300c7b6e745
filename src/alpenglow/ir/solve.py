"""Open extents from shapes: which symbol follows from which axis of which input.

An extent that is a name tells that name, and one that is linear in a single unknown name tells it,
too: of ``f32[2*N+1]`` with seven elements N is 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alpenglow.ir.dims import Dim, Sym, bind, names

Shapes = Mapping[str, Sequence[Dim]]


@dataclass(frozen=True, slots=True)
class Source:
    """A symbol follows from an axis of an input: extent = factor · symbol + rest."""

    symbol: str
    input: str
    axis: int
    factor: int = 1
    rest: Dim = 0

    def value(self, extent: int, values: Mapping[str, int]) -> int | None:
        """Return the value of the symbol; None if there is none, as for 2·N = 7."""
        rest = bind(self.rest, values)
        assert isinstance(rest, int), f"{rest} is told before"
        found, left = divmod(extent - rest, self.factor)
        return None if left or found < 0 else found


def sources(shapes: Shapes) -> list[Source]:
    """Return where symbols can be told from, each of those before it known."""
    found: dict[str, Source] = {}
    extents = [
        (name, axis, d)
        for name, shape in shapes.items()
        for axis, d in enumerate(shape)
        if isinstance(d, Sym)
    ]
    for name, axis, d in extents:
        if (text := str(d)).isidentifier():
            found.setdefault(text, Source(text, name, axis))
    before = -1
    while before < len(found):
        before = len(found)
        for name, axis, d in extents:
            unknown = names(d) - found.keys()
            if len(unknown) == 1:
                (symbol,) = unknown
                if (source := _linear(d, symbol, name, axis)) is not None:
                    found[symbol] = source
    return list(found.values())


def _linear(d: Sym, symbol: str, name: str, axis: int) -> Source | None:
    """Return how d tells a symbol, if it is a multiple of it and what does not depend on it."""
    factors = [c for monomial, c in d.terms if monomial == (symbol,)]
    if len(factors) != 1:
        return None
    rest = Sym((((symbol,), 1),)) * -factors[0] + d
    return None if symbol in names(rest) else Source(symbol, name, axis, factors[0], rest)


def values_of(
    found: Sequence[Source], shapes: Mapping[str, Sequence[int]]
) -> tuple[dict[str, int], Source | None]:
    """Return the values of symbols, and the source that allows none."""
    values: dict[str, int] = {}
    for source in found:
        value = source.value(shapes[source.input][source.axis], values)
        if value is None:
            return values, source
        values[source.symbol] = value
    return values, None


def untold(shapes: Shapes) -> set[str]:
    """Return the symbols that do not follow from shapes."""
    symbols = {n for shape in shapes.values() for d in shape for n in names(d)}
    return symbols - {s.symbol for s in sources(shapes)}
