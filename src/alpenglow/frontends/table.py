"""Tables from operators of a format to converters.

Each module of converters registers its own where they are defined, so a new family is a new file.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from alpenglow.base.extensions import bring_extras, found_with_extras

K = TypeVar("K", bound=Hashable)
C = TypeVar("C")
E = TypeVar("E")


class Table(Generic[K, E]):
    """Entries by key, such as the name of an operator.

    `part` is the subpackage of each extra whose modules register more entries; "" if none does.
    """

    def __init__(self, part: str = "") -> None:
        self.entries: dict[K, E] = {}
        self._part = part
        self._origins: dict[K, str] = {}

    def on(self, keys: Iterable[K], entry_of: Callable[[C], E]) -> Callable[[C], C]:
        """Register the entry of the decorated converter for some keys, of which none has one."""

        def add(converter: C) -> C:
            entry = entry_of(converter)
            for key in keys:
                assert key not in self.entries, f"two converters for {key}"
                self.entries[key] = entry
                self._origins[key] = converter.__module__
            return converter

        return add

    def find(self, key: K) -> E | None:
        """Return the entry for a key, or None."""
        if not self._part:
            return self.entries.get(key)
        return found_with_extras(
            self._part, lambda: self.entries.get(key), lambda _: self._origins[key]
        )

    def names(self) -> list[K]:
        """Return all keys."""
        if self._part:
            bring_extras(self._part)
        return list(self.entries)
