"""Operations in one space of names: the steps of an import, whatever the format.

Each function, subgraph or region names its values anew.  If one is nested in another, its values
get a prefix, its inputs go by the names of the operands, and its outputs by names of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.operands import Operands
from alpenglow.ir.graph import Value

SAME = "alpenglow.same"
"""A step whose results are its operands."""

LOOP = "alpenglow.loop"
"""A step that the runtime turns round; its last operand says whether there is a first turn."""

LONGEST = 1024
"""Operations of longer regions are not counted to the end."""

MOST_STEPS = 1 << 20
"""A model has at most this many operations once each function stands where it is called."""

Make = Callable[[Operands], Value | Sequence[Value]]

P = TypeVar("P")
Co = TypeVar("Co", covariant=True)
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True, eq=False)
class Step(Generic[P]):
    """An operation, and the names of its operands and results; "" is an operand that is absent.

    `kind` is its operator, `label` what messages call it, `payload` what only the format reads.
    `captured` are what its regions read besides; `regions` are the condition and the body of LOOP.
    `make` makes the results of a step that is of no format.
    """

    kind: str
    label: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    payload: P
    captured: tuple[str, ...] = ()
    regions: tuple[Region[P], ...] = ()
    make: Make | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of all that it reads."""
        return (*filter(None, self.inputs), *self.captured)


@dataclass(frozen=True, slots=True)
class Body(Generic[P]):
    """A region where it stands: its steps, and the names of its outputs."""

    steps: tuple[Step[P], ...]
    outputs: tuple[str, ...]


class Region(Protocol[Co]):
    """A function, a subgraph or a block that an operation runs."""

    @property
    def length(self) -> int | None:
        """The number of operations; None above LONGEST, or if they do more than compute."""
        ...

    def place(self, prefix: str, operands: Sequence[str]) -> Body[Any]:
        """Return the region on operands, with names behind a prefix."""
        ...


def same(step: Step[P], name: str, result: str) -> Step[P]:
    """Return the step that calls a value by another name."""
    return Step(SAME, step.label, (name,), (result,), step.payload)


def copies(step: Step[P], body: Body[P], names: Sequence[str]) -> list[Step[P]]:
    """Return the steps that call the outputs of a body by names, "" for one that is not read."""
    if len(body.outputs) != len(names):
        raise ModelError(
            f"{step.kind}: the body returns {len(body.outputs)} values, expected {len(names)}",
            node=step.label,
        )
    return [same(step, o, n) for o, n in zip(body.outputs, names, strict=True) if n]


def reached(
    main: Name, calls: Callable[[Name], Sequence[Name]], length: Callable[[Name], int], what: str
) -> list[Name]:
    """Return a function and those that it calls, directly or not, each once, callers first.

    `calls` returns the functions that one calls, once for each call, `length` the number of its
    operations; messages call a function `what`.  Raises ModelError if one calls itself,
    UnsupportedError if there are more than MOST_STEPS operations.
    """
    sizes: dict[Name, int] = {}
    waiting = {main: list(calls(main))}
    while waiting:
        caller, called = next(reversed(waiting.items()))
        if called:
            name = called.pop()
            if name in waiting:
                raise ModelError(f"{what} {name!r} calls itself, expected no recursion")
            if name not in sizes:
                waiting[name] = list(calls(name))
            continue
        del waiting[caller]
        sizes[caller] = size = length(caller) + sum(sizes[name] for name in calls(caller))
        if size > MOST_STEPS:
            raise UnsupportedError(
                f"the model expands to at least {size:,} operations, expected at most "
                f"{MOST_STEPS:,}"
            )
    return list(reversed(sizes))
