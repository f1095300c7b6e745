"""Where in mutable memory things lie: the state, then inputs and outputs.

State comes first, so that it lies at the same bytes for all entry points of a bundle, and one piece
of memory serves them by turns:

    MARK            8 bytes: there is a state
    rows            8 bytes: how many rows of it
    variables       what each has at entry, one behind the other
    …               what those have at exit that are not computed in place, and the rest
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from alpenglow.base import words
from alpenglow.base.memory import rounded_up
from alpenglow.bundles.rows import Rows, Version
from alpenglow.ir.dims import Dim, is_open
from alpenglow.ir.types import TensorType
from alpenglow.program import Program

Memory = Literal["constants", "mutable", "scratch"]
MEMORIES: tuple[Memory, ...] = ("constants", "mutable", "scratch")
"""The regions, in the order in which an entry point takes them."""

WORDS_NBYTES = 16
"""Bytes of what is said of a state, before its variables."""

MARK = 0x6574_6174_7321
"""What the first word of a state holds while there is one."""


@dataclass(frozen=True, slots=True)
class Place:
    """A byte of a region; which one may depend on the rows of the state (`extents.ROWS`)."""

    memory: Memory
    offset: Dim


@dataclass(frozen=True, slots=True)
class Move:
    """So many bytes that are copied from one place to another."""

    to: Place
    source: Place
    nbytes: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """An input, output or variable: its name in the model and in C, and its place in `mutable`.

    Where extents depend on the rows of the state, `type` has them as large as they may be, and
    `now` is the shape as they are.  An input that is `hidden` needs new random bits at each call.
    """

    name: str
    ident: str
    type: TensorType
    output: bool
    offset: int
    now: tuple[Dim, ...] = ()
    hidden: bool = False

    @property
    def shown(self) -> str:
        """The type, with extents as they are."""
        return str(self.type.with_shape(self.now) if self.now else self.type)


@dataclass(frozen=True, slots=True)
class State:
    """What stays in mutable memory from call to call, at the same bytes for all entry points.

    `name` is the bundle's.  Variables that grow have room for `length` rows, 0 if there are none;
    `first` gives the others what they hold before the first call.
    """

    name: str
    cells: tuple[Symbol, ...]
    length: int
    nbytes: int
    first: tuple[Move, ...]

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions that there are besides entry points."""
        return tuple(
            f"{self.name}_{f}" for f in ("reset", *(("length", "trim") * (self.length > 0)))
        )


@dataclass(frozen=True, slots=True)
class Mutable:
    """The mutable memory of an entry point: `places` of buffers in it, and where it ends."""

    cells: tuple[Symbol, ...]
    symbols: tuple[Symbol, ...]
    places: Mapping[str, int]
    state_nbytes: int
    end: int


def mutable(versions: Sequence[Version], rows: Rows | None) -> Mutable:
    """Place the variables, inputs and outputs of the programs of an entry point."""
    first = versions[0].program
    assert all(v.program.inputs == first.inputs for v in versions), "programs differ in inputs"
    places: dict[str, int] = {}
    end = rounded_up(WORDS_NBYTES) if first.variables else 0
    cells, end = _placed(first.variables, first.variables, versions, rows, places, end)
    state_nbytes = end
    exits = [c.exit for v in versions for c in v.program.variables.values() if c.exit]
    for name in dict.fromkeys(n for n in exits if n not in first.variables):
        owner = next(v for v in versions if name in v.program.buffers)
        _, end = _placed([name], [name], [owner], rows, places, end)
    buffers = (*first.inputs, *first.outputs)
    called = [first.names.get(n, n) if k >= len(first.inputs) else n for k, n in enumerate(buffers)]
    symbols, end = _placed(buffers, called, versions, rows, places, end, len(first.inputs))
    return Mutable(cells, symbols, places, state_nbytes, end)


def _placed(
    buffers: Iterable[str], called: Iterable[str], versions: Sequence[Version], rows: Rows | None,
    places: dict[str, int], end: int, inputs: int | None = None,
) -> tuple[tuple[Symbol, ...], int]:  # fmt: skip
    """Place buffers one behind the other, from `end` on, the first `inputs` of them inputs."""
    symbols: list[Symbol] = []
    names = list(called)
    for k, (buffer, name, ident) in enumerate(zip(buffers, names, identifiers(names), strict=True)):
        t, now = _type(versions, buffer, rows)
        output = inputs is not None and k >= inputs
        hidden = inputs is not None and versions[0].program.buffers[buffer].hidden
        symbols.append(Symbol(name, ident, t, output, end, now, hidden))
        places[buffer] = end
        end += rounded_up(t.nbytes)
    return tuple(symbols), end


def _type(
    versions: Sequence[Version], buffer: str, rows: Rows | None
) -> tuple[TensorType, tuple[Dim, ...]]:
    """Return the type of a buffer, as large as it may be, and as it is where that depends."""
    t = _own(versions[0].program, buffer)
    if rows is None or not t.shape:
        return t, ()
    largest = [
        rows.largest(_own(v.program, buffer).shape, [n for a, b in v.rows for n in range(a, b + 1)])
        for v in versions
    ]
    now = tuple(rows.of(d) for d in t.shape)
    most = t.with_shape(map(max, zip(*largest, strict=True)))
    return most, now if any(map(is_open, now)) else ()


def _own(program: Program, buffer: str) -> TensorType:
    t = program.buffers[buffer].type
    assert t is not None, f"{buffer} is an input, output or variable without a type"
    return t


def identifiers(names: Iterable[str]) -> list[str]:
    """Return an identifier of C for each name, no two alike even where case does not count."""
    plain = (re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "unnamed" for name in names)
    return words.apart(plain)
