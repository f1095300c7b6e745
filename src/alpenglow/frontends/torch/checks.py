"""Calls that only check what another made: that one is told to check it itself.

`linalg.inv` and the like are a call that says of each matrix whether it could be done, and a call
that raises an error if not.  Nothing reads the results of the latter, so nothing would run it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from alpenglow.frontends.torch.control import CallStep
from alpenglow.frontends.torch.program import Call, Ref, symbols_in
from alpenglow.frontends.torch.symbols import is_untold
from alpenglow.ir.types import TensorType

ASSERT = "aten._assert_scalar.default"
CHECK = "aten._linalg_check_errors.default"


def without_places(
    steps: Iterable[CallStep], types: Mapping[str, TensorType], told: Iterable[str]
) -> list[CallStep]:  # fmt: skip
    """Return steps without those that check a symbol which nothing makes and nobody has told.

    It is where the elements of a slice begin in PyTorch's memory.
    """
    listed = list(steps)
    made = {s for t in types.values() for s in t.symbols()}
    made |= {r for step in listed for r in step.outputs}
    made.update(told)

    def is_placed(step: CallStep) -> bool:
        if step.kind != ASSERT:
            return False
        return not {n for n in symbols_in(step.payload.call.arguments) if is_untold(n)} <= made

    return [step for step in listed if not is_placed(step)]


def checked_by(call: Call) -> str:
    """Return the name of what a call does nothing but check; "" if it does anything else."""
    of = call.arguments.get("info") if call.target == CHECK else None
    return of.name if isinstance(of, Ref) else ""


def checked(steps: Iterable[CallStep]) -> frozenset[str]:
    """Return the names of what is checked."""
    return frozenset(name for step in steps if (name := checked_by(step.payload.call)))
