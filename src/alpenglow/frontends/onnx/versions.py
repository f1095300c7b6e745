"""A table from (domain, operator name, since-version) to what there is for an operator of ONNX.

A model of opset n uses the entry with the largest since-version up to n, so the old form of an
operator has an entry of its own exactly where it differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Versions(Generic[T]):
    """Entries by domain and name of an operator, and the opset since which they hold.

    `what` says in messages what an entry is.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._entries: dict[tuple[str, str], dict[int, T]] = {}

    def add(self, domain: str, name: str, since: int, entry: T) -> None:
        """Add an entry; no other may hold since the same opset."""
        versions = self._entries.setdefault((domain, name), {})
        assert since not in versions, f"two {self._what}s for {domain}:{name} since {since}"
        versions[since] = entry

    def find(self, domain: str, name: str, opset: int) -> T | None:
        """Return the entry for an operator of the given opset, or None."""
        versions = self._entries.get((domain, name), {})
        usable = [since for since in versions if since <= opset]
        return versions[max(usable)] if usable else None

    def names(self) -> list[str]:
        """Return the names of all operators with an entry, ``domain:name`` outside ai.onnx."""
        return sorted(f"{domain}:{name}" if domain else name for domain, name in self._entries)


def module_of(entry: Callable[..., object]) -> str:
    """Return the name of the module that defines an entry."""
    return entry.__module__
