"""Constants beside a text, by the SHA-256 that it calls them by, and whether they are those."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from alpenglow.base.memory import bytes_of, forget
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array, TensorType


class SideWeights(dict[str, Array]):
    """Constants that several texts share: each is looked at once, while the texts are read.

    Damage is found by the CRC-32 of their bytes where that is known: `sums`, by the SHA-256.  That
    takes 0.15 s for a gigabyte, and hashing half a second, in which Python can do something else.
    If they are seen in `passing`, those that lie in a file leave memory once they are checked.
    """

    def __init__(
        self, arrays: Mapping[str, Array], sums: Mapping[str, int], passing: bool = False
    ) -> None:
        super().__init__(arrays)
        self._passing = passing
        self._sums = sums
        self._pool = ThreadPoolExecutor(1)
        self._begun: dict[tuple[str, TensorType], tuple[Future[str], list[Value]]] = {}

    def hash(self, name: str, v: Value) -> None:
        """Begin to look at a constant that a text calls so, if none before was the same."""
        key = name, v.type
        if key not in self._begun:
            self._begun[key] = self._pool.submit(self._digest, name, v), []
        self._begun[key][1].append(v)

    def settle(self) -> None:
        """Wait until all constants that were read know their digests."""
        for future, same in self._begun.values():
            for v in same:
                v.take_digest(future.result())
        self._pool.shutdown()

    def _digest(self, name: str, v: Value) -> str:
        """Return the SHA-256 of a constant: its name, if the bytes are undamaged."""
        assert v.array is not None, "constants have contents"
        if name in self._sums and crc32_of(v.array) == self._sums[name]:
            digest = name
        else:
            digest = v.digest
        if self._passing:
            forget(v.array)
        return digest


def crc32_of(array: Array) -> int:
    """Return the CRC-32 of the bytes of an array, row by row."""
    return zlib.crc32(bytes_of(np.ascontiguousarray(array)).data)
