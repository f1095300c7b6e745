"""Constants beside a text, by the SHA-256 that it calls them by, and whether they are those."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array, TensorType


class SideWeights(dict[str, Array]):
    """Constants that several texts share: each is hashed once, while the texts are read.

    Hashing a gigabyte takes half a second, in which Python can do something else.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        super().__init__(arrays)
        self._pool = ThreadPoolExecutor(1)
        self._begun: dict[tuple[str, TensorType], tuple[Future[str], list[Value]]] = {}

    def hash(self, name: str, v: Value) -> None:
        """Begin to hash a constant that a text calls by this name, if none before was the same."""
        key = name, v.type
        if key not in self._begun:
            self._begun[key] = self._pool.submit(getattr, v, "digest"), []
        self._begun[key][1].append(v)

    def settle(self) -> None:
        """Wait until all constants that were read know their digests."""
        for future, same in self._begun.values():
            for v in same:
                v.take_digest(future.result())
        self._pool.shutdown()
