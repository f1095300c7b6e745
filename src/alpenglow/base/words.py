"""Words in messages: how many of a thing, and names that come from files.

Whoever made a file chose the names in it.  On a terminal they may not move the cursor, turn the
direction of writing, begin a line, or go on for pages.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

LONGEST = 80
"""How many characters of a name are printed, of what stands in quotes, or of a word."""

LONGEST_TOLD = 4000
"""How many characters of a message are printed."""

FIX_DIMENSIONS = "fix the dimensions: graph.bind({'N': 4})"
"""The hint of what is not supported for dynamic dimensions of a graph."""

_QUOTED = re.compile(rf"(?<!\w)'(?=\S)([^']{{{LONGEST + 1},}})'(?!\w)")
_WORD = re.compile(rf"[^\s/'…]{{{LONGEST + 1},}}")


def escaped(text: str) -> str:
    """Return text with escapes for what does not print: controls, turns of direction, surrogates.

    A space is the only blank that prints as such.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(name: str) -> str:
    """Return a name as a message or table shows it: escaped, and cut if it is long."""
    return _cut_name(escaped(name))


def told(message: str) -> str:
    """Return a message with names in it as it is shown: one line, in which each name is cut.

    A name ends where its quotes do, or its word; the parts of a path are words.
    """
    line = _cut(escaped(message), 4 * LONGEST_TOLD)
    line = _QUOTED.sub(lambda m: f"'{_cut_name(m[1])}'", line)
    return _cut(_WORD.sub(lambda m: _cut(m[0], LONGEST), line), LONGEST_TOLD)


def _cut_name(name: str) -> str:
    """Return the end of a long path, which names the file, or the start of another name."""
    is_long = len(name) > LONGEST
    return f"…{name[-LONGEST:]}" if is_long and "/" in name else _cut(name, LONGEST)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


def counted(number: int, thing: str) -> str:
    """Return a number of things: ``1 thread``, ``2 threads``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def some(things: Iterable[str], most: int = 3) -> str:
    """Return the first few of some things, and how many there are besides."""
    listed = [escaped(thing) for thing in things]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def unread(error: Exception) -> str:
    """Return why NumPy reads no arrays from a file, without advice to unpickle it.

    A pickle runs what it says; whatever is no array looks like one to NumPy.
    """
    text = str(error)
    return "it is neither .npy nor .npz, or holds Python objects" if "pickle" in text else text


def meant(word: str, known: Iterable[str], alike: float = 0.6) -> str:
    """Return ``; did you mean 'run'?`` where a word is close to one that is known, else nothing."""
    close = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=alike)
    return f"; did you mean '{close[0]}'?" if close else ""


def apart(words: Iterable[str]) -> list[str]:
    """Return the words, numbered so that no two are alike even where case does not count."""
    distinct: list[str] = []
    taken: set[str] = set()
    for plain in words:
        word, number = plain, 1
        while word.lower() in taken:
            number += 1
            word = f"{plain}_{number}"
        taken.add(word.lower())
        distinct.append(word)
    return distinct
