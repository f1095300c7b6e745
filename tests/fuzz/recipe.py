"""The tables of recipes: functions that add random nodes of an operator to a draft."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from .draft import Draft
from .inference import Declined

Recipe = Callable[[Draft, str], None]
RECIPES: dict[str, Recipe] = {}
STAGED: dict[str, Recipe] = {}
"""Recipes for what depends on data; they are for drafts that are staged."""
PATTERNS: dict[str, Recipe] = {}
"""Recipes for several nodes that stand together in many networks."""


def recipe(*ops: str, table: dict[str, Recipe] = RECIPES) -> Callable[[Recipe], Recipe]:
    """Register the decorated function as the way to make random nodes of these operators."""

    def add(made: Recipe) -> Recipe:
        assert not table.keys() & set(ops), ops
        table.update(dict.fromkeys(ops, made))
        return made

    return add


def grow(d: Draft, wanted: int) -> None:
    """Add nodes by random recipes until there are `wanted`, or nothing fits."""
    tables = {id(t): sorted(t) for t in (RECIPES, STAGED, PATTERNS)}
    end = len(d.nodes) + wanted
    for _ in range(30 * wanted):
        if len(d.nodes) >= end:
            return
        # One level of nesting is mostly enough.
        table = STAGED if d.is_staged and d.chance(0.4 if not d.prefix else 0.1) else RECIPES
        if table is RECIPES and PATTERNS and d.chance(0.25):
            table = PATTERNS
        attempt(d, table, str(d.one_of(tables[id(table)])))


def attempt(d: Draft, table: dict[str, Recipe], name: str) -> bool:
    """Follow a recipe; return whether it came to its end.  What it made until then stands."""
    with contextlib.suppress(Declined):
        table[name](d, name)
        return True
    return False
