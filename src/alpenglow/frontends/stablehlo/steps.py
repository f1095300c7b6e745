"""Operations in a space of names: what an import goes through.

Each function names its values anew.  If a function is called, or a region replaces an operation,
its values get a prefix, and its arguments are the operands.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.stablehlo.module import (
    CALLS,
    Block,
    Module,
    Operation,
    Tensor,
    every,
    free,
)
from alpenglow.frontends.steps import LONGEST, Body, Step

DEEPEST_CALL = 200
"""How deep functions and regions may be nested."""

Names = MutableMapping[str, str]
"""From the names of values in a function to those in the space of all."""


@dataclass(frozen=True, slots=True, eq=False)
class Applied:
    """An operation of the program; `scope` has the names of what its regions read besides."""

    operation: Operation
    scope: Names


@dataclass(frozen=True, slots=True)
class Inner:
    """A block that an operation runs, in a function that is called, or in its region.

    `outer` has the names of what stands around a region.
    """

    module: Module
    block: Block
    outer: Names | None = None

    @property
    def length(self) -> int | None:
        """The number of operations; None if there are loops, custom calls, tuples or too many."""
        count, waiting = 0, [self.block]
        while waiting and count <= LONGEST:
            for o in every(waiting.pop()):
                count += o.name not in ("stablehlo.constant", "stablehlo.return")
                if o.name in ("stablehlo.while", "stablehlo.custom_call"):
                    return None
                if any(not isinstance(t, Tensor) for t in o.types):
                    return None
                if o.name in CALLS:
                    waiting.append(self.module.function(callee(o)).body)
        return count if count <= LONGEST else None

    def place(self, prefix: str, operands: Sequence[str]) -> Body[Applied]:
        return placed(self.block, prefix, operands, self.outer)


def callee(o: Operation) -> str:
    """Return the name of the function that an operation calls."""
    return str(o.attributes.get(CALLS[o.name], ""))


def placed(
    block: Block, prefix: str, operands: Sequence[str], outer: Names | None = None
) -> Body[Applied]:
    """Return a block with names behind a prefix, its arguments called as the operands are."""
    if len(operands) != len(block.arguments):
        raise ModelError(
            f"a block has {len(block.arguments)} arguments, expected {len(operands)}"
        )
    if (depth := prefix.count("/")) > DEEPEST_CALL:
        raise UnsupportedError(
            f"functions and regions are nested {depth} deep, expected at most {DEEPEST_CALL}"
        )
    if not block.operations:
        raise ModelError("a function that is called has no body, expected operations")
    scope: Names = ChainMap() if outer is None else ChainMap({}, outer)
    for (name, _), operand in zip(block.arguments, operands, strict=True):
        scope[name] = operand
    steps = []
    for o in block.body:
        inputs = named(o.operands, scope, o)
        outputs = tuple(prefix + name for name in o.results)
        captured = named(free(o), scope, o) if o.regions else ()
        scope.update(zip(o.results, outputs, strict=True))
        steps.append(Step(o.name, o.label, inputs, outputs, Applied(o, scope), captured))
    return Body(tuple(steps), named(block.results, scope, block.operations[-1]))


def named(names: Sequence[str], scope: Mapping[str, str], o: Operation) -> tuple[str, ...]:
    """Return names of values as they are in the space of all."""
    try:
        return tuple(scope[name] for name in names)
    except KeyError as error:
        raise ModelError(
            f"operand {error} is undefined, expected an earlier value", node=o.label
        ) from None
