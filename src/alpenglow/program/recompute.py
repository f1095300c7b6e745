"""Computing again where memory is limited: what waits long for its reader is dropped meanwhile.

A step of training keeps almost all of its forward pass until the backward pass reads it.  Here
instructions are repeated before such a reader, on the same operands, so results have the same bits.
Again and again the moment with the most alive is looked at, and of the values that nobody reads
then the one is dropped that is cheapest to have back for its size, with what it is made of (Briggs,
Cooper and Torczon, "Rematerialization", 1992; of networks, Chen et al., 2016).  What can be moved
out of the way, see `moves`, is not dropped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from alpenglow.base import deadline
from alpenglow.base.progress import Progress, silent
from alpenglow.program.instr import Program
from alpenglow.program.moves import moved
from alpenglow.program.stream_rows import arena_of, stream_rows
from alpenglow.program.units import Order, Unit, Units

SMALL = 20
"""What is so many times smaller than what is made of it is kept, not made again."""

DEEPEST = 32
"""In how many turns what is gone is made again to make something again; beyond, it is kept."""

MOST = 400
"""How many times something is dropped, or moved, at most."""

SAVING = "saving KB of memory"

CLEARLY = 0.98
"""If no order keeps to the limit, one is planned that takes so much of what the last one took."""


def recompute(program: Program, limit: int, progress: Progress = silent) -> Program:
    """Return the program with instructions repeated until its plan keeps to the limit.

    Each buffer holds one value.  Nothing is repeated where rows that roll are enough.  If nothing
    keeps to the limit, the program is returned that takes the least, the same for any such limit.
    """
    free = arena_of(program, limit)
    if free <= limit:
        return program
    rolled = arena_of(stream_rows(program, limit), limit)
    if rolled <= limit:
        return program
    units, target = Units(program), limit
    tried: list[Lives] = []
    for lives in smaller(units):
        less = max(free - lives.worst[0], 0) // 1000
        deadline.check("the next order of instructions")
        # It is not done before a plan keeps to the limit, or the search ends.
        progress(SAVING, less, max(less + 1, (free - target) // 1000))
        if not tried or lives.worst[0] <= CLEARLY * tried[-1].worst[0]:
            tried.append(lives)
        if lives.worst[0] > target:
            continue
        found = units.program_of(lives.order)
        taken = arena_of(found, limit)
        if taken <= limit:
            progress(SAVING, less, less)
            return found
        # What is alive leaves out how buffers fit together in the arena.
        target -= max(taken - limit, limit // 100) // 2
    progress(SAVING, less, less)
    best = _least(units, [*tried, lives])
    if arena_of(best, limit) <= limit or arena_of(stream_rows(best, limit)) < rolled:
        return best
    return program


def _least(units: Units, tried: Sequence[Lives]) -> Program:
    """Return the program that takes the least of those for orders that take less and less."""
    last = units.program_of(tried[-1].order)
    most = arena_of(last)
    others = [units.program_of(lives.order) for lives in tried[:-1] if lives.worst[0] < most]
    return min((last, *others), key=arena_of)


def smaller(units: Units) -> Iterator[Lives]:
    """Yield orders that take less and less at once, from the given one on."""
    lives = Lives(units, tuple(range(len(units.all))))
    given_up: set[tuple[str, int]] = set()
    yield lives
    for _ in range(MOST):
        better = _moved(lives) or _better(lives, given_up)
        if better is None:
            return
        lives = better
        yield lives


def _moved(lives: Lives) -> Lives | None:
    """Return the same in an order with less alive where most is, if there is one."""
    given = tuple(range(len(lives.order)))
    nodes = moved(lives.units.graph_of(lives.order), given)
    if nodes == given:
        return None
    found = Lives(lives.units, tuple(lives.order[n] for n in nodes)).needed()
    return found if found.worst < lives.worst else None


def _better(lives: Lives, given_up: set[tuple[str, int]]) -> Lives | None:
    """Return an order with less alive where most is; what did not help is not tried again."""
    for drop in sorted(lives.drops(given_up), key=lambda d: d.price):
        found = lives.without(drop)
        if found.worst < lives.worst:
            return found
        other = _moved(found)
        if other is not None and other.worst < lives.worst:
            return other
        given_up.add(drop.key)
    return None


@dataclass(frozen=True)
class Drop:
    """A value that is not kept until the unit at a place reads it: `again` runs before that.

    Units at `early` places read it, too, and make little; they run before the worst place.
    """

    worst: int
    early: tuple[int, ...]
    place: int
    again: tuple[int, ...]
    price: float
    """What is computed again, for each byte that is not alive meanwhile."""
    key: tuple[str, int]
    """The value, and which of its readers that is."""


class Lives:
    """What is alive when, as units run in an order."""

    def __init__(self, units: Units, order: Order) -> None:
        self.units, self.order = units, order
        self.births: dict[str, list[int]] = {}
        self.uses: dict[str, list[int]] = {}
        for place, k in enumerate(order):
            for name in units.all[k].makes:
                self.births.setdefault(name, []).append(place)
            for name in units.all[k].reads:
                self.uses.setdefault(name, []).append(place)
        change = [0] * (len(order) + 1)
        for name, births in self.births.items():
            for birth in births:
                change[birth] += units.sizes[name]
                change[self.last(name, birth) + 1] -= units.sizes[name]
        live, self.alive = 0, list[int]()
        for place, k in enumerate(order):
            live += change[place]
            self.alive.append(live - self._taken_over(place, units.all[k]))
        most = max(self.alive, default=0)
        self.worst = most, self.alive.count(most)
        """How much is alive at most, and how often."""

    def _taken_over(self, place: int, unit: Unit) -> int:
        """Return the size of an operand whose memory the result at a place takes over."""
        dying = (n for n in unit.shares if self.last(n, self.birth(n, place)) == place)
        return max((self.units.sizes[n] for n in dying), default=0)

    def birth(self, name: str, place: int) -> int:
        """Return where what is read of a value at a place has been made."""
        births = self.births[name]
        return births[bisect_right(births, place) - 1]

    def last(self, name: str, birth: int) -> int:
        """Return where what is made of a value at a place is read last."""
        births, uses = self.births[name], self.uses.get(name, [])
        after = bisect_right(births, birth)
        end = bisect_right(uses, births[after]) if after < len(births) else len(uses)
        return uses[end - 1] if end and uses[end - 1] > birth else birth

    def drops(self, given_up: set[tuple[str, int]]) -> Iterator[Drop]:
        """Yield what may be dropped where most is alive."""
        worst = self.alive.index(self.worst[0])
        for name, uses in self.uses.items():
            number = bisect_right(uses, worst)
            if number and uses[number - 1] == worst:
                continue
            early = tuple(takewhile(partial(self._may_be_early, name, worst), uses[number:]))
            number += len(early)
            if number == len(uses):
                continue
            place, first = uses[number], self.births[name][0]
            key = name, len(uses) - number
            if first < worst and self.birth(name, place) < worst and key not in given_up:
                found = self._again(name, place, worst)
                if found is not None:
                    yield Drop(worst, early, place, *found, key)

    def _may_be_early(self, name: str, worst: int, place: int) -> bool:
        """Whether what reads a value at a place makes little, and may do so before the worst."""
        unit, sizes = self.units.all[self.order[place]], self.units.sizes
        return (
            unit.repeatable
            and not unit.elsewhere
            and sum(sizes[v] for v in unit.makes) * SMALL <= sizes[name]
            and all(self.birth(v, place) < worst for v in unit.reads)
        )

    def _again(self, name: str, place: int, worst: int) -> tuple[tuple[int, ...], float] | None:
        """Return what makes a value again before a place, and the price."""
        units, size = self.units, self.units.sizes[name]
        again = dict[int, None]()
        kept = dict[str, int]()  # what is kept to make it again, and would not be alive otherwise
        hopeless = set[str]()

        def needs(value: str, depth: int) -> bool:
            """Whether a value may be made again; then `again` has what does that."""
            k, made, held = units.makers[value], len(again), len(kept)
            unit = units.all[k]
            if unit.repeatable and all(keeps_or_needs(o, depth) for o in unit.reads):
                again[k] = None
                return True
            for other in [*again][made:]:
                del again[other]
            for operand in [*kept][held:]:
                del kept[operand]
            hopeless.add(value)
            return False

        def keeps_or_needs(operand: str, depth: int) -> bool:
            """Whether there is an operand for what is made again, with less kept than dropped."""
            last = self.last(operand, self.birth(operand, place))
            if last >= worst or units.makers[operand] in again or operand in kept:
                return True
            large = units.sizes[operand] * SMALL > size
            deep = depth == DEEPEST or operand in hopeless
            if not large or deep or not needs(operand, depth + 1):
                kept[operand] = units.sizes[operand]
            return sum(kept.values()) < size

        if not needs(name, 0):
            return None
        cost = sum(units.all[k].cost for k in again)
        return tuple(again), cost / (size - sum(kept.values()))

    def without(self, drop: Drop) -> Lives:
        """Return how it is without a value, and without what made it if nobody reads that."""
        worst, place, old = drop.worst, drop.place, self.order
        early = tuple(old[p] for p in drop.early)
        between = tuple(old[p] for p in range(worst, place) if p not in drop.early)
        order = (*old[:worst], *early, *between, *drop.again, *old[place:])
        return Lives(self.units, order).needed()

    def needed(self) -> Lives:
        """Return how it is without what is run for nothing."""
        lives = self
        while idle := lives.idle():
            order = tuple(k for place, k in enumerate(lives.order) if place not in idle)
            lives = Lives(self.units, order)
        return lives

    def idle(self) -> set[int]:
        """Return the places of units that are run for nothing: what they make is made again."""
        return {
            place for place, k in enumerate(self.order)
            if (made := self.units.all[k]).repeatable and all(
                self.last(name, place) == place and place != self.births[name][-1]
                for name in made.makes
            )
        }  # fmt: skip
