"""Converters for attention, which stays whole: products, masks and shares are one operator."""

from __future__ import annotations

import math
from collections.abc import Sequence

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.shapes import widest
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.dims import Dim, is_open, product
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Mul, Reciprocal
from alpenglow.ops.elementwise.transcendental import Sqrt
from alpenglow.ops.product.attention import Attention
from alpenglow.ops.tensor.movement import stretch


@on("aten.scaled_dot_product_attention.default")
def attention(
    s: Site, query: Value, key: Value, value: Value, attn_mask: Value | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | Value | None = None,
    enable_gqa: bool = False,
) -> Made:  # fmt: skip
    return mixed(s, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


@on("aten._scaled_dot_product_flash_attention_for_cpu.default")
def on_cpu(
    s: Site, query: Value, key: Value, value: Value, dropout_p: float = 0.0,
    is_causal: bool = False, attn_mask: Value | None = None, scale: float | Value | None = None,
) -> Made:  # fmt: skip
    """Heads may share keys.  The second result serves PyTorch's own derivative alone."""
    if s.is_read(1):
        raise UnsupportedError("reading logsumexp is not supported; supported: output")
    return [mixed(s, query, key, value, attn_mask, dropout_p, is_causal, scale, True), None]


def mixed(
    s: Site, query: Value, key: Value, value: Value, mask: Value | None, dropout: float,
    causal: bool, scale: float | Value | None, grouped: bool,
) -> Value:  # fmt: skip
    """Return attention over [..., heads, rows, size]; neighbouring heads share if `grouped`."""
    if dropout:
        raise UnsupportedError(f"dropout_p is {dropout}, expected 0")
    lead = query.type.shape[:-2]
    if not grouped:
        lead = widest([v.type.shape[:-2] for v in (query, key, value)])
        query, key, value = (over(s, x, lead) for x in (query, key, value))
    query, factor = scaled(s, query, scale)
    if mask is not None and (len(lead) > 2 or mask.type.rank > 4):
        shape = (*lead, query.type.shape[-2], key.type.shape[-2])
        mask = by_head(s, stretch(s.g, mask, shape))
    q, k, v = (by_head(s, x) for x in (query, key, value))
    node = s.g.add(Attention(factor, causal=causal), [q, k, v, mask])
    return s.reshaped(node.results[0], s.result.shape)


def scaled(s: Site, query: Value, scale: float | Value | None) -> tuple[Value, float]:
    """Return the query, and by what scores are scaled: one that is open is worked into it."""
    size = query.type.shape[-1]
    if scale is None and not is_open(size):
        return query, 1 / math.sqrt(size) if size else 1.0
    if scale is not None and not isinstance(scale, Value):
        return query, float(scale)
    if scale is None:
        scale = s.g(Reciprocal(), s.g(Sqrt(), s.extent(size, "f64")))
    factor = stretch(s.g, s.cast(scale, query.type.dtype), query.type.shape)
    return s.g(Mul(), query, factor), 1.0


def over(s: Site, x: Value, lead: Sequence[Dim]) -> Value:
    """Return x for each head of each batch."""
    return stretch(s.g, x, (*lead, *x.type.shape[-2:]))


def by_head(s: Site, x: Value) -> Value:
    """Return x[..., rows, size] as [batch, heads, rows, size]."""
    *lead, rows, size = x.type.shape
    if len(lead) == 2:
        return x
    heads = lead[-1] if lead else 1
    return s.reshaped(x, (product(lead[:-1]), heads, rows, size))
