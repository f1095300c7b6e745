"""Counting n-grams of a pool: runs of words, perhaps with gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np

from alpenglow.ir.op import Examples, Host
from alpenglow.ir.types import Array
from alpenglow.ops.host.demand import integers, refuse, strings, tensor, text

Word = str | int


class CountNgrams(Host):
    """How often the n-grams of a pool occur in x[C], or in each row of x[N, C], as f32.

    An n-gram takes words at equal distances, with up to `skips` words between neighbours.  The
    pool holds all 1-grams, then all 2-grams, …; those of n words start at starts[n - 1].  The i-th
    n-gram is counted in column columns[i].  `mode` is tf (the count), idf (the weight, if it
    occurs), or tfidf (weight times count).  ONNX TfIdfVectorizer.
    """

    pool: tuple[Word, ...]
    starts: tuple[int, ...]
    columns: tuple[int, ...]
    shortest: int
    longest: int
    skips: int = 0
    mode: str = "tf"
    weights: tuple[float, ...] = ()

    def reference(self, x: Array) -> Array:
        return self.prepared()(x)

    def prepared(self) -> Callable[[Array], Array]:
        textual = any(isinstance(word, str) for word in self.pool)
        grams = self.grams()
        width = max(self.columns, default=-1) + 1

        def counted(x: Array) -> Array:
            if textual:
                x = strings(self, "x", x)
            else:
                integers(self, "x", x)
            if tensor(self, "x", x).ndim not in (1, 2):
                refuse(self, "x", x, "one axis or two")
            rows = x.reshape(1, -1) if x.ndim == 1 else x
            y = np.zeros((len(rows), width), np.float32)
            for out, row in zip(y, rows.tolist(), strict=True):
                for gram, count in Counter(self.found(row)).items():
                    if gram in grams:
                        i = grams[gram]
                        out[self.columns[i]] += self.score(i, count)
            return y[0] if x.ndim == 1 else y

        return counted

    def score(self, i: int, count: int) -> float:
        """Return the score of n-gram i that occurs `count` times."""
        weight = self.weights[i] if self.weights else 1.0
        return {"tf": float(count), "idf": weight, "tfidf": weight * count}[self.mode]

    def grams(self) -> dict[Hashable, int]:
        """Return the number of each n-gram of the pool that is counted."""
        numbers: dict[Hashable, int] = {}
        number = 0
        ends = (*self.starts[1:], len(self.pool))
        for n, (start, end) in enumerate(zip(self.starts, ends, strict=True), 1):
            for at in range(start, end, n):
                if self.shortest <= n <= self.longest:
                    numbers[self.pool[at : at + n]] = number
                number += 1
        return numbers

    def found(self, row: Sequence[Word]) -> Iterator[Hashable]:
        """Yield the n-grams of one list of words, each as often as it occurs."""
        for n in range(self.shortest, self.longest + 1):
            # Words farther apart than the row is long are in no n-gram.
            for step in range(1, min(self.skips + 1, len(row)) + 1):
                last = len(row) - (n - 1) * step
                for at in range(last):
                    yield tuple(row[at : at + (n - 1) * step + 1 : step])
                if n == 1:
                    break

    @classmethod
    def examples(cls) -> Examples:
        pool = ("a", "b", "a", "b", "b", "a")
        yield cls(pool, (0, 2), (0, 1, 2, 3), 1, 2), text("abba")
        yield cls(pool, (0, 2), (3, 1, 2, 0), 2, 2, 1), text("abbaab", (2, 3))
        yield cls((2, 3, 5, 4), (0, 2), (0, 1, 2), 1, 2, 5, "tfidf", (1.0, 2.0, 0.5)), np.arange(6)
        yield cls((2, 3), (0,), (0, 1), 1, 1, 0, "idf", (0.5, 2.0)), np.array([3, 3, 1])
