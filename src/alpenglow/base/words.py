"""Words in messages that depend on what they are about."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """Return a number of things: ``1 thread``, ``2 threads``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
