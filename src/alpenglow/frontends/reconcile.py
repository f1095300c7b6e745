"""Extents that fit each other for some sizes only: found by trial, and presumed.

A neck that halves an image and doubles it again joins ``2*(H//2)`` to ``H``; a state of one sample
meets a dynamic batch; a weight of 13 rows is multiplied by a dynamic axis.  No rule on symbols
says what such a node makes, but numbers do: the node is imported under an assumption (`ir.dims`),
with extents as models like them, multiples of 64.  If it breaks a rule, the comparisons that
failed name the extent that would have to be another.  The conclusions of a trial that works are
presumed from then on: guards, and a call that breaks them is imported under its own extents.

A trial teaches nothing where its conclusions hold of its own numbers alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from alpenglow.base.errors import NONSENSE, AlpenglowError
from alpenglow.frontends.presume import Equation, Needed, Undecided, presume, presumed
from alpenglow.ir.dims import Assumption, Dim, Guards, Sym, assumed, assuming, bind, holds, names
from alpenglow.ir.solve import root

T = TypeVar("T")

MOST_TRIALS = 12
"""How often a node is tried."""

MOST_EQUATIONS = 3
"""So many of the comparisons that went against a node are looked at, the last ones first."""

STEP = 64
"""Extents are multiples of it: they halve as often as networks like."""

PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)


class RecordingTrial(Assumption):
    """An assumption that remembers what was asked whether it is 0 and is not."""

    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__(values)
        self.unequal: dict[Sym, None] = {}

    def decide(self, x: Dim, relation: str) -> bool:
        if isinstance(x, Sym) and bind(x, self.values) != 0:
            self.unequal.pop(x, None)
            self.unequal[x] = None
        return super().decide(x, relation)

    def differ(self, x: Dim) -> bool:
        differs = super().differ(x)
        if differs and isinstance(x, Sym):
            self.unequal.pop(x, None)
            self.unequal[x] = None
        return differs


def reconciled(attempt: Callable[[], T]) -> T | None:
    """Return the result of `attempt` under extents for which it works, and presume these.

    Return None where no trial works, or nothing may be presumed.  Raises Undecided where one works
    whose conclusions hold of its own extents alone.
    """
    kept = presumed()
    if kept is None or not kept.symbols or assumed() is not None:
        return None
    waiting = deque([kept.equations])
    seen = {kept.equations}
    for _ in range(MOST_TRIALS):
        if not waiting:
            break
        equations = waiting.popleft()
        values = _settled(kept.symbols, equations, 1)
        others = _settled(kept.symbols, equations, len(PRIMES))
        if values is None or not holds(tuple(kept.guards), values):
            continue
        trial = RecordingTrial(values)
        try:
            with assuming(trial):
                outcome = attempt()
        except (AlpenglowError, Undecided, Needed, *NONSENSE):
            for equation in _ways(trial):
                more = (*equations, equation)
                if more not in seen:
                    seen.add(more)
                    waiting.append(more)
            continue
        guards: Guards = tuple(trial.guards)
        if others is None or not holds((*kept.guards, *guards), others):
            raise Undecided(f"what holds of {values} does not of {others}")
        kept.equations = equations
        for x, relation in guards:
            presume(x, relation)
        return outcome
    return None


def _settled(
    symbols: Sequence[str], equations: Sequence[Equation], first: int
) -> dict[str, int] | None:
    """Return extents of which the equations are true; None if these do not tell any."""
    count = len(PRIMES)
    values = {
        s: STEP * PRIMES[(first + i) % count] * (1 + (first + i) // count)
        for i, s in enumerate(symbols)
    }
    for equation in equations:
        extent = root(equation.x, equation.symbol, values)
        if extent is None:
            return None
        values[equation.symbol] = extent
    return values if all(bind(e.x, values) == 0 for e in equations) else None


def _ways(trial: RecordingTrial) -> list[Equation]:
    """Return equations on symbols, each of which makes a failed comparison true.

    Extents of 0 and 1 come last: they fit much, but are seldom what is meant.
    """
    ways: list[tuple[bool, Equation]] = []
    for x in list(reversed(trial.unequal))[:MOST_EQUATIONS]:
        for symbol in sorted(names(x) & trial.values.keys()):
            extent = root(x, symbol, trial.values)
            if extent is not None:
                ways.append((extent <= 1, Equation(symbol, x)))
    return [equation for _, equation in sorted(ways, key=lambda way: way[0])]
