"""The derivative of attention as an operator of its own, `alpenglow::attention_backward`.

PyTorch's reads the result of attention and the logarithms of its sums, so both would be kept from
forward to backward; this one reads the operands alone.  As one operator, which depends on the
gradient that comes in, all of it stands in the backward graph.
"""

from __future__ import annotations

import math
from typing import Any

import torch

ATEN = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def attention_backward(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    mask: torch.Tensor | None, is_causal: bool, scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the gradients of query, key and value; this runs where it is not compiled."""
    dtype, (heads, shared) = query.dtype, (query.shape[1], key.shape[1])
    wide = torch.promote_types(dtype, torch.float32)
    dy, q, k, v = (x.to(wide) for x in (grad, query, key, value))
    k, v = (x.repeat_interleave(heads // shared, 1) for x in (k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q @ k.mT * factor
    if mask is not None:
        scores = scores + mask
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -math.inf)
    shares = torch.ops.aten._safe_softmax(scores, -1)
    by_share = dy @ v.mT
    by_score = shares * (by_share - (by_share * shares).sum(-1, keepdim=True)) * factor
    by_key, by_value = (
        x.unflatten(1, (shared, heads // shared)).sum(2) for x in (by_score.mT @ q, shares.mT @ dy)
    )
    return (by_score @ k).to(dtype), by_key.to(dtype), by_value.to(dtype)


def _shapes(
    grad: Any, query: Any, key: Any, value: Any, mask: Any, is_causal: bool, scale: float | None
) -> tuple[Any, Any, Any]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


OPERATOR = torch.library.custom_op(
    "alpenglow::attention_backward", attention_backward, mutates_args=()
)
OPERATOR.register_fake(_shapes)


def without_forward(
    grad_out: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, dropout_p: float,
    is_causal: bool, *, attn_mask: Any = None, scale: float | None = None,
) -> Any:  # fmt: skip
    """The decomposition of PyTorch's operator into ours; no attention with dropout comes to it."""
    assert dropout_p == 0, "PyTorch computes attention with dropout in parts"
    return OPERATOR(grad_out, query, key, value, attn_mask, is_causal, scale)
