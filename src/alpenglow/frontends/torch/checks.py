"""Calls that only check what another made: that one is told to check it itself.

`linalg.inv` and the like are a call that says of each matrix whether it could be done, and a call
that raises an error if not.  Nothing reads the results of the latter, so nothing would run it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from alpenglow.frontends.torch.program import Call, Ref, symbols_in
from alpenglow.frontends.torch.symbols import is_untold
from alpenglow.ir.types import TensorType

ASSERT = "aten._assert_scalar.default"
CHECK = "aten._linalg_check_errors.default"


def without_places(
    calls: Iterable[Call], types: Mapping[str, TensorType], told: Iterable[str]
) -> list[Call]:  # fmt: skip
    """Return calls without those that check a symbol which nothing makes and nobody has told.

    It is where the elements of a slice begin in PyTorch's memory.
    """
    listed = list(calls)
    made = {s for t in types.values() for s in t.symbols()} | {r for c in listed for r in c.results}
    made.update(told)

    def is_placed(call: Call) -> bool:
        untold = {n for n in symbols_in(call.arguments) if is_untold(n)}
        return call.target == ASSERT and not untold <= made

    return [c for c in listed if not is_placed(c)]


def checked_by(call: Call) -> str:
    """Return the name of what a call does nothing but check; "" if it does anything else."""
    of = call.arguments.get("info") if call.target == CHECK else None
    return of.name if isinstance(of, Ref) else ""


def checked(calls: Iterable[Call]) -> frozenset[str]:
    """Return the names of what is checked."""
    return frozenset(name for call in calls if (name := checked_by(call)))
