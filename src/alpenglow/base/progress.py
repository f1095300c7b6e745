"""Whom long work reports to: a function of what is done, how many parts of it, and of how many."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""
