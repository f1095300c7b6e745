"""Converters for attention and what goes with it: rotary positions, caches, gates."""

from __future__ import annotations

from alpenglow.frontends.onnx.file.attributes import element_type
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.frontends.presume import fixed, presume
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Value
from alpenglow.ir.op import normal_axis
from alpenglow.ops.elementwise.activation import Swish
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.product.attention import STAGES, Attention
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.product.rotary import RotaryEmbedding
from alpenglow.ops.reduction.reduction import as_type
from alpenglow.ops.sequence.cache import UpdateCache
from alpenglow.ops.sequence.linear_attention import LinearAttention
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Concat, Pad, Reshape, Slice, Transpose

LARGEST = (1 << 63) - 1
"""As much as an i64 holds."""


@on("Attention", since=23)
def attention(s: Site) -> Made:
    flat = s.input(0).type.rank == 3
    q = by_head(s, s.input(0), "q_num_heads")
    k, v = (by_head(s, s.input(i), "kv_num_heads") for i in (1, 2))
    past, lengths = (s.optional(4), s.optional(5)), s.optional(6)
    if (past[0] is None) != (past[1] is None) or (past[0] is not None and lengths is not None):
        raise s.wrong("expected past_key and past_value, nonpad_kv_seqlen, or none of them")
    if any(v is not None and v.type.rank != 4 for v in past):
        raise s.wrong(f"past_key is {past[0]}, expected [B,H,T,E]")
    offset: Dim = 0
    if past[0] is not None and past[1] is not None:
        offset = past[0].type.shape[2]
        k, v = s.g(Concat(2), past[0], k), s.g(Concat(2), past[1], v)
    mode = s.attribute("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(STAGES):
        raise s.wrong(f"qk_matmul_output_mode is {mode}, expected 0 to 3")
    code = s.attribute("softmax_precision")
    if lengths is not None:
        lengths = s.within(lengths, 0, k.type.shape[2], "a length of keys")
    op = Attention(
        scale_of(s, q),
        s.attribute("softcap", 0.0),
        bool(s.attribute("is_causal", 0)),
        s.attribute("left_window_size", -1),
        s.attribute("right_window_size", -1),
        offset,
        "" if code is None else element_type(code, "Attention: softmax_precision"),
        STAGES[mode],
    )
    y, shown = s.g.add(op, [q, k, v, mask_of(s, k.type.shape[2]), lengths]).results
    return [joined_heads(s, y) if flat else y, k, v, shown]


def by_head(s: Site, x: Value, attribute: str) -> Value:
    """Return x[B, H, T, E] as it is, and x[B, T, H·E] as that."""
    if x.type.rank == 4:
        return x
    return s.g(Transpose((0, 2, 1, 3)), split_last(s, x, s.needed(attribute)))


def joined_heads(s: Site, y: Value) -> Value:
    """Return y[B, H, T, E] as [B, T, H·E]."""
    batch, heads, steps, size = y.type.shape
    return s.g(Reshape((batch, steps, heads * size)), s.g(Transpose((0, 2, 1, 3)), y))


def scale_of(s: Site, q: Value) -> float:
    """Return the factor of the scores: `scale`, or 1 / sqrt(head size) if it is missing."""
    scale = s.attribute("scale")
    return usual_scale(q) if scale is None else float(scale)


def scale_or_usual(s: Site, q: Value) -> float:
    """Return the factor as `scale_of` does; a scale of 0 counts as missing."""
    return s.attribute("scale", 0.0) or usual_scale(q)


def usual_scale(q: Value) -> float:
    """Return 1 / sqrt(head size)."""
    size = fixed(q.type.shape[-1])
    return float(size) ** -0.5 if size else 1.0


def mask_of(s: Site, keys: Dim) -> Value | None:
    """Return the mask, continued to all keys: it hides those that it does not name."""
    mask = s.optional(3)
    if mask is None or mask.type.rank == 0:
        return mask
    extent = mask.type.shape[-1]
    if presume(extent - keys, ">="):
        return mask
    rank = mask.type.rank
    value = 0.0 if mask.type.dtype == "bool" else float("-inf")
    after = (*[0] * (rank - 1), fixed(keys - extent))
    return s.g(Pad((0,) * rank, after, "constant", value), mask)


@on("RotaryEmbedding", since=23)
def rotary_embedding(s: Site) -> Made:
    x, caches = s.input(0), [s.input(1), s.input(2)]
    flat, shape = x.type.rank == 3, x.type.shape
    if flat:
        x = split_last(s, x, s.needed("num_heads"))
    elif x.type.rank != 4:
        raise s.wrong(f"x is {x.type}, expected rank 3 or 4")
    positions = s.optional(3)
    if positions is not None:
        positions = s.within(positions, 0, caches[0].type.shape[0] - 1, "a position")
        caches = [s.g(Gather(0), v, positions) for v in caches]
    turned = s.attribute("rotary_embedding_dim", 0) or x.type.shape[3]
    cos, sin = (beside_heads(s, v, x, flat, turned) for v in caches)
    y = s.g(RotaryEmbedding(bool(s.attribute("interleaved", 0))), x, cos, sin)
    return s.g(Reshape(shape), y) if flat else y


def beside_heads(s: Site, cache: Value, x: Value, flat: bool, turned: Dim) -> Value:
    """Return a cache[B, T, R/2] with an axis of extent 1 where x has its heads."""
    batch, steps = x.type.shape[0], x.type.shape[1 if flat else 2]
    if cache.type.rank != 3 or cache.type.shape[-1] * 2 != turned:
        raise s.wrong(f"a cache is {cache.type}, expected rank 3 and a last axis of {turned} / 2")
    shape = (batch, steps, 1) if flat else (batch, 1, steps)
    return s.g(Reshape((*shape, cache.type.shape[-1])), cache)


@on("TensorScatter", since=24)
def tensor_scatter(s: Site) -> Made:
    cache, update, start = s.input(0), s.input(1), s.optional(2)
    mode = s.attribute("mode", "linear")
    if mode not in ("linear", "circular"):
        raise s.wrong(f"mode is '{mode}', expected linear or circular")
    if start is None:
        start = s.full(0, "i64", cache.type.shape[:1])
    op = UpdateCache(s.attribute("axis", -2), mode == "circular")
    axis = normal_axis(op, op.axis, cache.type.rank)
    most = LARGEST if op.circular or update.type.rank != cache.type.rank else (
        cache.type.shape[axis] - update.type.shape[axis])  # fmt: skip
    return s.g(op, cache, update, s.within(start, 0, most, "a write index"))


@on("LinearAttention", since=27)
def linear_attention(s: Site) -> Made:
    heads, groups = s.needed("q_num_heads"), s.needed("kv_num_heads")
    q = split_last(s, s.input(0), heads)
    k, v = (split_last(s, s.input(i), groups) for i in (1, 2))
    wide = "f64" if q.type.dtype == "f64" else "f32"
    before, decay, beta = (s.optional(i) for i in (3, 4, 5))
    rule = s.attribute("update_rule", "gated_delta")
    if rule not in RULES or (decay is not None, beta is not None) != RULES[rule]:
        given = " and ".join(n for n, v in (("decay", decay), ("beta", beta)) if v is not None)
        raise s.wrong(
            f"update_rule is '{rule}' with {given or 'neither decay nor beta'}, expected linear "
            "(neither), gated (decay), delta (beta) or gated_delta (both)"
        )
    shape = (q.type.shape[0], groups, q.type.shape[3], v.type.shape[3])
    state = s.full(0, wide, shape) if before is None else s.cast(before, wide)
    gate = None if decay is None else split_last(s, decay, groups)
    node = s.g.add(LinearAttention(scale_or_usual(s, q)), [q, k, v, state, gate, beta])
    y, after = node.results
    batch, steps, heads, width = y.type.shape
    kept = (q if before is None else before).type.dtype
    return [s.g(Reshape((batch, steps, heads * width)), y), as_type(s.g, after, kept)]


RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
"""For each update rule of LinearAttention, whether it has a decay, and a beta."""


def split_last(s: Site, x: Value, heads: int) -> Value:
    """Return x[B, T, H·D] as [B, T, H, D]."""
    if x.type.rank != 3 or heads < 1:
        raise s.wrong(f"an operand is {x.type} of {heads} heads, expected rank 3 and a head")
    size = x.type.shape[2]
    if known(size) and size % heads:
        raise s.wrong(f"an operand is {x.type}, expected a last axis of {heads} equal heads")
    return s.g(Reshape((*x.type.shape[:2], heads, size // heads)), x)


@on("CausalConvWithState", since=27)
def causal_conv_with_state(s: Site) -> Made:
    x, w, past = s.input(0), s.input(1), s.optional(3)
    if x.type.rank != 3 or w.type.rank != 3:
        raise s.wrong(f"input is {x.type} and weight {w.type}, expected rank 3")
    batch, channels, steps = x.type.shape[0], fixed(x.type.shape[1]), x.type.shape[2]
    before = w.type.shape[2] - 1
    if past is None:
        past = s.full(0, x.type.dtype, (batch, channels, before))
    whole = s.g(Concat(2), past, x)
    y = s.g(Conv(group=channels), whole, w, s.optional(2))
    function = s.attribute("activation", "none")
    if function not in ("none", "silu", "swish"):
        raise s.wrong(f"activation is '{function}', expected none, silu or swish")
    if function != "none":
        y = s.g(Swish(1.0), y)
    state = s.g(Slice((0, 0, steps), (batch, channels, before), (1, 1, 1)), whole)
    return [y, state]


@on("SwiGLU", since=28)
def swiglu(s: Site) -> Made:
    return s.g(Mul(), s.g(Swish(s.attribute("alpha", 1.0)), s.input(0)), s.input(1))
