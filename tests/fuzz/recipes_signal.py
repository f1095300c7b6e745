"""Recipes for windows, transforms and features."""

from __future__ import annotations

import numpy as np

from .draft import Draft, recipe


@recipe("HannWindow", "HammingWindow", "BlackmanWindow")
def window(d: Draft, op: str) -> None:
    size = d.number(2, 12)
    d.node(op, [d.given(np.array(size, np.int64), True)], types=[("float", (size,))],
           periodic=d.number(0, 1))  # fmt: skip


@recipe("DFT")
def transform(d: Draft, op: str) -> None:
    shape = (d.number(1, 3), d.number(1, 12), d.number(1, 4), d.one_of((1, 2)))
    x = d.fresh(d.one_of(("float", "double")), shape, False)
    axis = d.number(1, 2)
    one_sided = shape[3] == 1 and d.chance(0.4)
    inverse = not one_sided and d.chance(0.4)
    size = d.number(1, 12) if d.chance(0.4) else shape[axis]
    out = list(shape)
    out[axis] = size // 2 + 1 if one_sided else size
    out[3] = 2
    length = d.given(np.array(size, np.int64), True) if size != shape[axis] else None
    flags = {"onesided": int(one_sided), "inverse": int(inverse)}
    types = [(x.dtype, tuple(out))]
    if d.opset >= 20:
        d.node(op, [x, length, d.given(np.array(axis, np.int64), True)], types=types, **flags)
    else:
        d.node(op, [x, length], types=types, axis=axis, **flags)


@recipe("STFT")
def frames(d: Draft, op: str) -> None:
    batch, size, step = d.number(1, 2), d.number(2, 9), d.number(1, 4)
    length = size + d.number(0, 12)
    x = d.fresh("float", (batch, length, 1), False)
    one_sided = d.number(0, 1)
    count = (length - size) // step + 1
    shape = (batch, count, size // 2 + 1 if one_sided else size, 2)
    d.node(op, [x, d.given(np.array(step, np.int64), True), d.fresh("float", (size,), True)],
           types=[("float", shape)], onesided=one_sided)  # fmt: skip


@recipe("MelWeightMatrix")
def mel(d: Draft, op: str) -> None:
    bins, size = d.number(1, 6), 2 * d.number(4, 16)
    numbers = [np.array(n, np.int64) for n in (bins, size, 8000)]
    numbers += [np.array(f, np.float32) for f in (20.0, 3500.0)]
    d.node(op, [d.given(n, True) for n in numbers], types=[("float", (size // 2 + 1, bins))])


@recipe("TfIdfVectorizer")
def grams(d: Draft, op: str) -> None:
    x = d.given(d.rng.integers(0, 5, d.one_of([(9,), (2, 7), (1, 3)])).astype(np.int64), False)
    d.controls[x.name] = []
    shape = (*x.shape[:-1], 6)
    d.node(op, [x], types=[("float", shape)], mode=d.one_of(("TF", "IDF", "TFIDF")),
           min_gram_length=1, max_gram_length=2, max_skip_count=d.number(0, 2),
           ngram_counts=[0, 3], ngram_indexes=[0, 1, 2, 3, 4, 5],
           pool_int64s=[1, 2, 4, 1, 2, 3, 3, 0, 4],
           weights=[0.5, 1.0, 2.0, 1.5, 1.0, 3.0])  # fmt: skip
