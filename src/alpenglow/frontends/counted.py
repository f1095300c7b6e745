"""Loops that count: the number of iterations of a loop, if only constants decide it.

The values that the condition reads, and their updates in the body, are a part of the loop: often a
counter and a step.  If this part begins with constants, it is imported alone and evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from alpenglow.base.errors import AlpenglowError
from alpenglow.evaluate import evaluate
from alpenglow.frontends.control import While
from alpenglow.frontends.presume import Needed, Undecided
from alpenglow.frontends.steps import LONGEST, Body, P, Step
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import FLOATS, NAMES, Array, TensorType

MOST_TURNS = 64
MOST_OPERATIONS = LONGEST
"""A loop of no more turns, and of no more operations in all of them, is imported turn by turn."""

LARGEST = 64
"""A carried value that decides has at most this many elements: each turn computes it."""


class Imported(Protocol):
    """The result of an import of a few steps."""

    g: Graph
    values: dict[str, Value]
    later: list[Any]

    def run(self, steps: Sequence[Any]) -> None: ...

    def find(self, name: str) -> Value: ...


class Counting(Protocol[P]):
    """The questions that counting has for the importer."""

    def prefix(self, step: Step[P]) -> str:
        """Return the prefix of the names in the regions of a step."""
        ...

    def constant(self, name: str) -> Array | None:
        """Return the elements of a value, if they are known numbers."""
        ...

    def apart(self, body: Body[P]) -> Imported:
        """Return an importer of steps of a body into a graph of their own."""
        ...


def turns(step: Step[P], loop: While[P], importer: Counting[P]) -> int | None:
    """Return how often a loop turns; None if that is not known, or it is not short."""
    before, within = loop.condition.length, loop.body.length
    if before is None or within is None or not step.outputs:
        return None
    most = min(MOST_TURNS, MOST_OPERATIONS // max(1, before + within))
    prefix = importer.prefix(step)
    names = [f"{prefix}i{k}" for k in range(len(step.inputs))]
    condition = loop.condition.place(f"{prefix}c/", names)
    body = loop.body.place(f"{prefix}b/", names)
    if len(condition.outputs) != 1 or len(body.outputs) != len(names):
        return None
    after = dict(zip(names, body.outputs, strict=True))
    decides: dict[str, None] = {}
    _, new = _behind(condition, condition.outputs, names)
    while new:
        decides |= dict.fromkeys(new)
        _, read = _behind(body, [after[n] for n in decides], names)
        new = [n for n in read if n not in decides]
    first = dict(zip(names, step.inputs, strict=True))
    held = {n: importer.constant(first[n]) for n in decides}
    start = {n: a for n, a in held.items() if a is not None and _is_small(a)}
    if len(start) < len(decides):
        return None
    try:
        goes_on = _graph(condition, condition.outputs, start, prefix, importer)
        follows = _graph(body, [after[n] for n in decides], start, prefix, importer)
    except (AlpenglowError, Needed, Undecided):
        return None  # importing the loop reports it
    return None if goes_on is None or follows is None else _counted(goes_on, follows, start, most)


def _behind(
    body: Body[P], outputs: Sequence[str], names: Sequence[str]
) -> tuple[list[Step[P]], list[str]]:
    """Return the steps that outputs are computed by, and which of `names` these read."""
    wanted = set(outputs)
    steps: list[Step[P]] = []
    for step in reversed(body.steps):
        if not wanted.isdisjoint(step.outputs):
            steps.append(step)
            wanted.update(step.reads)
    return steps[::-1], [n for n in names if n in wanted]


def _graph(
    body: Body[P], outputs: Sequence[str], start: Mapping[str, Array], prefix: str,
    importer: Counting[P],
) -> Graph | None:  # fmt: skip
    """Return the graph that computes outputs from integers; None if it has floats or waits.

    A name without the prefix stands outside of the body.
    """
    steps, _ = _behind(body, outputs, tuple(start))
    inner = importer.apart(body)
    for name, array in start.items():
        inner.values[name] = inner.g.input(name, TensorType(NAMES[array.dtype], array.shape))
    for name in {n: None for step in steps for n in step.reads if not n.startswith(prefix)}:
        outer = importer.constant(name)
        if outer is not None:
            inner.values[name] = inner.g.constant(outer)
    inner.run(steps)
    if inner.later:
        return None
    for i, name in enumerate(outputs):
        inner.g.output(f"o{i}", inner.find(name))
    # Floats may round otherwise where they are computed.
    types = [v.type for node in inner.g.nodes for v in node.results]
    exact = all(t.dtype not in FLOATS and not t.symbols() for t in types)
    return inner.g if exact else None


def _counted(goes_on: Graph, follows: Graph, start: Mapping[str, Array], most: int) -> int | None:
    held, count = dict(start), 0
    while np.all(evaluate(goes_on, held)["o0"]):
        if count >= most:
            return None
        made = evaluate(follows, held)
        fresh = {n: made[f"o{i}"] for i, n in enumerate(held)}
        if any(a.shape != held[n].shape or a.dtype != held[n].dtype for n, a in fresh.items()):
            return None
        held, count = fresh, count + 1
    return count


def _is_small(array: Array) -> bool:
    return array.dtype.kind in "iub" and array.size <= LARGEST
