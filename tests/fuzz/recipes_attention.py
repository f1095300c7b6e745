"""Recipes for attention, rotary embeddings, caches, and what stands around them."""

from __future__ import annotations

import numpy as np

from .draft import Draft, Var, allowed, recipe

MICROSOFT = "com.microsoft"


@recipe("Attention")
def attention(d: Draft, op: str) -> None:
    kind = d.one_of([t for t in allowed(op, d.opset) if t in ("float", "float16")])
    batch, keys = d.number(1, 3), d.number(1, 9)
    heads = d.number(1, 3)
    each = d.number(1, 3)
    queries, size, width = d.number(1, 7), 2 * d.number(1, 5), d.number(1, 9)
    flat = d.chance(0.3)

    def operand(count: int, length: int, wide: int) -> Var:
        shape = (batch, length, count * wide) if flat else (batch, count, length, wide)
        return d.fresh(kind, shape, False)

    given: list[Var | None] = [operand(heads * each, queries, size), operand(heads, keys, size),
                               operand(heads, keys, width)]  # fmt: skip
    options: dict[str, object] = {}
    if flat:
        options |= {"q_num_heads": heads * each, "kv_num_heads": heads}
    if d.chance(0.4):
        shape = d.one_of([(queries, keys), (batch, 1, queries, keys)])
        mask = d.fresh("bool" if d.chance(0.5) else kind, shape, True)
        if mask.dtype == "bool":
            d.weights[mask.name][..., 0] = True  # a row without any is nobody's concern
        given.append(mask)
    elif d.chance(0.4):
        options["is_causal"] = 1
    if d.chance(0.2):
        options["softcap"] = 2.0
    if d.chance(0.3):
        options["scale"] = 0.25
    shape = (batch, queries, heads * each * width) if flat else (
        batch, heads * each, queries, width)  # fmt: skip
    d.node(op, given, types=[(kind, shape)], **options)


@recipe("RotaryEmbedding")
def rotary(d: Draft, op: str) -> None:
    kind = d.one_of([t for t in allowed(op, d.opset) if t in ("float", "float16")])
    batch, heads, length, half = d.number(1, 3), d.number(1, 3), d.number(1, 6), d.number(1, 5)
    x = d.fresh(kind, (batch, heads, length, 2 * half), False)
    mode = {"interleaved": d.number(0, 1)}
    if d.chance(0.5):
        table = (length + 3, half)
        places = d.rng.integers(0, length + 3, (batch, length)).astype(np.int64)
        given = [d.fresh(kind, table, True), d.fresh(kind, table, True), d.given(places, True)]
    else:
        table = (batch, length, half)
        given = [d.fresh(kind, table, True), d.fresh(kind, table, True)]
    d.node(op, [x, *given], types=[(x.dtype, x.shape)], **mode)


@recipe("TensorScatter")
def tensor_scatter(d: Draft, op: str) -> None:
    kind = d.dtype(allowed(op, d.opset))
    batch, heads, most, width = d.number(1, 3), d.number(1, 2), d.number(2, 8), d.number(1, 4)
    count = d.number(1, most)
    past = d.fresh(kind, (batch, heads, most, width), False)
    update = d.fresh(kind, (batch, heads, count, width), False)
    how = d.one_of(("linear", "circular"))
    last = most if how == "circular" else most - count + 1
    at = d.given(d.rng.integers(0, last, batch).astype(np.int64), True)
    d.node(op, [past, update, at], types=[(kind, past.shape)], mode=how)


@recipe("com.microsoft:SkipLayerNormalization", "com.microsoft:SkipSimplifiedLayerNormalization")
def skip(d: Draft, op: str) -> None:
    op = op.partition(":")[2]
    x = d.fresh("float", (d.number(1, 3), d.number(1, 4), d.number(1, 17)), False)
    scale = d.fresh("float", x.shape[-1:], True)
    bias = [d.fresh("float", x.shape[-1:], True)] if op == "SkipLayerNormalization" else []
    more = [d.fresh("float", x.shape[-1:], True)] if d.chance(0.4) and bias else []
    d.node(op, [x, d.fresh("float", x.shape), scale, *bias, *more], domain=MICROSOFT,
           types=[("float", x.shape)])  # fmt: skip


@recipe("com.microsoft:FusedMatMul")
def fused_matmul(d: Draft, op: str) -> None:
    x = d.pick(["float"], 2, 4, empty=False)
    left, right = d.number(0, 1), d.number(0, 1)
    m, k = (x.shape[-1], x.shape[-2]) if left else (x.shape[-2], x.shape[-1])
    n = d.number(1, 20)
    y = d.fresh("float", (*x.shape[:-2], n, k) if right else (*x.shape[:-2], k, n))
    d.node("FusedMatMul", [x, y], domain=MICROSOFT, transA=left, transB=right,
           alpha=d.one_of((1.0, 0.5)), types=[("float", (*x.shape[:-2], m, n))])  # fmt: skip


@recipe("com.microsoft:FusedConv")
def fused_conv(d: Draft, op: str) -> None:
    x = d.fresh("float", tuple(d.number(1, 4) + (i > 1) * 3 for i in range(4)), False)
    w = d.fresh("float", (d.number(1, 9), x.shape[1], 3, 3), True)
    bias = d.fresh("float", w.shape[:1], True)
    shape = (x.shape[0], w.shape[0], *x.shape[2:])
    given: list[Var | None] = [x, w, bias]
    if d.chance(0.5):
        given.append(d.fresh("float", shape))
    d.node("FusedConv", given, domain=MICROSOFT, pads=[1, 1, 1, 1], types=[("float", shape)],
           activation=d.one_of(("Relu", "Tanh", "Sigmoid")))  # fmt: skip


@recipe("com.microsoft:BiasSoftmax")
def bias_softmax(d: Draft, op: str) -> None:
    batch, rows, size = d.number(1, 3), d.number(1, 4), d.number(1, 17)
    x = d.fresh("float", (batch, rows, size), False)
    bias = d.fresh("float", (1, rows, size))
    d.node("BiasSoftmax", [x, bias], domain=MICROSOFT, types=[("float", x.shape)], axis=2,
           is_inner_broadcast=0)  # fmt: skip
