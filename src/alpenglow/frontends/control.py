"""Operations that run functions or regions: the steps of a body replace them.

If it is known which branch is taken, only that branch is imported.  Otherwise short ones are all
computed, and one result is chosen, if they cannot end the call.  A loop of a few iterations, as
`counted` finds, is imported iteration by iteration.  Other branches and loops become nodes of the
graph (`regions`).  If a graph cannot hold them, branches wait for the condition, and a loop is left
to the runtime (`ir.staged`): it begins with its condition, computed once, and each iteration is the
body with the condition behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Protocol

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.frontends.choice import choices
from alpenglow.frontends.operands import Operands
from alpenglow.frontends.rows import row, stacked
from alpenglow.frontends.steps import LOOP, Body, Make, P, Region, Step, copies, same
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array

SHORT = 64
"""Branches of no more operations than this in all are all computed."""


@dataclass(frozen=True, slots=True)
class Call(Generic[P]):
    """A region runs once, on operands by name."""

    region: Region[P]
    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Branch(Generic[P]):
    """One of the regions runs: by the truth of `chooser` the first or the second, or by its number,
    the last if there is none of that number."""

    chooser: str
    regions: tuple[Region[P], ...]
    operands: tuple[str, ...] = ()
    by_number: bool = False

    def taken(self, number: int) -> Region[P]:
        """Return the region that runs for an element of the chooser."""
        if not self.by_number:
            return self.regions[0 if number else 1]
        return self.regions[number if 0 <= number < len(self.regions) else -1]


@dataclass(frozen=True, slots=True)
class While(Generic[P]):
    """As long as the condition holds of what is carried, the body makes it anew."""

    condition: Region[P]
    body: Region[P]


@dataclass(frozen=True, slots=True)
class Along:
    """The axis of an operand or a result that a loop goes along, from its end if `reverse`."""

    axis: int
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Scan(Generic[P]):
    """The body runs `count` times.  Its operands are the `leading` ones, the carried values, and a
    row of each scanned operand.  Its results are the carried values of the next iteration, and rows
    that are stacked.

    `leading` are the shapes of the number of the iteration, an i64, and of a true value: both, the
    first alone, or none.  A scan that is `short` is imported turn by turn.
    """

    body: Region[P]
    count: Dim
    carried: tuple[str, ...]
    scanned: tuple[tuple[str, Along], ...]
    stacked: tuple[Along, ...]
    leading: tuple[tuple[int, ...], ...] = ()
    short: bool = True


@dataclass(frozen=True, slots=True)
class Repeat(Generic[P]):
    """The body runs on `leading` operands, like the body of a scan, and on the carried values.  It
    returns whether the loop goes on, the carried values of the next iteration, and rows that are
    stacked.

    It does not run if `going` is false at first, and at most as often as `trips` says; "" is one
    that is absent.  `most` is the value of `trips`, which is known if there are rows to stack.
    """

    body: Region[P]
    trips: str
    going: str
    carried: tuple[str, ...]
    leading: tuple[tuple[int, ...], ...]
    most: Dim = 0


Control = Call[P] | Branch[P] | While[P] | Scan[P] | Repeat[P]


@dataclass(frozen=True, slots=True)
class Turn(Generic[P]):
    """One iteration of a loop: its body and then its condition, where they stand.

    `outputs` are the names of the carried values, `going` is the name of the condition's result.
    """

    steps: tuple[Step[P], ...]
    bodies: tuple[Body[P], ...]
    outputs: tuple[str, ...]
    going: str


class Expanding(Protocol[P]):
    """The questions that an expansion has for the importer."""

    def one_element(self, name: str, dtypes: Collection[str]) -> int:
        """Return the element of a value that decides what is imported."""
        ...

    def prefix(self, step: Step[P]) -> str:
        """Return the prefix of the names in the regions of a step."""
        ...

    def enter(self, body: Body[P]) -> None:
        """Record the declarations of the values in a body."""
        ...


def expand(
    control: Call[P] | Branch[P] | While[P], step: Step[P], importer: Expanding[P]
) -> Sequence[Step[P]]:
    """Return the steps that replace one that runs regions.

    Raises Needed if the branch that is taken is not known.
    """
    match control:
        case Call(region, operands):
            return _called(step, region, operands, importer)
        case Branch():
            return _branch(control, step, importer)
        case While():
            return _loop(control, step, importer)


def turn_of(step: Step[P], names: Sequence[str]) -> Turn[P]:
    """Return a turn of a loop, a step of kind LOOP, that carries values by these names."""
    condition, region = step.regions
    body = region.place("b/", names)
    if not len(body.outputs) == len(step.outputs) == len(names):
        counts = f"{len(names)} operands, {len(step.outputs)} results and {len(body.outputs)}"
        raise ModelError(
            f"a loop has {counts} values that its body returns, expected the same number",
            node=step.label,
        )
    ends = tuple(f"o{i}" for i in range(len(body.outputs)))
    after = condition.place("c/", ends)
    steps = (*body.steps, *copies(step, body, ends), *after.steps)
    return Turn(steps, (body, after), ends, going_of(after))


def unrolled(step: Step[P], loop: While[P], count: int, importer: Expanding[P]) -> list[Step[P]]:
    """Return the steps of each turn of a loop, and those that name its results."""
    prefix, carried = importer.prefix(step), step.inputs
    steps: list[Step[P]] = []
    for turn in range(count):
        body = loop.body.place(f"{prefix}{turn}/", carried)
        importer.enter(body)
        steps += body.steps
        carried = body.outputs
    return [*steps, *(same(step, a, b) for a, b in zip(carried, step.outputs, strict=True))]


def scanned(step: Step[P], loop: Scan[P], importer: Expanding[P]) -> list[Step[P]]:
    """Return the steps of each turn of a scan, and those that make its results."""
    assert isinstance(loop.count, int), "an open number of turns is not short"
    prefix, carried = importer.prefix(step), loop.carried
    steps: list[Step[P]] = []
    made: list[Sequence[str]] = []
    for turn in range(loop.count):
        at = f"{prefix}{turn}/"
        operands = []
        told = (np.int64(turn), np.True_)
        for k, (shape, value) in enumerate(zip(loop.leading, told, strict=False)):
            operands.append(f"{at}n{k}")
            array = np.full(shape, value)
            steps.append(_made(step, (), operands[-1], partial(_constant, array=array)))
        operands += carried
        for k, (name, along) in enumerate(loop.scanned):
            operands.append(f"{at}x{k}")
            index = loop.count - 1 - turn if along.reverse else turn
            make = partial(row, axis=along.axis, index=index)
            steps.append(_made(step, (name,), operands[-1], make))
        body = loop.body.place(at, operands)
        importer.enter(body)
        steps += body.steps
        carried = body.outputs[: len(carried)]
        made.append(body.outputs[len(carried) :])
    steps += [same(step, a, b) for a, b in zip(carried, step.outputs, strict=False) if b]
    results = step.outputs[len(carried) :]
    for result, along, rows in zip(results, loop.stacked, zip(*made, strict=True), strict=True):
        if result:
            ordered = rows[::-1] if along.reverse else rows
            steps.append(_made(step, ordered, result, partial(stacked, axis=along.axis)))
    return steps


def _made(step: Step[P], operands: Sequence[str], result: str, make: Make) -> Step[P]:
    return Step(step.kind, step.label, tuple(operands), (result,), step.payload, make=make)


def _constant(s: Operands, array: Array) -> Value:
    return s.g.constant(array)


def _called(
    step: Step[P], region: Region[P], operands: Sequence[str], importer: Expanding[P]
) -> Sequence[Step[P]]:  # fmt: skip
    """Return the steps of a region, its outputs called as the results are."""
    body = region.place(importer.prefix(step), operands)
    importer.enter(body)
    return [*body.steps, *copies(step, body, step.outputs)]


def _branch(control: Branch[P], step: Step[P], importer: Expanding[P]) -> Sequence[Step[P]]:
    kind = "i32" if control.by_number else "bool"
    number = importer.one_element(control.chooser, (kind,))
    return _called(step, control.taken(number), control.operands, importer)


def all_branches(
    step: Step[P], control: Branch[P], importer: Expanding[P]
) -> Sequence[Step[P]] | None:
    """Return the steps of all branches, and the choice between their results; None if long."""
    lengths = [region.length for region in control.regions]
    if None in lengths or sum(n for n in lengths if n is not None) > SHORT:
        return None
    prefix = importer.prefix(step)
    steps: list[Step[P]] = []
    results: list[str] = []
    for i, region in enumerate(control.regions):
        body = region.place(f"{prefix}{i}/", control.operands)
        importer.enter(body)
        check_branch(step, i, body)
        steps += body.steps
        results += body.outputs
    inputs = (control.chooser, *results)
    choose = partial(choices, count=len(step.outputs))
    return [*steps, replace(step, inputs=inputs, captured=(), make=choose)]


def check_branch(step: Step[P], i: int, body: Body[P]) -> None:
    """Raise ModelError unless branch `i` returns a value for each result of its step."""
    if len(body.outputs) != len(step.outputs):
        found = f"branch {i} returns {len(body.outputs)} values"
        raise ModelError(f"{step.kind}: {found}, expected {len(step.outputs)}")


def _loop(control: While[P], step: Step[P], importer: Expanding[P]) -> Sequence[Step[P]]:
    """Return the steps of the first condition, and the loop."""
    first = control.condition.place(importer.prefix(step), step.inputs)
    importer.enter(first)
    inputs = (*step.inputs, going_of(first))
    regions = (control.condition, control.body)
    return [*first.steps, replace(step, kind=LOOP, inputs=inputs, regions=regions)]


def going_of(condition: Body[P]) -> str:
    """Return the name of what the condition of a loop makes."""
    if len(condition.outputs) != 1:
        raise ModelError(
            f"the condition of a loop returns {len(condition.outputs)} values, expected one"
        )
    return condition.outputs[0]
