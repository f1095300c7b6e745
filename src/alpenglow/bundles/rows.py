"""Programs for every number of rows that the state of a bundle may hold.

A cache that grows leaves an extent open, how many rows there are as a call begins, and what
follows from it.  A bundle compiles nothing when it runs, but it has room for a stated number of
rows, so all that may ever be met is known: each number is tried.  Code is made as for sessions,
under an assumption (`ir.dims`), and serves the numbers of rows for which all its guards hold; what
is left over is compiled for itself, until nothing is.  Memory is planned for the largest sizes that
any of these numbers leads to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from alpenglow.base.errors import OptionError, TypeRuleError, UnsupportedError
from alpenglow.base.words import counted, shown, some
from alpenglow.bundles.extents import ROWS
from alpenglow.bundles.kernels import chosen, refuse_interpreted
from alpenglow.compiler import Options, run_ahead
from alpenglow.compiler.pipeline import open_program
from alpenglow.ir.dims import Assumption, Dim, assuming, bind, is_open, names, symbol
from alpenglow.ir.graph import Graph
from alpenglow.ir.solve import sources
from alpenglow.ir.target import Target
from alpenglow.machines.choice import ChosenKernel
from alpenglow.program import Program, plan
from alpenglow.program.instr import CAPACITY
from alpenglow.runtime.memory.layout import compiled

MOST_VERSIONS = 16
"""How many programs an entry point may choose from."""

MOST_ROWS = 1 << 20
"""For how many rows there may be room: each number of them is looked at."""

Range = tuple[int, int]
"""The first and the last of some numbers in a row."""


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A planned program, the kernels of its instructions but jumps, and the numbers of rows that it
    is for.

    None of these are said where nothing is open.
    """

    program: Program
    kernels: tuple[ChosenKernel, ...]
    rows: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What is open in a graph whose state has room for `length` rows, of which a call adds `step`.

    `meaning` says what each symbol is: a number, or an extent in `ROWS`.
    """

    length: int
    step: int
    meaning: Mapping[str, Dim]

    @property
    def most(self) -> int:
        """The most rows that may be there as a call begins."""
        return self.length - self.step

    def of(self, d: Dim) -> Dim:
        """Return an extent of the graph in terms of `ROWS`."""
        return bind(d, self.meaning)

    def values(self, rows: int) -> dict[str, int]:
        """Return what the symbols stand for where there are so many rows."""
        return {name: _number(bind(d, {ROWS: rows})) for name, d in self.meaning.items()}

    def largest(self, extents: Iterable[Dim], met: Iterable[int]) -> tuple[int, ...]:
        """Return for each extent the largest that any of these numbers of rows leads to."""
        told = [self.of(d) for d in extents]
        if not any(map(is_open, told)):
            return tuple(map(_number, told))
        call = compiled([ROWS], list(map(str, told)))
        return tuple(map(max, zip(*map(call, met), strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class Grown:
    """A graph with state that grows, planned for all numbers of rows."""

    rows: Rows
    versions: tuple[Version, ...]


def refuse_length(g: Graph | Program, length: int | None) -> None:
    """Raise OptionError if a length is told where nothing grows, or not where something does.

    Raises UnsupportedError for a program of state that grows: some numbers of rows alone made it.
    """
    if isinstance(g, Program) and any(c.axis is not None for c in g.variables.values()):
        raise UnsupportedError(
            f"program {shown(g.name)} has state that grows, which is not supported for a program",
            hint="bundle the model, or its graph",
        )
    growing = g.growing if isinstance(g, Graph) else {}
    if growing and length is None:
        raise OptionError(
            f"the state of {shown(g.name)} grows ({some(growing)}), and a bundle has to know for "
            "how many rows there shall be room",
            hint="length=256",
            flags="--max-length 256",
        )
    if length is None:
        return
    if not growing:
        raise OptionError(
            f"length is given, but no state of {shown(g.name)} grows",
            hint="state=True, if outputs become inputs of the next call",
            flags="--state, if outputs become inputs of the next call",
        )
    if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= MOST_ROWS:
        raise OptionError(
            f"length is {length!r}, expected for how many rows there is room, 1 to {MOST_ROWS}"
        )


def grown(g: Graph, target: Target, options: Options, length: int) -> Grown:
    """Plan a graph with state that grows for every number of rows up to `length`.

    Raises UnsupportedError if anything is open that does not follow from the rows, or code is for
    few numbers of rows only; OptionError if there is no room for the rows of one call.
    """
    rows = _rows(g, length)
    ahead = g if options.passes or options.after else run_ahead(g, target, options)
    left = set(range(rows.most + 1))
    versions: list[Version] = []
    middle = rows.most // 2
    while left:
        if len(versions) == MOST_VERSIONS:
            raise UnsupportedError(
                f"{len(versions)} programs serve other numbers of rows, and none of them supports "
                f"{min(left)}",
                hint="a smaller length",
            )
        met = middle if middle in left else min(left)
        version, served = _version(ahead, target, options, rows, met)
        versions.append(replace(version, rows=_ranges(served & left)))
        left -= served
    return Grown(rows, tuple(versions))


def _rows(g: Graph, length: int) -> Rows:
    """Return what is open in a graph, as rows tell it."""
    before = {name: g.inputs[name].type.shape[axis] for name, axis in g.growing.items()}
    rows = symbol(ROWS)
    meaning: dict[str, Dim] = {CAPACITY: length}
    for source in sources({"rows": tuple(dict.fromkeys(before.values())), **_equations(g)}):
        known = rows if source.input == "rows" else 0
        told = (known - bind(source.rest, meaning)) * source.factor
        if source.factor in (1, -1) and names(told) <= {ROWS}:
            meaning[source.symbol] = told
    _require_told(g, meaning)
    grows = {}
    for name, axis in g.growing.items():
        after = g.outputs.get(name, g.inputs[name]).type.shape[axis]
        grows[name] = bind(after, meaning) - rows
    steps = list(dict.fromkeys(grows.values()))
    if len(steps) > 1 or not isinstance(steps[0], int) or steps[0] < 1:
        listed = some(f"{name} by {d}" for name, d in grows.items())
        raise UnsupportedError(
            f"the state of {shown(g.name)} grows ({listed}), expected the same number of rows for "
            "each variable and call"
        )
    if steps[0] > length:
        raise OptionError(f"length is {length}, expected {steps[0]} or more, which a call adds")
    return Rows(length, steps[0], meaning)


def _equations(g: Graph) -> dict[str, tuple[Dim, ...]]:
    """Return what is 0 wherever the graph may run."""
    return {f"guard {i}": (x,) for i, (x, relation) in enumerate(g.guards) if relation == "=="}


def _require_told(g: Graph, meaning: Mapping[str, Dim]) -> None:
    """Raise UnsupportedError if an extent of an input does not follow from the rows of the state.

    These are the only ones that the memory of a bundle bounds.
    """
    types = {k: v.type for k, v in g.callers_inputs().items()}
    types |= {k: v.type for k, v in g.inputs.items() if k in g.initial}
    known = dict(meaning)
    needed: list[str] = []
    for name in (n for t in types.values() for d in t.shape for n in sorted(names(d))):
        if name not in known:
            needed.append(name)
            # What follows from those that are asked for is not asked for.
            given = tuple(map(symbol, (*meaning, *needed)))
            known |= {s.symbol: 0 for s in sources({"given": given, **_equations(g)})}
    if not needed:
        return
    where = {k: t for k, t in types.items() if t.symbols() & set(needed)}
    first, t = next(iter(where.items()))
    closed = tuple(d if isinstance(d, int) else 1 for d in t.shape)
    raise UnsupportedError(
        f"dimensions {', '.join(needed)} are dynamic in "
        f"{some(f'{k} {t}' for k, t in where.items())}, expected fixed ones, or some that follow "
        "from the rows of the state",
        hint=f"shapes={{'{first}': {closed}}}, with numbers of your choice",
        flags=f"{' '.join(f'--dim {n}=1' for n in needed)}, with numbers of your choice",
    )


def _version(
    g: Graph, target: Target, options: Options, rows: Rows, met: int
) -> tuple[Version, set[int]]:
    """Return what serves a number of rows, and all numbers that it serves.

    Extents that happen to be round numbers should not count as such, so decisions are taken as for
    another number first, if what is made then is right for this one.
    """
    for like in dict.fromkeys((_odd(met), met)):
        if like > rows.most:
            continue
        assumption = Assumption(rows.values(like))
        assumption.guards |= dict.fromkeys(g.guards)
        try:
            with assuming(assumption):
                program = open_program(g, target, options)
                refuse_interpreted({target: [program]})
                kernels = chosen(program, target, options.numerics == "strict")
        except TypeRuleError:
            if like == met:
                raise
            continue
        served = _served(assumption, rows)
        if met in served:
            return Version(_planned(program, rows, served), kernels), served
    raise TypeRuleError(
        f"{counted(met, 'row')} of state are not supported by graph {g.name}, imported for other "
        f"dimensions: {', '.join(f'{n} = {v}' for n, v in rows.values(met).items())}"
    )


def _served(assumption: Assumption, rows: Rows) -> set[int]:
    """Return the numbers of rows for which all that was concluded is true."""
    conditions = dict.fromkeys(f"({rows.of(x)}) {rel} 0" for x, rel in assumption.guards)
    holds = compiled([ROWS], [" and ".join(conditions) or "True"], "")
    return {r for r in range(rows.most + 1) if holds(r)}


def _planned(program: Program, rows: Rows, served: set[int]) -> Program:
    """Return a program whose buffers have places where they are as large as they ever are."""
    arena = [name for name, b in program.buffers.items() if b.space == "arena"]
    sizes = rows.largest([program.buffers[name].nbytes for name in arena], served)
    # What is empty has a place of its own, too: C compilers warn of operands that are results.
    bounded = {
        name: replace(program.buffers[name], nbytes=max(size, 1))
        for name, size in zip(arena, sizes, strict=True)
    }
    return plan(replace(program, buffers={**program.buffers, **bounded}))


def _ranges(numbers: set[int]) -> tuple[Range, ...]:
    """Return numbers as ranges, in order."""
    ranges: list[Range] = []
    for n in sorted(numbers):
        if ranges and ranges[-1][1] == n - 1:
            ranges[-1] = ranges[-1][0], n
        else:
            ranges.append((n, n))
    return tuple(ranges)


def _odd(number: int) -> int:
    """Return a prime about as large that is no extent of anything else, or a number below 2."""
    if number < 2:
        return number
    number = max(number, 17)
    while any(number % d == 0 for d in range(2, int(number**0.5) + 1)):
        number += 1
    return number


def _number(d: Dim) -> int:
    assert isinstance(d, int), f"{d} is open"
    return d
