"""What graphs, targets and executables say of themselves: a line for `repr`, HTML for notebooks.

Names come from files, so all of them are escaped and cut (`base.words`), and once more for HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import islice

from alpenglow.base.words import shown

MOST_NAMED = 6
"""How many inputs, and how many outputs, a line names; the rest is counted."""

MOST_ROWS = 100
"""How many inputs, and how many outputs, a table in HTML has."""

Types = Mapping[str, object]
"""What each input or output is, by name: a type, or None where nothing is known."""


def signature(inputs: Types, outputs: Types) -> str:
    """Return one line: ``x f32[2,3], k i64[] -> y f32[2,3]``."""
    return f"{_named(inputs)} -> {_named(outputs)}"


def bytes_text(nbytes: int) -> str:
    """Return a number of bytes with three digits and a unit: ``79.2 kB``."""
    if nbytes < 1000:
        return f"{nbytes} B"
    power = next((k for k in (1, 2, 3) if nbytes < 999.5 * 1000**k), 4)
    return f"{nbytes / 1000**power:.3g} {'_kMGT'[power]}B"


def html(title: str, inputs: Types, outputs: Types, notes: Sequence[str]) -> str:
    """Return a table of inputs and outputs under a title, and a line for each note."""
    rows = [*_rows("input", inputs), *_rows("output", outputs)]
    below = "".join(f"<div>{escape(note)}</div>" for note in notes)
    return f"<div><b>{escape(title)}</b><table>{''.join(rows)}</table>{below}</div>"


def _named(types: Types) -> str:
    first = [f"{shown(name)} {_type(t)}" for name, t in islice(types.items(), MOST_NAMED)]
    more = len(types) - len(first)
    return ", ".join([*first, *([f"{more} more"] if more else [])]) or "nothing"


def _type(t: object) -> str:
    return "?" if t is None else shown(str(t))


def _rows(kind: str, types: Types) -> list[str]:
    rows = [
        f"<tr><td>{kind}</td><td>{escape(shown(name))}</td><td>{escape(_type(t))}</td></tr>"
        for name, t in islice(types.items(), MOST_ROWS)
    ]
    more = len(types) - len(rows)
    return [*rows, *([f"<tr><td>{kind}</td><td>{more} more</td><td></td></tr>"] if more else [])]
