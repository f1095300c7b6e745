"""Operators that cannot be imported: all of a model are listed at once, with reasons and places.

An importer that refuses an operator goes on behind it (`stepped`), so that a user who exports a
model again knows all that has to be different.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from alpenglow.base.errors import Refusal, UnsupportedError
from alpenglow.base.words import counted, some

NO_CONVERTER = "there is no converter"

ELSEWHERE = "export other operators, or add a converter (docs/add-an-operator.md)"
"""The hint for operators that have no converter."""

MOST_LISTED = 10
"""A message lists at most this many kinds of operators and reasons."""


def refused(refusals: Sequence[Refusal]) -> UnsupportedError:
    """Return the error for a model with operators that cannot be imported, at least one."""
    first = refusals[0].error
    if len(refusals) == 1 and first.node:  # a converter raised it
        error = UnsupportedError(first.message, node=first.node, hint=first.hint, flags=first.flags)
    else:
        hints = dict.fromkeys(r.error.hint for r in refusals if r.error.hint)
        reasons = summary((r.kind, r.reason, r.place) for r in refusals)
        error = UnsupportedError(reasons, hint="; ".join(hints))
    error.refusals = refusals
    return error


def unknown(kind: str, place: str, quantized: Sequence[str] = ()) -> Refusal:
    """Return the refusal of an operator that has no converter, or none for quantized types."""
    of = f" for quantized {' and '.join(quantized)}" if quantized else ""
    return Refusal(kind, place, UnsupportedError(NO_CONVERTER + of, hint=ELSEWHERE))


def summary(refusals: Iterable[tuple[str, str, str]], thing: str = "node") -> str:
    """Return the text that lists refusals, each an operator, a reason and a place, which may be "".

    Refusals of one operator for one reason make one entry, with their number: "3 nodes", "2 calls".
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for kind, reason, place in refusals:
        groups.setdefault((kind, reason), []).append(place)
    lines = []
    for (kind, reason), places in list(groups.items())[:MOST_LISTED]:
        distinct = list(dict.fromkeys(filter(None, places)))
        at = f" at {some(distinct)}" if distinct else ""
        lines.append(f"{kind} ({counted(len(places), thing)}{at}): {reason}")
    if len(groups) > MOST_LISTED:
        lines.append(f"and {len(groups) - MOST_LISTED} more")
    return f"{counted(len(groups), 'operator')} cannot be converted: " + "; ".join(lines)


@contextmanager
def refusing(missing: Sequence[Refusal]) -> Iterator[None]:
    """Raise UnsupportedError after an import if operators of the model have no converter.

    `missing` lists these operators; the error also lists what the import refuses for other reasons.
    """
    try:
        yield
    except UnsupportedError as error:
        if not missing:
            raise
        known = [r for r in error.refusals if r.error.message != NO_CONVERTER]
        raise refused([*missing, *known]) from error
    if missing:
        raise refused(missing)
