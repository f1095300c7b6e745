"""The converter of TfIdfVectorizer: counts of the n-grams of a pool, and their weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.extras.ml.grams import CountGrams
from alpenglow.frontends.onnx.table import Made, Site, on, scalar
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.elementwise.comparison import Greater
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.tensor.movement import Broadcast, Reshape, stretch

Grams = dict[tuple[int, ...], int]
"""The column of each n-gram."""

MODES = ("TF", "IDF", "TFIDF")


@on("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(s: Site) -> Made:
    x = s.input(0)
    if s.attribute("pool_strings") is not None:
        raise s.refuse("strings are not supported")
    if x.type.rank > 2:
        raise s.wrong(f"input 0 is {x.type}, expected at most two axes")
    columns = s.needed("ngram_indexes")
    if min(columns, default=-1) < 0:
        raise s.wrong(f"ngram_indexes is {columns}, expected entries of at least 0")
    width = max(columns) + 1
    rows = x.type.shape[0] if x.type.rank == 2 else 1
    length = x.type.shape[-1] if x.type.rank else 1
    text = x if x.type.rank == 2 else s.g(Reshape((1, length)), x)
    counts = s.g(Broadcast((rows, width)), s.g.constant(np.float32(0)))
    least, most = s.needed("min_gram_length"), s.needed("max_gram_length")
    for size, grams in enumerate(pool(s, columns), 1):
        if grams and least <= size <= most:
            # Elements have no distance to keep where there is one.
            distances = 1 if size == 1 else s.needed("max_skip_count") + 1
            counts = s.g(Add(), counts, counted(s, text, grams, width, distances))
    weighted = weigh(s, counts, columns)
    return weighted if x.type.rank == 2 else s.g(Reshape((width,)), weighted)


def pool(s: Site, columns: Sequence[int]) -> list[Grams]:
    """Return the n-grams of the pool, shortest first."""
    elements, starts = s.attribute("pool_int64s") or (), s.needed("ngram_counts")
    remaining = iter(columns)
    by_size: list[Grams] = []
    for size, (start, end) in enumerate(zip(starts, (*starts[1:], len(elements)), strict=True), 1):
        if not 0 <= start <= end <= len(elements) or (end - start) % size:
            raise s.wrong(
                f"ngram_counts is {starts}, expected starts that divide a pool of "
                f"{len(elements)} elements into n-grams"
            )
        grams: Grams = {}
        for at in range(start, end, size):
            column = next(remaining, None)
            if column is None:
                raise s.wrong(f"ngram_indexes has {len(columns)} entries, "
                              "expected one for each n-gram")  # fmt: skip
            grams[tuple(elements[at : at + size])] = column
        by_size.append(grams)
    return by_size


def counted(s: Site, text: Value, grams: Grams, width: int, distances: int) -> Value:
    """Return how often n-grams of one size occur."""
    table = np.array(sorted(grams), np.int64)
    columns = np.array([grams[g] for g in sorted(grams)], np.int64)
    op = CountGrams(width, distances)
    return s.g(op, text, s.g.constant(table), s.g.constant(columns))


def weigh(s: Site, counts: Value, columns: Sequence[int]) -> Value:
    """Return the counts, the weights of what occurs, or both multiplied, as `mode` says."""
    mode, factors = s.needed("mode"), s.attribute("weights")
    if mode not in MODES:
        raise s.wrong(f"mode is '{mode}', expected one of {', '.join(MODES)}")
    if factors is not None and len(factors) != len(columns):
        raise s.wrong(f"weights has {len(factors)} entries, expected {len(columns)}")
    if mode == "TF" or (mode == "TFIDF" and factors is None):
        return counts
    weights = np.ones(max(columns) + 1, np.float32)
    if factors is not None:
        weights[list(columns)] = factors
    wide = stretch(s.g, s.g.constant(weights), counts.type.shape)
    if mode == "TFIDF":
        return s.g(Mul(), counts, wide)
    zero = scalar(s.g, 0, counts)
    return s.g(Where(), s.g(Greater(), counts, zero), wide, zero)
