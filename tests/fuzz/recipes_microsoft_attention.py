"""Recipes for ONNX Runtime's attention: projections packed or apart, masks, caches, positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .draft import Draft, Var
from .elements import Shape
from .grids import extreme, scale
from .recipe import recipe
from .recipes_gather import where_from
from .recipes_microsoft import add, options

SCALES = (0.25, 1.0, 0.0)
"""ONNX Runtime takes 0 for nothing."""


def sizes(d: Draft) -> tuple[int, int, int, int]:
    """Return samples, steps, heads and the size of a head."""
    return d.number(1, 3), d.number(1, 9), d.number(1, 3), d.one_of((1, 2, 4, 5, 8, 16))


def lengths(d: Draft, batch: int, keys: int) -> Var:
    return where_from(d, d.rng.integers(1, keys + 1, batch).astype(np.int32))


def mask(d: Draft, batch: int, rows: int, keys: int) -> Var | None:
    """Return which keys are there: how many, from where to where, or each by itself."""
    how = d.one_of(("none", "none", "counts", "spans", "keys", "each"))
    if how == "none":
        return None
    if how == "counts":
        return lengths(d, batch, keys)
    if how == "spans":
        ends = d.rng.integers(1, keys + 1, batch)
        begins = [int(d.rng.integers(0, e)) for e in ends]
        return where_from(d, np.array([*ends, *begins], np.int32))
    shape = (batch, keys) if how == "keys" else (batch, rows, keys)
    there = d.rng.integers(0, 2, shape).astype(np.int32)
    there[..., 0] = 1
    return where_from(d, there)


@recipe("com.microsoft:Attention", "com.microsoft:QAttention")
def attention(d: Draft, op: str) -> None:
    quantised = op.endswith("QAttention")
    batch, steps, heads, size = sizes(d)
    inner = d.extent(17)
    shape = (batch, steps, inner)
    kinds = ["uint8", "int8"] if quantised else ["float"]
    x = d.pick(kinds, 3, 3, empty=False, shape=lambda: shape,
               where=lambda v: v.shape[1] <= 17 and v.shape[2] <= 40)  # fmt: skip
    batch, steps, inner = x.shape
    apart = not quantised and d.chance(0.3)
    width = d.one_of((1, 2, 4, 8)) if apart else size
    wide = heads * (2 * size + width)
    more = options(d, unidirectional=(0, 1), mask_filter_value=(-10000.0, -1e4, -50.0))
    if d.chance(0.3):
        more["scale"] = d.one_of(SCALES[:2])
    past, before = None, 0
    if not apart and d.chance(0.3):
        before = d.number(1, 4)
        past = d.fresh("float", (2, batch, heads, before, size))
    keys = steps + before
    types: list[tuple[str, Shape]] = [("float", (batch, steps, heads * width))]
    if past is not None:
        types.append(("float", (2, batch, heads, keys, size)))
    there = mask(d, batch, steps, keys)
    bias = d.fresh("float", (wide,), True)
    if quantised:
        w = d.given(extreme(d, d.one_of(("uint8", "int8")), (inner, wide)), True)
        each = (wide,) if d.chance(0.3) else ()
        zero = d.given(d.contents(x.dtype, ()), True) if d.chance(0.6) else None
        w_zero = d.given(d.contents(w.dtype, each), True) if d.chance(0.6) else None
        given: list[Var | None] = [x, w, bias, scale(d, (), -5, -2), scale(d, each, -6, -3), there,
                                   zero, w_zero, past]  # fmt: skip
    else:
        w = d.fresh("float", (inner, wide), True)
        added = None
        if d.chance(0.3):
            added = d.fresh("float", d.one_of(((batch, heads, steps, keys), (1, heads, steps, keys),
                                               (1, 1, steps, keys))))  # fmt: skip
        given = [x, w, bias, there, past, added]
        if apart:
            more["qkv_hidden_sizes"] = [heads * size, heads * size, heads * width]
    add(d, op, given, *types, num_heads=heads, **more)


@recipe("com.microsoft:MultiHeadAttention")
def multi_head(d: Draft, op: str) -> None:
    batch, rows, heads, size = sizes(d)
    keys = d.number(1, 9)
    width = size if d.chance(0.7) else d.one_of((1, 2, 4, 8))
    how = d.one_of(("apart", "apart", "keys", "packed", "heads"))
    if how in ("keys", "packed"):
        width = size
    keys = rows if how == "packed" else keys
    q = d.pick(["float"], 3, 3, where=lambda v: v.shape == (batch, rows, heads * size),
               shape=lambda: (batch, rows, heads * size))  # fmt: skip
    given: list[Var | None]
    if how == "packed":
        given = [d.fresh("float", (batch, rows, heads, 3, size))]
    elif how == "keys":
        given = [q, d.fresh("float", (batch, keys, heads, 2, size))]
    elif how == "heads":
        given = [q, d.fresh("float", (batch, heads, keys, size)),
                 d.fresh("float", (batch, heads, keys, width))]  # fmt: skip
    else:
        given = [q, d.fresh("float", (batch, keys, heads * size)),
                 d.fresh("float", (batch, keys, heads * width))]  # fmt: skip
    given += [None] * (3 - len(given))
    biased = how == "apart" and d.chance(0.4)
    given.append(d.fresh("float", (heads * (2 * size + width),), True) if biased else None)
    before = d.number(1, 4) if how == "apart" and d.chance(0.3) else 0
    total = keys + before
    given.append(mask(d, batch, rows, total) if d.chance(0.5) else None)
    added = d.one_of(((batch, heads, rows, total), (1, heads, rows, total), (1, 1, rows, total)))
    given.append(d.fresh("float", added) if d.chance(0.3) else None)
    types: list[tuple[str, Shape]] = [("float", (batch, rows, heads * width))]
    if before:
        given += [d.fresh("float", (batch, heads, before, size)),
                  d.fresh("float", (batch, heads, before, width))]  # fmt: skip
    if how == "apart" and (before or d.chance(0.2)):
        types += [("float", (batch, heads, total, size)), ("float", (batch, heads, total, width))]
    more = options(d, unidirectional=(0, 1), mask_filter_value=(-10000.0, -50.0), scale=SCALES)
    add(d, op, given, *types, num_heads=heads, **more)


@recipe("com.microsoft:GroupQueryAttention")
def grouped(d: Draft, op: str) -> None:
    """A first step of some length, or a later one, with what it has in the cache."""
    batch, rows, groups, size = sizes(d)
    each = d.number(1, 3)
    heads = groups * each
    rotary = d.chance(0.4)
    if rotary or size % 2:
        size = d.one_of((16, 32)) if rotary else size
    first = d.chance(0.5)
    if not first:
        rows = 1
    kept = 0 if first else d.number(1, 6)
    total = rows + kept
    given: list[Var | None]
    if d.chance(0.3):
        given = [d.fresh("float", (batch, rows, (heads + 2 * groups) * size)), None, None]
    else:
        given = [d.fresh("float", (batch, rows, heads * size)),
                 *(d.fresh("float", (batch, rows, groups * size)) for _ in range(2))]  # fmt: skip
    caches: list[Var | None] = [None, None]
    if not first:
        caches = [d.fresh("float", (batch, groups, kept, size)) for _ in range(2)]
    given += caches
    ends = np.full(batch, total - 1, np.int32)
    if not first and batch > 1 and d.chance(0.5):
        ends[1:] = d.rng.integers(0, total, batch - 1)
    given += [d.given(ends, True), d.given(np.array(total, np.int32), True)]
    more: dict[str, Any] = options(
        d, scale=SCALES, softcap=(0.0, 5.0), local_window_size=(-1, 2, 4)
    )
    if rotary:
        more |= {"do_rotary": 1} | options(d, rotary_interleaved=(0, 1))
        table = (total + d.number(0, 4), size // 2)
        given += [d.fresh("float", table, True), d.fresh("float", table, True)]
    if d.chance(0.15):
        more["smooth_softmax"] = 1
    cache = ("float", (batch, groups, total, size))
    made = add(d, op, given, ("float", (batch, rows, heads * size)), cache, cache, num_heads=heads,
               kv_num_heads=groups, **more)  # fmt: skip
    if (ends < total - 1).any():
        # Rows of a cache behind its sequence are anything, and nobody is to read them.
        d.vars = [v for v in d.vars if v not in made[1:]]


@recipe("com.microsoft:RotaryEmbedding")
def rotary(d: Draft, op: str) -> None:
    batch, steps, heads, size = sizes(d)
    size = 2 * max(size // 2, 1)
    flat = d.chance(0.5)
    shape = (batch, steps, heads * size) if flat else (batch, heads, steps, size)
    x = d.pick(["float"], len(shape), len(shape), where=lambda v: v.shape == shape,
               shape=lambda: shape)  # fmt: skip
    rows = steps + d.number(0, 4)
    if d.chance(0.4):
        at = np.array([d.number(0, rows - steps)], np.int64)
    else:
        at = d.rng.integers(0, rows, (batch, steps)).astype(np.int64)
    table = (rows, size // 2)
    more = options(d, interleaved=(0, 1))
    if flat and heads > 1:
        # Without it, the width of the tables tells the size of a head.
        more |= options(d, num_heads=(heads,))
    given = [x, where_from(d, at), d.fresh("float", table, True), d.fresh("float", table, True)]
    add(d, op, given, (x.dtype, x.shape), **more)


@recipe("com.microsoft:QEmbedLayerNormalization")
def q_embed(d: Draft, op: str) -> None:
    batch, steps, size = d.number(1, 3), d.number(1, 7), d.extent(17)
    words, spots, kinds = d.number(2, 9), steps + d.number(0, 3), d.number(1, 3)
    kind = d.one_of(("uint8", "int8"))
    segmented = d.chance(0.6)

    def table(*shape: int) -> Var:
        return d.given(d.contents(kind, shape), True)

    def one(array: np.ndarray) -> Var:
        return d.given(array, True)

    ids = where_from(d, d.rng.integers(0, words, (batch, steps)).astype(np.int32))
    segments = where_from(d, d.rng.integers(0, kinds, (batch, steps)).astype(np.int32))
    there = where_from(d, d.rng.integers(0, 2, (batch, steps)).astype(np.int32))
    third = table(kinds, size) if segmented else None
    tables = [table(words, size), table(spots, size), third, table(size), table(size)]
    steps_: list[Var | None] = [scale(d, ()) for _ in range(5)]
    zeros: list[Var | None] = [one(d.contents(kind, ())) for _ in range(5)]
    if not segmented:
        steps_[2] = zeros[2] = None
    given = [ids, segments if segmented else None, *tables, there if d.chance(0.5) else None,
             *steps_, *zeros]  # fmt: skip
    add(d, op, given, ("float", (batch, steps, size)), ("int32", (batch,)),
        **options(d, epsilon=(1e-5, 1e-12)))  # fmt: skip
