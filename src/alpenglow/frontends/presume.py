"""Presumptions of an import about dynamic dimensions, which it records.

Dimensions are at least 0.  Conclusions from that alone are certain.  Beyond it, models are written
for extents that are long enough: ``x[:, :10]`` has ten columns.  The import follows them, and keeps
each such presumption as a guard of the graph; a call whose extents break one is served by another
import, under its own extents (`runtime.executables.executor`).

Extents that must be equal, but are not by their names, are found by trial (`reconcile`).

Under an assumption (`ir.dims`) nothing is presumed: the numbers are known there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from alpenglow.ir.dims import RELATIONS, Atom, Dim, Sym, bind, known, names, symbol
from alpenglow.ir.graph import Value


@dataclass(slots=True)
class Presumptions:
    """Presumptions about the dynamic dimensions of a model."""

    symbols: tuple[str, ...]
    guards: dict[tuple[Sym, str], None] = field(default_factory=dict)
    equations: tuple[Equation, ...] = ()
    """Those by which trials found extents that fit."""


_kept: ContextVar[Presumptions | None] = ContextVar("presumptions", default=None)


@dataclass(frozen=True, slots=True)
class Equation:
    """The equation ``x == 0``, as the value of one of the symbols in x."""

    symbol: str
    x: Sym


class Undecided(Exception):
    """The answer depends on the value of a symbol."""


class Needed(Exception):
    """The import must know the elements of a value, and does not yet.

    With the name "" it must know extents instead, which are known wherever a part is run.
    `value` is what they are computed by, where the graph has no value of that name; `beside` are
    values that are computed before, too, by the names under which they are found afterwards.
    """

    def __init__(
        self, name: str, value: Value | None = None, beside: Mapping[str, Value] | None = None
    ) -> None:
        super().__init__(name)
        self.name = name
        self.value = value
        self.beside = dict(beside or {})


def fixed(d: Dim) -> int:
    """Return an extent as a number; raise Needed, so that the import is cut, if it is dynamic."""
    if not known(d):
        raise Needed("")
    return int(d)


@contextlib.contextmanager
def presuming(symbols: Iterable[str] = ()) -> Iterator[Presumptions]:
    """Keep presumptions on these dynamic dimensions in this block: ``expression relation 0``."""
    kept = Presumptions(tuple(symbols))
    token = _kept.set(kept)
    try:
        yield kept
    finally:
        _kept.reset(token)


def presumed() -> Presumptions | None:
    """Return the presumptions so far; None if presumptions are not allowed."""
    return _kept.get()


def natural(x: Dim) -> bool:
    """Whether x >= 0 for all extents there are."""
    if not isinstance(x, Sym):
        return x >= 0
    return all(c > 0 and all(map(_is_natural, monomial)) for monomial, c in x.terms)


def _is_natural(atom: Atom) -> bool:
    if isinstance(atom, str):
        return True
    if atom.op == "max":
        return natural(atom.left) or natural(atom.right)
    return natural(atom.left) and natural(atom.right)


def presume(x: Dim, relation: str) -> bool:
    """Take ``x relation 0`` for granted; return False where it is known to be wrong."""
    if known(x):
        return RELATIONS[relation](x)
    assert isinstance(x, Sym), f"{x} is neither known nor open"
    if relation == ">=" and natural(x):
        return True
    if relation == ">=" and natural(-x - 1):
        return False
    if relation == "!=" and (natural(x - 1) or natural(-x - 1)):
        return True
    kept = _kept.get()
    if kept is None:
        raise Undecided(f"{x} {relation} 0")
    if relation == ">=" and natural(filled(x)):
        # However deep in a network, there is something as long as the inputs have something.
        for name in sorted(names(x)):
            kept.guards[Sym((((name,), 1), ((), -1))), ">="] = None
        return True
    kept.guards[x, relation] = None
    return True


def presume_extents(extents: Iterable[Dim], least: int = 0) -> None:
    """Take for granted that extents of a result are so large, though nothing may compute it."""
    if _kept.get() is not None:
        for d in extents:
            presume(d - least, ">=")


def at_least_0(x: Dim) -> bool:
    """Whether x >= 0: for all extents, or presumed where it is so for all but empty ones.

    Raises Undecided where that depends on more than whether an extent is 0.
    """
    if known(x):
        return x >= 0
    if natural(x):
        return True
    if natural(-x - 1):
        return False
    some = filled(x)
    if natural(some):
        return presume(x, ">=")
    if natural(-some - 1):
        return not presume(-x - 1, ">=")
    raise Undecided(f"{x} >= 0")


def is_0(x: Dim) -> bool:
    """Whether x is 0, in the way of `at_least_0`."""
    if known(x):
        return x == 0
    if natural(filled(x) - 1):
        return not presume(x - 1, ">=")
    if natural(filled(-x) - 1):
        return not presume(-x - 1, ">=")
    raise Undecided(f"{x} == 0")


def filled(x: Dim) -> Dim:
    """Return x where each extent is one more than a natural number: where nothing is empty."""
    return bind(x, {n: symbol(n) + 1 for n in names(x)})
