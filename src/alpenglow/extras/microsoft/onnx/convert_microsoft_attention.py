"""Converters for ONNX Runtime's attention: with packed or separate projections, masks in all their
forms, caches of keys and values, and rotary positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from alpenglow.frontends.movement import part, pieces
from alpenglow.frontends.onnx.convert.attention import joined_heads, scale_or_usual, split_last
from alpenglow.frontends.onnx.convert.elementwise import MICROSOFT
from alpenglow.frontends.onnx.convert.window import product
from alpenglow.frontends.onnx.table import Made, Site, on, scalar
from alpenglow.frontends.presume import presume, presumed
from alpenglow.ir.dims import Dim, assumed, is_open, known
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add, Sign, Sub
from alpenglow.ops.elementwise.comparison import GreaterOrEqual, Less, LessOrEqual
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.attention import Attention, by_group, capped, mixed, scores
from alpenglow.ops.product.rotary import RotaryEmbedding
from alpenglow.ops.quantized.quantize import Dequantize
from alpenglow.ops.reduction.layer_norm import RMSNorm
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.sequence.cache import UpdateCache
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.generate import Range, Size
from alpenglow.ops.tensor.movement import Concat, Reshape, Transpose, stretch

FILTER = -10000.0
"""The default that is added to the score of a masked key."""


# ── heads ──


def split(s: Site, x: Value, heads: int) -> Value:
    """Return x[B, T, H·E] as [B, H, T, E]."""
    return s.g(Transpose((0, 2, 1, 3)), split_last(s, x, heads))


@on("Attention", domain=MICROSOFT)
def attention(s: Site) -> Made:
    x, weights, bias = s.input(0), s.input(1), s.optional(2)
    if x.type.rank != 3:
        raise s.wrong(f"input is {x.type}, expected [B, S, D]")
    qkv = product(s, x, weights)
    if bias is not None:
        qkv = s.g(Add(), qkv, stretch(s.g, bias, qkv.type.shape))
    return attended(s, qkv, s.optional(3), s.optional(4), s.optional(5), s.optional(6))


@on("QAttention", domain=MICROSOFT)
def q_attention(s: Site) -> Made:
    """Multiply dequantized input and weights; ONNX Runtime multiplies integers."""
    x = real(s, s.input(0), s.input(3), s.optional(6))
    weights = real(s, s.input(1), s.input(4), s.optional(7))
    qkv = product(s, x, weights)
    qkv = s.g(Add(), qkv, stretch(s.g, s.input(2), qkv.type.shape))
    return attended(s, qkv, s.optional(5), s.optional(8), None, None)


def real(s: Site, x: Value, scale: Value, zero: Value | None) -> Value:
    """Return the dequantized x, with one scale or one per column."""
    zero = s.g.constant(np.zeros((), x.type.numpy)) if zero is None else zero
    pair = [s.g(Reshape(()), v) if v.type.shape == (1,) else v for v in (scale, zero)]
    return s.g(Dequantize("f32"), x, *(stretch(s.g, v, x.type.shape) for v in pair))


def attended(
    s: Site, qkv: Value, mask: Value | None, past: Value | None, more: Value | None,
    filled: Value | None,
) -> list[Value]:  # fmt: skip
    """Return the result of attention on queries, keys and values that stand side by side."""
    if s.attribute("do_rotary", 0) or filled is not None:
        raise s.refuse("do_rotary and shared buffers are not supported")
    heads, size = s.needed("num_heads"), qkv.type.shape[2]
    third = size // 3
    sizes = s.attribute("qkv_hidden_sizes", (third, third, third))
    q, k, v = (split(s, p, heads) for p in pieces(s.g, qkv, 2, sizes))
    offset: Dim = 0
    if past is not None:
        offset = past.type.shape[3]
        before = [s.g(Reshape(past.type.shape[1:]), p) for p in pieces(s.g, past, 0, (1, 1))]
        k, v = s.g(Concat(2), before[0], k), s.g(Concat(2), before[1], v)
    rows, keys = q.type.shape[2], k.type.shape[2]
    hidden = added(s, [masked(s, mask, rows, keys), more])
    causal = bool(s.attribute("unidirectional", 0))
    op = Attention(scale_or_usual(s, q), causal=causal, offset=offset)
    y = s.g.add(op, [q, k, v, hidden]).results[0]
    both = [s.g(Reshape((1, *p.type.shape)), p) for p in (k, v)] if len(s.outputs) > 1 else []
    present = [s.g(Concat(0), *both)] if both and k.type == v.type else []
    return [joined_heads(s, y), *present]


def added(s: Site, masks: list[Value | None]) -> Value | None:
    """Return the sum of the masks that are given."""
    terms = [m for m in masks if m is not None]
    if len(terms) < 2:
        return terms[0] if terms else None
    return s.g(Add(), *s.broadcast(*(s.cast(m, terms[1].type.dtype) for m in terms)))


def masked(s: Site, mask: Value | None, rows: Dim, keys: Dim) -> Value | None:
    """Return the addend to the scores [B, H, rows, keys] that a mask of integers defines.

    A mask is the lengths [B], or ends and then starts [2B], or says with 1 which keys are there:
    [B, keys], [B, rows, keys] or, with more rows and keys than there are, [B, 1, M, M].
    """
    if mask is None:
        return None
    if mask.type.rank == 1:
        keep = spans(s, mask, keys)
    else:
        keep = there(s, mask, rows, keys)
    low = s.attribute("mask_filter_value", FILTER)
    zero, out = (s.g.constant(np.float32(v)) for v in (0.0, low))
    return s.g(Where(), keep, *(stretch(s.g, v, keep.type.shape) for v in (zero, out)))


def spans(s: Site, mask: Value, keys: Dim) -> Value:
    """Return which keys are there by lengths, or by ends and starts, as [B, 1, 1, keys]."""
    (count,) = mask.type.shape
    batch = s.input(0).type.shape[0]
    box = (batch, 1, 1, keys)
    at = stretch(s.g, s.cast(s.g(Range(keys)), mask.type.dtype), box)

    def bound(start: Dim) -> Value:
        return stretch(s.g, s.g(Reshape((batch, 1, 1, 1)), part(s.g, mask, 0, start, batch)), box)

    if count == batch and s.op_type != "MultiHeadAttention":
        mask = s.within(mask, 0, (1 << 31) - 1, "a number of keys")
    keep = s.g(Less(), at, bound(0))
    if count == batch:
        return keep
    if count != 2 * batch:
        raise s.refuse(f"the mask is {mask.type}, expected {batch} or {2 * batch} entries")
    return s.g(BitAnd(), keep, s.g(GreaterOrEqual(), at, bound(batch)))


def there(s: Site, mask: Value, rows: Dim, keys: Dim) -> Value:
    """Return which keys are there by a mask of ones and zeros, as [B, 1, rows or 1, keys]."""
    rank, shape = mask.type.rank, mask.type.shape
    if rank not in (2, 3, 4):
        raise s.wrong(f"the mask is {mask.type}, expected rank 1 to 4")
    # Its extents may be other symbols than those of the keys, or larger.
    mask = part(s.g, mask, mask.type.rank - 1, 0, keys)
    if rank == 4:
        mask = part(s.g, mask, 2, keys - rows, rows)
    else:
        mask = s.g(Reshape((shape[0], 1, *([1] if rank == 2 else [shape[1]]), keys)), mask)
    return s.cast(mask, "bool")


# ── separate projections ──


@on("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(s: Site) -> Made:
    if s.optional(8) is not None or s.optional(9) is not None:
        raise s.refuse("shared buffers and beams are not supported")
    heads = s.needed("num_heads")
    q, k, v = projections(s, heads)
    offset: Dim = 0
    past = (s.optional(6), s.optional(7))
    if past[0] is not None and past[1] is not None:
        offset = past[0].type.shape[2]
        k, v = s.g(Concat(2), past[0], k), s.g(Concat(2), past[1], v)
    hidden = masked(s, s.optional(4), q.type.shape[2], k.type.shape[2])
    mask = added(s, [hidden, s.optional(5)])
    causal = bool(s.attribute("unidirectional", 0))
    op = Attention(scale_or_usual(s, q), causal=causal, offset=offset, stage="masked")
    y, shown = s.g.add(op, [q, k, v, mask]).results
    return [joined_heads(s, y), k, v, shown]


def projections(s: Site, heads: int) -> list[Value]:
    """Return queries, keys and values [B, H, T, E], from the forms in which they may come.

    Queries [B, T, H, 3, E] hold all three, keys [B, T, H, 2, E] the values too; keys and values of
    rank 4 are by head already.
    """
    x, k, v = s.input(0), s.optional(1), s.optional(2)
    if x.type.rank == 5:
        qkv = [unpacked(s, p) for p in pieces(s.g, x, 3, (1, 1, 1))]
    elif k is None:
        raise s.wrong("key is missing, expected it beside a query of rank 3")
    elif v is None:
        qkv = [split(s, x, heads), *(unpacked(s, p) for p in pieces(s.g, k, 3, (1, 1)))]
    else:
        qkv = [split(s, x, heads), *(p if p.type.rank == 4 else split(s, p, heads)
                                     for p in (k, v))]  # fmt: skip
    bias = s.optional(3)
    if bias is None:
        return qkv
    biases = pieces(s.g, bias, 0, tuple(heads * p.type.shape[3] for p in qkv))
    return [biased(s, p, b) for p, b in zip(qkv, biases, strict=True)]


def unpacked(s: Site, x: Value) -> Value:
    """Return x[B, T, H, 1, E] as [B, H, T, E]."""
    batch, steps, heads, _, size = x.type.shape
    return s.g(Transpose((0, 2, 1, 3)), s.g(Reshape((batch, steps, heads, size)), x))


def biased(s: Site, x: Value, bias: Value) -> Value:
    """Return x[B, H, T, E] plus a bias [H·E]."""
    _, heads, _, size = x.type.shape
    return s.g(Add(), x, stretch(s.g, s.g(Reshape((heads, 1, size)), bias), x.type.shape))


# ── grouped queries with a cache ──


@dataclass(frozen=True)
class Cached:
    """Keys and values with their caches, and where in them each sample stands.

    `ends`[B] counts the keys of a sample, those of the step included.
    """

    q: Value
    k: Value
    v: Value
    ends: Value


@on("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(s: Site) -> Made:
    kinds = {s.attribute(f"{side}_quant_type", "NONE") for side in "kv"}
    if kinds != {"NONE"} or s.attribute("qk_output", 0):
        raise s.refuse("quantized caches are not supported")
    step = current(s)
    step = rotated(s, step) if s.attribute("do_rotary", 0) else step
    full = cached(s, step)
    window = s.attribute("local_window_size", -1)
    op = Attention(
        scale_or_usual(s, full.q),
        s.attribute("softcap", 0.0),
        causal=bool(s.attribute("causal", 1)),
        left=window - 1 if window > 0 else -1,
    )
    sink = s.optional(11)
    if sink is None and s.attribute("smooth_softmax", -1) > 0:
        sink = s.full(0, full.q.type.dtype, full.q.type.shape[1:2])
    if sink is None:
        y = s.g.add(op, [full.q, full.k, full.v, s.optional(10), full.ends]).results[0]
    else:
        y = drained(s, op, full, sink)
    return [joined_heads(s, y), full.k, full.v]


def current(s: Site) -> Cached:
    """Return the queries, keys and values of this step, by head."""
    heads, groups = s.needed("num_heads"), s.needed("kv_num_heads")
    x, k, v = s.input(0), s.optional(1), s.optional(2)
    if k is None or v is None:
        size = x.type.shape[2] // (heads + 2 * groups)
        x, k, v = pieces(s.g, x, 2, (heads * size, groups * size, groups * size))
    q, k, v = split(s, x, heads), split(s, k, groups), split(s, v, groups)
    norms, epsilon = (s.optional(14), s.optional(15)), s.attribute("qk_norm_epsilon", 1e-6)
    q = q if norms[0] is None else s.g(RMSNorm(3, epsilon), q, norms[0])
    k = k if norms[1] is None else s.g(RMSNorm(3, epsilon), k, norms[1])
    return Cached(q, k, v, ends(s, q))


def ends(s: Site, q: Value) -> Value:
    """Return how many keys each sample has after this step."""
    batch, _, rows, _ = q.type.shape
    past = s.optional(3)
    kept = 0 if past is None else past.type.shape[2]
    every = stretch(s.g, length(s, rows), (batch,))
    if appends(s, kept, rows):
        total, most = kept + rows, kept + rows
    else:
        total, extent = compared(s, rows)
        if total == extent:
            # The first step: shorter samples are padded behind, where nobody looks.
            return every
        most = total if past is None else max(compared(s, kept))
    before = s.cast(s.g(Reshape((batch,)), s.input(5)), "i64")
    if is_open(total):
        # It may be the first step, too.  Which it is must not be presumed, as that of an Equal of
        # extents would be: nothing is taken for granted of a sign.
        some = s.cast(s.g(Sign(), length(s, kept)), "bool")
        last = s.g(Sub(), every, scalar(s.g, 1, every))
        before = s.g(Where(), stretch(s.g, some, (batch,)), before, last)
    before = s.within(before, 0, most - 1, "a last position")
    return s.g(Add(), before, scalar(s.g, 1, before))


def appends(s: Site, kept: Dim, rows: Dim) -> bool:
    """Return whether the keys of this step stand behind the `kept` ones, of which an open number
    is full.

    Then that is presumed: the total length has a symbol of its own.
    """
    if assumed() is not None or presumed() is None or known(kept):
        return False
    (total,) = s.dims(6)
    if total == kept + rows:
        return True
    return is_open(total) and presume(total - kept - rows, "==")


def length(s: Site, d: Dim) -> Value:
    """Return an extent as a scalar i64."""
    return s.g.constant(np.int64(d)) if isinstance(d, int) else s.g(Size(), s.g(Range(d)))


def starts(s: Site, step: Cached) -> Value:
    """Return how many keys each sample had before this step."""
    rows = length(s, step.q.type.shape[2])
    return s.g(Sub(), step.ends, stretch(s.g, rows, step.ends.type.shape))


def rotated(s: Site, step: Cached) -> Cached:
    """Return queries and keys turned by their positions."""
    positions = s.optional(9)
    batch, _, rows, _ = step.q.type.shape
    if positions is None:
        first = s.g(Reshape((batch, 1)), starts(s, step))
        positions = s.g(Add(), *s.broadcast(first, s.g(Range(rows))))
    positions = s.within(positions, 0, s.input(7).type.shape[0] - 1, "a position")
    caches = [s.g(Gather(0), s.input(i), positions) for i in (7, 8)]
    half = caches[0].type.shape[-1]
    cos, sin = (s.g(Reshape((batch, 1, rows, half)), v) for v in caches)
    op = RotaryEmbedding(bool(s.attribute("rotary_interleaved", 0)))
    return replace(step, q=s.g(op, step.q, cos, sin), k=s.g(op, step.k, cos, sin))


def cached(s: Site, step: Cached) -> Cached:
    """Return the step with all keys and values: those in the cache, and its own behind them."""
    past = (s.optional(3), s.optional(4))
    if past[0] is None or past[1] is None or past[0].type.shape[2] == 0:
        return step
    rows, kept = step.q.type.shape[2], past[0].type.shape[2]
    total: Dim
    if appends(s, kept, rows):
        total = kept + rows
    else:
        total, kept = compared(s, kept)
    first = starts(s, step)
    both = []
    for cache, new in zip(past, (step.k, step.v), strict=True):
        assert cache is not None, "both are given"
        batch, groups, _, size = cache.type.shape
        if total == kept + rows or total > kept:
            room = s.full(0, cache.type.dtype, (batch, groups, rows, size))
            cache = s.g(Concat(2), cache, room)
            cache = cache if total == kept + rows else part(s.g, cache, 2, 0, total)
        both.append(s.g(UpdateCache(2), cache, new, first))
    return replace(step, k=both[0], v=both[1])


def compared(s: Site, d: Dim) -> tuple[int, int]:
    """Return the total length and an extent to compare it with.

    The import is cut here where they are open: they can be compared when it goes on.
    """
    (total,) = s.dims(6)
    for extent in (total, d):
        if is_open(extent) and not known(extent):
            s.measured(length(s, extent))
    assert known(total) and known(d), "an import that goes on knows its extents"
    return total, d


def drained(s: Site, op: Attention, full: Cached, sink: Value) -> Value:
    """Return attention in whose softmax each head has a score more, which goes nowhere."""
    (batch, heads, rows, _), keys = full.q.type.shape, full.k.type.shape[2]
    q, k, v, _ = by_group(s.g, full.q, full.k, full.v, None)
    x = s.g(Reshape((batch, heads, rows, keys)), scores(s.g, q, k, op.scale))
    x = capped(s.g, x, op.softcap) if op.softcap else x
    bias = s.optional(10)
    if bias is not None:
        x = s.g(Add(), x, stretch(s.g, s.cast(bias, x.type.dtype), x.type.shape))
    box = (batch, 1, rows, keys)
    place = stretch(s.g, s.g(Range(keys)), box)
    first = s.g(Reshape((batch, 1, 1, 1)), starts(s, full))
    row = s.g(Reshape((rows, 1)), s.g(Range(rows)))
    at = stretch(s.g, s.g(Add(), *s.broadcast(first, row)), box)
    seen = s.g(LessOrEqual(), place, at)
    if op.left >= 0:
        edge = s.g(Sub(), at, scalar(s.g, op.left, at))
        seen = s.g(BitAnd(), seen, s.g(LessOrEqual(), edge, place))
    x = s.g(Where(), stretch(s.g, seen, x.type.shape), x, scalar(s.g, -np.inf, x))
    drain = s.g(Reshape((heads, 1, 1)), s.cast(sink, x.type.dtype))
    every = s.g(Concat(3), x, stretch(s.g, drain, (batch, heads, rows, 1)))
    shares = part(s.g, s.g(Softmax(3), every), 3, 0, keys)
    y = mixed(s.g, s.g(Reshape((*q.type.shape[:-1], keys)), shares), v, full.q.type.dtype)
    return s.g(Reshape((batch, heads, rows, v.type.shape[-1])), y)


# ── rotary positions ──


@on("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(s: Site) -> Made:
    x, places, cos, sin = (s.input(i) for i in range(4))
    if s.attribute("is_packed_batching", 0):
        raise s.refuse("packed batches are not supported")
    half = cos.type.shape[1]
    shape = x.type.shape
    if x.type.rank == 3:
        count = s.attribute("num_heads", 0) or shape[2] // (half * 2)
        apart = (*shape[:2], count, shape[2] // count)
        x = s.g(Transpose((0, 2, 1, 3)), s.g(Reshape(apart), x))
    batch, _, rows, _ = x.type.shape
    if places.type.rank == 1:
        first = s.g(Reshape(()), places)
        places = s.g(Add(), *s.broadcast(first, s.g(Range(rows))))
    places = s.within(places, 0, cos.type.shape[0] - 1, "a position")
    caches = [s.g(Gather(0), v, places) for v in (cos, sin)]
    caches = [stretch(s.g, v, (batch, rows, half)) for v in caches]
    beside = [s.g(Reshape((batch, 1, rows, half)), v) for v in caches]
    y = s.g(RotaryEmbedding(bool(s.attribute("interleaved", 0))), x, *beside)
    return joined_heads(s, y) if len(shape) == 3 else y
