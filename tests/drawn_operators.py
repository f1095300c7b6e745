"""Operators beside their examples: other attributes, other extents, other operands.

What examples of one operator have is mixed, and changed a little.  Whatever the type rule lets pass
is an operator that somebody may have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpenglow.base.errors import AlpenglowError
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import TensorType, type_of

Operands = tuple[Any, ...]
Application = tuple[Op, Operands]

EXTENTS = (0, 1, 1, 2, 3, 3, 4, 5, 7, 8, 17)
LARGEST = 3000
"""The most elements of an operand."""


def drawn_from(
    examples: Sequence[Application], random: np.random.Generator, tries: int = 40
) -> Application | None:
    """Return an operator of the kind of examples, and its operands; None if nothing fits."""
    for _ in range(tries):
        op, operands = examples[int(random.integers(len(examples)))]
        mixed = _mixed(op, examples, random)
        for changed in (mixed, op):
            types = _stretched(operands, random)
            if changed is not None and _fits(changed, types):
                return changed, types
        if mixed is not None and _fits(mixed, operands):
            return mixed, operands
    return None


def _mixed(op: Op, examples: Sequence[Application], random: np.random.Generator) -> Op | None:
    """Return an operator with some attributes of other examples, or changed; None if it is none."""
    attributes = dict(op.__dict__)
    for name in attributes:
        fate = random.random()
        if fate < 0.3:
            other, _ = examples[int(random.integers(len(examples)))]
            attributes[name] = getattr(other, name)
        elif fate < 0.6:
            attributes[name] = _changed(attributes[name], random)
    try:
        return type(op)(**attributes)
    except (AlpenglowError, TypeError, ValueError, AssertionError):
        return None


def _changed(value: Any, random: np.random.Generator) -> Any:
    """Return a value of the same kind that differs a little."""
    match value:
        case bool():
            return not value
        case int():
            return value + int(random.integers(-2, 3))
        case float():
            return float(random.choice([0.0, 0.5, 1.0, 2.0, value, -value, value / 2]))
        case tuple() if value:
            place = int(random.integers(len(value)))
            return (*value[:place], _changed(value[place], random), *value[place + 1 :])
    return value


def _stretched(operands: Operands, random: np.random.Generator) -> Operands:
    """Return operands with other extents, equal ones where they were equal."""
    new: dict[str, str] = {}

    def other(match: re.Match[str]) -> str:
        old = match[0]
        if old not in new:
            new[old] = old if random.random() < 0.4 else str(random.choice(EXTENTS))
        return new[old]

    return tuple(
        x[: x.index("[")] + re.sub(r"\d+", other, x[x.index("[") :])
        if isinstance(x, str) and "/" not in x else x
        for x in operands
    )  # fmt: skip


def _fits(op: Op, operands: Operands) -> bool:
    """Whether an operator may be applied to operands, and none of them nor a result is large."""
    types = [x if x is None else type_of(x) if isinstance(x, np.ndarray) else TensorType.parse(x)
             for x in operands]  # fmt: skip
    try:
        results = Node(op, [None if t is None else Value(t) for t in types]).results
    except (AlpenglowError, ValueError, IndexError, ZeroDivisionError, OverflowError):
        return False
    every = [*(t for t in types if t is not None), *(v.type for v in results)]
    return all(min(t.extents, default=1) >= 0 and t.size <= LARGEST for t in every)
