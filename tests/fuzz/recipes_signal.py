"""Recipes for windows, transforms and features."""

from __future__ import annotations

import numpy as np

from .draft import Draft
from .elements import DTYPES, FLOATS, ORDINARY, code
from .inference import Declined, allowed
from .recipe import recipe


def typed(d: Draft, op: str) -> tuple[str, dict[str, int]]:
    """Return the element type of a result, and the attribute that says so, or nothing."""
    if d.chance(0.5):
        return "float", {}
    kind = d.dtype(t for t in d.makes(op) if t in ORDINARY)
    return kind, {"output_datatype": code(kind)}


@recipe("HannWindow", "HammingWindow", "BlackmanWindow")
def window(d: Draft, op: str) -> None:
    size = d.extent(64)
    if size < 2:
        raise Declined  # one that is symmetric divides by zero
    kind, named = typed(d, op)
    if kind not in FLOATS:
        raise Declined  # what is just below a whole number is cut off
    length = np.array(size, DTYPES[d.one_of(("int64", "int32"))])
    d.node(op, [d.known(length)], types=[(kind, (size,))], **d.some(op, periodic=(0, 1)), **named)


@recipe("DFT")
def transform(d: Draft, op: str) -> None:
    kinds = allowed(op, d.opset)

    def shape() -> tuple[int, ...]:
        middle = [d.extent(17) for _ in range(d.number(1, 3))]
        return (d.number(1, 3), *middle[:2], d.one_of((1, 2)))

    x = d.pick(kinds, 3, 4, empty=False, shape=shape, where=lambda v: v.shape[-1] in (1, 2))
    axis = d.number(1, x.rank - 2)
    extent = x.shape[axis]
    inverse = d.chance(0.4)
    one_sided = d.chance(0.4) and (d.opset < 20 or x.shape[-1] == 1 or inverse)
    if one_sided and (inverse or x.shape[-1] != 1):
        raise Declined  # what that means has changed, and is no two runtimes' same
    size = d.extent(17) if d.chance(0.4) else extent
    out = list(x.shape)
    out[axis] = size // 2 + 1 if one_sided else size
    out[-1] = 2
    length = None
    if size != extent or d.chance(0.2):
        length = d.known(np.array(size, DTYPES[d.one_of(("int64", "int32"))]))
    flags = {}
    if one_sided or d.chance(0.4):
        flags["onesided"] = int(one_sided)
    if inverse or d.chance(0.4):
        flags["inverse"] = int(inverse)
    types = [(x.dtype, tuple(out))]
    at = axis - x.rank if d.chance(0.3) else axis
    if d.opset >= 20:
        given = None if axis == x.rank - 2 and d.chance(0.5) else d.known(np.array(at, np.int64))
        d.node(op, [x, length, given], types=types, **flags)
    else:
        more = {} if axis == 1 and d.chance(0.5) else {"axis": axis}
        d.node(op, [x, length], types=types, **more, **flags)


@recipe("STFT")
def frames(d: Draft, op: str) -> None:
    kind = d.one_of([t for t in allowed(op, d.opset) if t in ("float", "double")])
    size, step = d.number(2, 17), d.number(1, 5)
    length = size + d.number(0, 20)
    complex_ = d.chance(0.2)
    x = d.pick([kind], 3, 3, empty=False, shape=lambda: (d.number(1, 2), length, 1 + complex_),
               where=lambda v: v.shape[1] >= size and v.shape[2] == 1 + complex_)  # fmt: skip
    more = d.some(op, onesided=(0, 1)) if not complex_ else {"onesided": 0}
    count = (x.shape[1] - size) // step + 1
    bins = size // 2 + 1 if more.get("onesided", 1) else size
    window = d.fresh(kind, (size,)) if d.chance(0.7) else None
    whole = np.int64 if d.chance(0.7) else np.int32
    frame = None
    if window is None or d.chance(0.4):
        frame = d.given(np.array(size, whole), True)
    d.node(op, [x, d.given(np.array(step, whole), True), window, frame],
           types=[(kind, (x.shape[0], count, bins, 2))], **more)  # fmt: skip


@recipe("MelWeightMatrix")
def mel(d: Draft, op: str) -> None:
    bins, size = d.number(1, 9), 2 * d.number(4, 40)
    whole = DTYPES[d.one_of(("int64", "int32"))]
    numbers = [np.array(n, whole) for n in (bins, size, d.one_of((8000, 16000)))]
    numbers += [np.array(f, np.float32) for f in (d.one_of((0.0, 20.0, 300.0)), 3500.0)]
    kind, named = typed(d, op)
    if kind not in FLOATS:
        raise Declined
    d.node(op, [d.given(n, True) for n in numbers], types=[(kind, (size // 2 + 1, bins))], **named)


@recipe("TfIdfVectorizer")
def grams(d: Draft, op: str) -> None:
    """Counts of the n-grams of a pool of one, two and three elements."""
    shape = d.one_of([(9,), (2, 7), (1, 3), (3, 17), (1,)])
    x = d.given(d.rng.integers(0, 5, shape).astype(DTYPES[d.one_of(("int64", "int32"))]), False)
    d.controls[x.name] = []
    ones = d.rng.permutation(5)[: d.number(1, 4)].tolist()
    pairs = [divmod(int(n), 5) for n in d.rng.permutation(25)[: d.number(1, 5)]]
    threes = [tuple(d.rng.integers(0, 5, 3).tolist()) for _ in range(d.number(0, 2))]
    threes = list(dict.fromkeys(threes))
    pool = [*ones, *(n for p in pairs for n in p), *(n for t in threes for n in t)]
    counts = [0, len(ones), len(ones) + 2 * len(pairs)]
    most = 3 if threes else 2
    count = len(ones) + len(pairs) + len(threes)
    columns = d.rng.permutation(count).tolist()
    more = {}
    if d.chance(0.6):
        more["weights"] = d.rng.uniform(0.1, 3, count).astype(np.float32).tolist()
    least = d.number(1, most)
    d.node(op, [x], types=[("float", (*shape[:-1], count))], mode=d.one_of(("TF", "IDF", "TFIDF")),
           min_gram_length=least, max_gram_length=d.number(least, most),
           max_skip_count=d.number(0, 3), ngram_counts=counts[:most], ngram_indexes=columns,
           pool_int64s=pool, **more)  # fmt: skip
