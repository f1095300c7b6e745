"""Calls that only check what another made: that one is told to check it itself.

`linalg.inv` and the like are a call that says of each matrix whether it could be done, and a call
that raises an error if not.  Nothing reads the results of the latter, so nothing would run it.
"""

from __future__ import annotations

from collections.abc import Iterable

from alpenglow.frontends.torch.program import Call, Ref

CHECK = "aten._linalg_check_errors.default"


def checked_by(call: Call) -> str:
    """Return the name of what a call does nothing but check; "" if it does anything else."""
    of = call.arguments.get("info") if call.target == CHECK else None
    return of.name if isinstance(of, Ref) else ""


def checked(calls: Iterable[Call]) -> frozenset[str]:
    """Return the names of what is checked."""
    return frozenset(name for call in calls if (name := checked_by(call)))
