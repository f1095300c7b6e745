"""Open extents from shapes: which symbol follows from which axis of which input.

An extent that is a name tells that name, and one that is linear in a single unknown name tells it,
too: of ``f32[2*N+1]`` with seven elements N is 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral

from alpenglow.base.errors import ModelError, OptionError
from alpenglow.ir.dims import Dim, Guards, Sym, bind, holds, names
from alpenglow.ir.graph import Graph

Shapes = Mapping[str, Sequence[Dim]]


@dataclass(frozen=True, slots=True)
class AxisEquation:
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
        value, left = divmod(extent - rest, self.factor)
        return None if left or value < 0 else value


def sources(shapes: Shapes) -> list[AxisEquation]:
    """Return where symbols can be told from, each of those before it known."""
    by_symbol: dict[str, AxisEquation] = {}
    extents = [
        (name, axis, d)
        for name, shape in shapes.items()
        for axis, d in enumerate(shape)
        if isinstance(d, Sym)
    ]
    for name, axis, d in extents:
        if (text := str(d)).isidentifier():
            by_symbol.setdefault(text, AxisEquation(text, name, axis))
    before = -1
    while before < len(by_symbol):
        before = len(by_symbol)
        for name, axis, d in extents:
            unknown = names(d) - by_symbol.keys()
            if len(unknown) == 1:
                (symbol,) = unknown
                if (source := _linear(d, symbol, name, axis)) is not None:
                    by_symbol[symbol] = source
    return list(by_symbol.values())


def _linear(d: Sym, symbol: str, name: str, axis: int) -> AxisEquation | None:
    """Return how d tells a symbol, if it is a multiple of it and what does not depend on it."""
    factors = [c for monomial, c in d.terms if monomial == (symbol,)]
    if len(factors) != 1:
        return None
    rest = Sym((((symbol,), 1),)) * -factors[0] + d
    return None if symbol in names(rest) else AxisEquation(symbol, name, axis, factors[0], rest)


def values_of(
    origins: Sequence[AxisEquation], shapes: Mapping[str, Sequence[int]]
) -> tuple[dict[str, int], AxisEquation | None]:
    """Return the values of symbols, and the source that allows none."""
    values: dict[str, int] = {}
    for source in origins:
        value = source.value(shapes[source.input][source.axis], values)
        if value is None:
            return values, source
        values[source.symbol] = value
    return values, None


def untold(shapes: Shapes) -> set[str]:
    """Return the symbols that do not follow from shapes."""
    symbols = {n for shape in shapes.values() for d in shape for n in names(d)}
    return symbols - {s.symbol for s in sources(shapes)}


def satisfying(guards: Guards, symbols: Iterable[str]) -> dict[str, int] | None:
    """Return numbers for symbols of which all guards are true; None if a short search has none."""
    every = sorted({*symbols, *(n for x, _ in guards for n in names(x))})
    for scale in SCALES:
        values = {s: scale * (2 + i) for i, s in enumerate(every)}
        solved: set[str] = set()
        for x, relation in guards:
            for symbol in sorted(names(x) - solved) if relation == "==" else ():
                value = root(x, symbol, values)
                if value is not None:
                    values[symbol] = value
                    solved.add(symbol)
                    break
        if holds(guards, values):
            return values
    return None


SCALES = (64, 1, 12, 1000)
"""Factors of the extents that are tried for guards, one after another."""


def root(x: Sym, symbol: str, values: Mapping[str, int]) -> int | None:
    """Return the extent that makes x 0 in place of a symbol, if x is a line in it; else None."""
    low, high = (bind(x, {**values, symbol: FAR * k}) for k in range(2))
    assert isinstance(low, int) and isinstance(high, int), "all symbols have values"
    if low == high:
        return None
    extent, left = divmod(-low * FAR, high - low)
    return None if left or extent < 0 else extent


FAR = 64
"""A line is drawn through x at 0 and at this extent, by which networks may divide it."""


def misshapen(name: str, shape: object, expected: object) -> str:
    """Return the message for the shape of an input that does not fit."""
    return f"shape of input '{name}' is {shape!r}, expected {expected}"


def bind_shapes(g: Graph, shapes: Mapping[str, Sequence[int]]) -> Graph:
    """Return `g` with open extents taken from `shapes`; raise ModelError where they do not fit."""
    known = g.callers_inputs()
    if not isinstance(shapes, Mapping):
        raise OptionError(
            f"shapes is {shapes!r}, expected a dict from names of inputs to shapes, as "
            f"{{'{next(iter(known), 'NAME')}': (…)}}"
        )
    types: dict[str, tuple[Dim, ...]] = {}
    for name, shape in shapes.items():
        if name not in known:
            raise ModelError(f"shapes names '{name}', expected inputs: {', '.join(known)}")
        t = g.inputs[name].type
        if not isinstance(shape, Sequence) or not all(isinstance(d, Integral) for d in shape):
            raise ModelError(misshapen(name, shape, f"integers for {t}"))
        if len(shape) != t.rank:
            raise ModelError(misshapen(name, tuple(shape), t))
        types[name] = t.shape
    extents, _ = values_of(sources(types), shapes)
    new = g.bind(extents)
    for name, shape in shapes.items():
        if new.inputs[name].type.shape != tuple(shape):
            raise ModelError(misshapen(name, tuple(shape), g.inputs[name].type))
    return new
