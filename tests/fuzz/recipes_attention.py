"""Recipes for attention, rotary embeddings, and what stands around them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES, code
from .inference import Declined, allowed
from .recipe import recipe


def half(d: Draft, op: str, position: int = 0) -> str:
    """Return a float type: most often single precision, which ONNX Runtime has kernels for."""
    kinds = allowed(op, d.opset, position)
    return "float" if "float" in kinds and d.chance(0.6) else d.dtype(kinds)


@recipe("Attention")
def attention(d: Draft, op: str) -> None:
    kind = half(d, op)
    batch, keys, queries = d.number(1, 3), d.extent(17), d.extent(9)
    heads, each = d.number(1, 3), d.number(1, 3)
    size, width = d.one_of((1, 2, 4, 5, 8, 16, 17)), d.one_of((1, 3, 4, 8, 16, 17))
    flat = d.chance(0.35)

    def operand(count: int, length: int, wide: int) -> Var:
        shape = (batch, length, count * wide) if flat else (batch, count, length, wide)
        return d.pick([kind], len(shape), len(shape), where=lambda v: v.shape == shape,
                      shape=lambda: shape)  # fmt: skip

    given: list[Var | None] = [operand(heads * each, queries, size), operand(heads, keys, size),
                               operand(heads, keys, width)]  # fmt: skip
    more: dict[str, Any] = {}
    if flat:
        more |= {"q_num_heads": heads * each, "kv_num_heads": heads}
    past = d.number(1, 5) if d.chance(0.3) else 0
    total = keys + past
    given.append(mask(d, op, kind, batch, heads * each, queries, total) if d.chance(0.45) else None)
    if past:
        given += [d.fresh(kind, (batch, heads, past, size)),
                  d.fresh(kind, (batch, heads, past, width))]  # fmt: skip
    elif d.opset >= 24 and d.chance(0.3) and not given[3]:
        counts = d.rng.integers(min(queries, total), total + 1, batch)
        if queries > total:
            raise Declined
        lengths = d.given(counts.astype(np.int64), True)
        given += [None, None, lengths]
    more |= d.some(op, scale=(0.25, 1.0), softcap=(0.0, 2.0, 30.0)) if d.chance(0.6) else {}
    if d.chance(0.4):
        more["is_causal"] = d.number(0, 1)
    windows = d.has(op, "left_window_size") and d.chance(0.3)
    if windows:
        more |= d.some(op, left_window_size=(-1, 0, 1, 5), right_window_size=(-1, 0, 2))
    if d.chance(0.15):
        more["softmax_precision"] = code(d.one_of(("float", "double")))
    types = [(kind, (batch, queries, heads * each * width) if flat
              else (batch, heads * each, queries, width))]  # fmt: skip
    if d.chance(0.3) and (past or d.chance(0.5)):
        types += [(kind, (batch, heads, total, size)), (kind, (batch, heads, total, width))]
        if d.chance(0.4):
            types.append((kind, (batch, heads * each, queries, total)))
            more["qk_matmul_output_mode"] = d.number(0, 3)
    d.node(op, given, outputs=len(types), types=types, **more)


def mask(d: Draft, op: str, kind: str, batch: int, heads: int, queries: int, keys: int) -> Var:
    """Return a mask that hides no row altogether: that is nobody's concern."""
    shapes: list[tuple[int, ...]] = [(queries, keys), (batch, 1, queries, keys),
                                     (1, heads, queries, keys), (batch, heads, queries, keys),
                                     (1, keys), (heads, queries, keys)]  # fmt: skip
    shape = d.one_of(shapes)
    if d.chance(0.5):
        seen = d.rng.random(shape) < 0.6
        seen[..., 0] = True
        return d.given(seen, d.chance(0.7))
    return d.fresh(d.dtype(allowed(op, d.opset, 3)) if d.chance(0.2) else kind, shape)


@recipe("RotaryEmbedding")
def rotary(d: Draft, op: str) -> None:
    kind = half(d, op)
    batch, heads, length = d.number(1, 3), d.number(1, 3), d.number(1, 6)
    size = 2 * d.one_of((1, 2, 3, 4, 8, 9))
    turned = size
    more = d.some(op, interleaved=(0, 1))
    if size > 2 and d.chance(0.3):
        turned = 2 * d.number(1, size // 2)
        more["rotary_embedding_dim"] = turned
    flat = d.chance(0.4)
    shape = (batch, length, heads * size) if flat else (batch, heads, length, size)
    if flat or d.chance(0.2):
        more["num_heads"] = heads
    x = d.pick([kind], len(shape), len(shape), where=lambda v: v.shape == shape,
               shape=lambda: shape)  # fmt: skip
    if d.chance(0.5):
        table = (length + d.number(0, 3), turned // 2)
        places = d.rng.integers(0, table[0], (batch, length)).astype(np.int64)
        at = d.given(places, d.chance(0.6))
        if at.name in d.inputs:
            d.controls[at.name] = []
        given = [d.fresh(kind, table), d.fresh(kind, table), at]
    else:
        given = [d.fresh(kind, (batch, length, turned // 2)) for _ in range(2)]
    d.node(op, [x, *given], types=[(x.dtype, x.shape)], **more)


@recipe("LinearAttention")
def linear(d: Draft, op: str) -> None:
    kind = half(d, op)
    batch, length = d.number(1, 3), d.number(1, 9)
    groups, each = d.number(1, 3), d.number(1, 3)
    size, width = d.one_of((1, 2, 4, 8)), d.one_of((1, 3, 4, 8, 16))
    rule = d.one_of(("linear", "gated", "delta", "gated_delta"))
    q = d.fresh(kind, (batch, length, groups * each * size))
    k = d.fresh(kind, (batch, length, groups * size))
    v = d.fresh(kind, (batch, length, groups * width))
    state = d.fresh(half(d, op, 3), (batch, groups, size, width)) if d.chance(0.5) else None
    decay = beta = None
    if "gated" in rule:
        wide = groups * (size if d.chance(0.5) else 1)
        array = -np.abs(d.contents(kind, (batch, length, wide)).astype(np.float64))
        decay = d.given(array.astype(DTYPES[kind]))
    if "delta" in rule:
        share = d.rng.uniform(0, 1, (batch, length, groups))
        beta = d.given(share.astype(DTYPES[kind]))
    more = d.some(op, scale=(0.0, 0.5, 1.0), chunk_size=(1, 4, 64))
    if rule != "gated_delta" or d.chance(0.5):
        more["update_rule"] = rule
    kept = kind if state is None else state.dtype
    types = [(kind, (batch, length, groups * each * width)), (kept, (batch, groups, size, width))]
    d.node(op, [q, k, v, state, decay, beta], outputs=2, types=types,
           q_num_heads=groups * each, kv_num_heads=groups, **more)  # fmt: skip


@recipe("SwiGLU")
def swiglu(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    d.node(op, [x, x if d.chance(0.1) else d.fresh(x.dtype, x.shape)],
           types=[(x.dtype, x.shape)], **d.some(op, alpha=(1.0, 1.702, 0.5)))  # fmt: skip
