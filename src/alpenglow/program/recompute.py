"""Computing again where memory is limited: what waits long for its reader is dropped meanwhile.

A step of training keeps almost all of its forward pass until the backward pass reads it.  Here
instructions are repeated before such a reader, on the same operands, so results have the same bits.
Again and again the moment with the most alive is looked at, and of the values that nobody reads
then the one is dropped that is cheapest to have back for its size, with what it is made of (Briggs,
Cooper and Torczon, "Rematerialization", 1992; of networks, Chen et al., 2016).

An order of instructions with repetitions says it all: each reads the latest of what it reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from alpenglow.base.memory import rounded_up
from alpenglow.ir.text import unique
from alpenglow.program.instr import Instr, Program, Region
from alpenglow.program.roll import arena_of, roll
from alpenglow.program.share import in_place_operands
from alpenglow.program.views import at_home, is_view, view

PER_BYTE = 4
"""How many multiply-adds take as long as moving a byte."""

SMALL = 20
"""What is so many times smaller than what is made of it is kept, not made again."""

MOST = 400
"""How many times something is dropped at most."""

CLEARLY = 0.98
"""An order is worth a plan if it takes so much of what the last one took that was."""

Order = tuple[int, ...]
"""Numbers of units, in the order in which they run; some are there more than once."""


def recompute(program: Program, limit: int) -> Program:
    """Return the program with instructions repeated until its plan keeps to the limit.

    Each buffer holds one value.  Nothing is repeated where rows that roll are enough.  If nothing
    keeps to the limit, the program is returned that takes the least, the same for any such limit.
    """
    if arena_of(program, limit) <= limit:
        return program
    rolled = arena_of(roll(program, limit), limit)
    if rolled <= limit:
        return program
    units, target = Units(program), limit
    tried: list[Lives] = []
    for lives in units.smaller():
        tried.append(lives)
        if lives.worst[0] > target:
            continue
        found = units.program_of(lives.order)
        taken = arena_of(found, limit)
        if taken <= limit:
            return found
        # Prices leave out how buffers fit together in the arena.
        target -= max(taken - limit, limit // 50) // 2
    best = _least(units, tried)
    if arena_of(best, limit) <= limit or arena_of(roll(best, limit)) < rolled:
        return best
    return program


def _least(units: Units, tried: Sequence[Lives]) -> Program:
    """Return the program that takes the least of those for orders that take less and less."""
    last = units.program_of(tried[-1].order)
    most = arena_of(last)
    others = [units.program_of(lives.order) for lives in tried[:-1] if lives.worst[0] < most]
    return min((last, *others), key=arena_of)


@dataclass(frozen=True)
class Unit:
    """An instruction with the views of its results, which cost nothing.

    It reads and makes values in the arena, by buffer; where one that it `shares` is read the last
    time, the result may take over its memory.
    """

    instrs: tuple[Instr, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    shares: tuple[str, ...]
    cost: float
    """The bytes that it moves, and what it computes as if it moved them too."""
    repeatable: bool


class Units:
    """The instructions of a program, as what may be repeated."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.early: list[Instr] = []
        """Views of what is not computed."""
        homes: dict[str, Region] = {}
        own: dict[str, list[Instr]] = {}
        makers: list[list[Instr]] = []
        for instr in program.instrs():
            (out, *_) = instr.outs
            seen = None
            if is_view(instr.op) and program.buffers[out.buffer].space == "arena":
                (source,) = instr.reads()
                seen = view(instr.op, at_home(source, homes))
            if seen is None:
                makers.append([instr])
                own.update((r.buffer, makers[-1]) for r in instr.outs)
            else:
                homes[out.buffer] = seen
                own.get(seen.buffer, self.early).append(instr)
        self.all = [self._unit(instrs, homes) for instrs in makers]
        self.makers = {name: k for k, unit in enumerate(self.all) for name in unit.makes}

    def _unit(self, instrs: Sequence[Instr], homes: Mapping[str, Region]) -> Unit:
        first = instrs[0]
        space = {name: b.space for name, b in self.program.buffers.items()}
        roots = [None if r is None else at_home(r, homes).buffer for r in first.ins]
        arena = [name for name in roots if name is not None and space[name] == "arena"]
        makes = tuple(r.buffer for r in first.outs if space[r.buffer] == "arena")
        shared = [roots[i] for i in in_place_operands(first)]
        moved = sum(r.type.nbytes for r in (*first.reads(), *first.outs))
        return Unit(
            tuple(instrs),
            tuple(dict.fromkeys(arena)),
            makes,
            tuple(name for name in shared if name in arena and len(makes) == 1
                  and self._size(name) == self._size(makes[0])),
            moved + first.work() / PER_BYTE,
            len(makes) == len(first.outs),
        )  # fmt: skip

    def _size(self, name: str) -> int:
        return rounded_up(self.program.buffers[name].nbytes)

    @cached_property
    def sizes(self) -> dict[str, int]:
        return {name: self._size(name) for name in self.makers}

    def smaller(self) -> Iterator[Lives]:
        """Yield orders that take less and less at once, from the given one on.

        Each takes clearly less than the one before, but for the last, which takes the least.
        """
        lives = Lives(self, tuple(range(len(self.all))))
        given_up: set[tuple[str, int]] = set()
        yielded = lives
        yield lives
        for _ in range(MOST):
            better = self._better(lives, given_up)
            if better is None:
                break
            lives = better
            if lives.worst[0] <= CLEARLY * yielded.worst[0]:
                yielded = lives
                yield lives
        if lives is not yielded:
            yield lives

    def _better(self, lives: Lives, given_up: set[tuple[str, int]]) -> Lives | None:
        """Return an order with less alive where most is; what did not help is not tried again."""
        for drop in sorted(lives.drops(given_up), key=lambda d: d.price):
            found = lives.without(drop)
            if found.worst < lives.worst:
                return found
            given_up.add(drop.key)
        return None

    def program_of(self, order: Order) -> Program:
        """Return the program that runs units in an order."""
        buffers = dict(self.program.buffers)
        taken = dict.fromkeys(buffers, 2)
        now: dict[str, str] = {}
        body = list(self.early)
        ran: set[int] = set()
        for k in order:
            for instr in self.all[k].instrs:
                ins = tuple(r if r is None else _renamed(r, now) for r in instr.ins)
                for r in instr.outs if k in ran else ():
                    label = unique(r.buffer, taken)
                    buffers[label] = replace(buffers[r.buffer], name=label)
                    now[r.buffer] = label
                outs = tuple(_renamed(r, now) for r in instr.outs)
                body.append(replace(instr, ins=ins, outs=outs))
            ran.add(k)
        return replace(self.program, buffers=buffers, body=tuple(body))


def _renamed(r: Region, now: Mapping[str, str]) -> Region:
    return replace(r, buffer=now[r.buffer]) if r.buffer in now else r


@dataclass(frozen=True)
class Drop:
    """A value that is not kept until the unit at a place reads it: `again` runs before that."""

    value: str
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
            if number == len(uses) or (number and uses[number - 1] == worst):
                continue
            place, first = uses[number], self.births[name][0]
            key = name, len(uses) - number
            if first < worst and self.birth(name, place) < worst and key not in given_up:
                drop = self._drop(name, place, worst, key)
                if drop is not None:
                    yield drop

    def _drop(self, name: str, place: int, worst: int, key: tuple[str, int]) -> Drop | None:
        units, again = self.units, dict[int, None]()
        size = units.sizes[name]
        held = 0  # bytes that are kept to make it again, which would not be alive otherwise

        def needs(value: str) -> bool:
            nonlocal held
            k = units.makers[value]
            if not units.all[k].repeatable:
                return False
            for operand in units.all[k].reads:
                last = self.last(operand, self.birth(operand, place))
                if last >= worst or units.makers[operand] in again:
                    continue
                if units.sizes[operand] * SMALL > size and needs(operand):
                    continue
                held += units.sizes[operand]
                if held >= size:
                    return False
            again[k] = None
            return True

        if not needs(name) or held >= size:
            return None
        cost = sum(units.all[k].cost for k in again)
        return Drop(name, place, tuple(again), cost / (size - held), key)

    def without(self, drop: Drop) -> Lives:
        """Return how it is without a value, and without what made it if nobody reads that."""
        at = drop.place
        order = (*self.order[:at], *drop.again, *self.order[at:])
        lives = Lives(self.units, order)
        while idle := lives.idle():
            order = tuple(k for place, k in enumerate(order) if place not in idle)
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
