"""Calls that only check what another made: that one is told to check it itself.

`linalg.inv` and the like are a call that says of each matrix whether it could be done, and a call
that raises an error if not.  Nothing reads the results of the latter, so nothing would run it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from alpenglow.frontends.torch.program import Call, Ref

CHECK = "aten._linalg_check_errors.default"


def told_to_check(calls: Iterable[Call]) -> list[Call]:
    """Return calls without those that check, and with ``check_errors`` where one did."""
    kept: list[Call] = []
    maker: dict[str, int] = {}
    for call in calls:
        of = call.arguments.get("info") if call.target == CHECK else None
        if isinstance(of, Ref) and of.name in maker:
            i = maker[of.name]
            kept[i] = replace(kept[i], arguments={**kept[i].arguments, "check_errors": True})
            continue
        maker |= dict.fromkeys(call.results, len(kept))
        kept.append(call)
    return kept
