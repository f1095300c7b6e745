"""Operations in a space of names: what an import goes through.

Each function names its values anew.  Where one is called, or a region stands in the place of an
operation, its values get a prefix, and its arguments are the operands.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.stablehlo.module import Block, Operation, free

DEEPEST_CALL = 200
"""So many functions and regions may stand in each other."""

Names = MutableMapping[str, str]
"""From the names of values in a function to those in the space of all."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """An operation and the names of its operands and results.

    `captured` are those of what its regions read besides, and `scope` has the names in these.
    """

    operation: Operation
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    captured: tuple[str, ...]
    scope: Names

    @property
    def kind(self) -> str:
        return self.operation.name

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.operation.label

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of all that it reads."""
        return (*self.inputs, *self.captured)


@dataclass(frozen=True, slots=True)
class Body:
    """A block where it stands: its steps, and the names of what it returns."""

    steps: tuple[Step, ...]
    outputs: tuple[str, ...]


def placed(block: Block, prefix: str, operands: Sequence[str], outer: Names | None = None) -> Body:
    """Return a block with names behind a prefix, its arguments called as the operands are."""
    if len(operands) != len(block.arguments):
        raise ModelError(
            f"a block has {len(block.arguments)} arguments for {len(operands)} operands"
        )
    if prefix.count("/") > DEEPEST_CALL:
        raise UnsupportedError(
            f"more than {DEEPEST_CALL} functions and regions stand in each other"
        )
    if not block.operations:
        raise ModelError("a function has no body")
    scope: Names = ChainMap() if outer is None else ChainMap({}, outer)
    for (name, _), operand in zip(block.arguments, operands, strict=True):
        scope[name] = operand
    steps = []
    for o in block.body:
        inputs = named(o.operands, scope, o)
        outputs = tuple(prefix + name for name in o.results)
        captured = named(free(o), scope, o) if o.regions else ()
        scope.update(zip(o.results, outputs, strict=True))
        steps.append(Step(o, inputs, outputs, captured, scope))
    return Body(tuple(steps), named(block.results, scope, block.operations[-1]))


def named(names: Sequence[str], scope: Mapping[str, str], o: Operation) -> tuple[str, ...]:
    """Return names of values as they are in the space of all."""
    try:
        return tuple(scope[name] for name in names)
    except KeyError as error:
        raise ModelError(f"value {error} is read before it is made", node=o.label) from None
