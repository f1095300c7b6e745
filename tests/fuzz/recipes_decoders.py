"""Recipes for layers of transformers as exporters write them: heads that share keys, turned by
their position, what hides keys, and layers of which a few tokens are read.
"""

from __future__ import annotations

from math import prod

import numpy as np

from .draft import Draft, Var
from .inference import Declined
from .recipe import PATTERNS, recipe
from .recipes_patterns import added, number, softmax


@recipe("heads that share keys", table=PATTERNS)
def shared_keys(d: Draft, op: str) -> None:
    """q[B, G R, S, E] beside k[B, G, T, E] and v[B, G, T, F], repeated R times as models do."""
    if d.opset < 13:
        raise Declined
    batch, groups, each = d.number(1, 2), d.number(1, 3), d.one_of((1, 2, 2, 3, 4))
    rows, keys = d.extent(17), d.extent(33)
    inner, outer = d.one_of((2, 4, 8, 16)), d.one_of((1, 4, 8, 16))
    heads = groups * each
    if 0 in (rows, keys) or batch * heads * max(rows * inner, keys * (inner + outer)) > 8000:
        raise Declined
    q = d.fresh("float", (batch, heads, rows, inner), False)
    k = d.fresh("float", (batch, groups, keys, inner), False)
    v = d.fresh("float", (batch, groups, keys, outer), False)
    if d.chance(0.5):
        q, k = rotated(d, q), rotated(d, k)
    if d.chance(0.5):
        q = scaled(d, q)
    k, v = repeated(d, k, each), repeated(d, v, each)
    if d.chance(0.5):
        flat = d.node("Reshape", [k, d.ints([batch * heads, keys, inner])],
                      types=[("float", (batch * heads, keys, inner))])[0]  # fmt: skip
        flat = d.node("Transpose", [flat], perm=[0, 2, 1])[0]
        turned = d.node("Reshape", [flat, d.ints([batch, heads, inner, keys])],
                        types=[("float", (batch, heads, inner, keys))])[0]  # fmt: skip
    else:
        turned = d.node("Transpose", [k], perm=[0, 1, 3, 2])[0]
    if d.chance(0.5):
        turned = scaled(d, turned)
    scores = d.node("MatMul", [q, turned])[0]
    scores = scaled(d, scores) if d.chance(0.3) else scores
    if d.chance(0.6):
        shape = (batch, heads, rows, keys)
        shape = tuple(1 if d.chance(0.5) else e for e in shape)[d.number(0, 2) :]
        scores = added(d, scores, d.fresh("float", shape))
    shares = softmax(d, scores)
    if d.chance(0.3):
        zero = number(d, "float", 0)
        shares = d.node("Where", [d.node("IsNaN", [shares])[0], zero, shares])[0]
    y = d.node("MatMul", [shares, v])[0]
    if d.chance(0.5):
        d.node("Transpose", [y], perm=[0, 2, 1, 3])


def scaled(d: Draft, x: Var) -> Var:
    return d.node("Mul", [x, number(d, x.dtype, d.one_of((0.25, 0.35355338, -1.5)))])[0]


def repeated(d: Draft, x: Var, each: int) -> Var:
    """Return x[B, G, T, E] with each of G repeated."""
    batch, groups, *rest = x.shape
    apart, wide = (batch, groups, 1, *rest), (batch, groups, each, *rest)
    y = d.node("Reshape", [x, d.ints(apart)], types=[(x.dtype, apart)])[0]
    y = d.node("Expand", [y, d.ints(wide)], types=[(x.dtype, wide)])[0]
    whole = (batch, groups * each, *rest)
    return d.node("Reshape", [y, d.ints(whole)], types=[(x.dtype, whole)])[0]


@recipe("few tokens of many", table=PATTERNS)
def few_tokens(d: Draft, op: str) -> None:
    """Layers on x[B, T, C] of which some tokens are read, as by a classifier, or some channels."""
    if d.opset < 13:
        raise Declined
    batch, tokens, channels = d.number(1, 3), d.number(2, 20), d.one_of((2, 4, 6, 16))
    x = d.fresh("float", (batch, tokens, channels), False)
    made = [x]
    for _ in range(d.number(2, 6)):
        before = d.one_of(made) if d.chance(0.2) else made[-1]
        made.append(layer(d, before, made))
    y = made[-1]
    axis = d.one_of((0, 1, 1, 1, 2))
    extent = y.shape[axis]
    if d.chance(0.5):
        at = d.one_of((0, -1, d.number(0, extent - 1)))
        at = at if d.chance(0.5) else [at]
        d.node("Gather", [y, d.given(np.array(at, np.int64), True)], axis=axis)
    else:
        start, step = d.number(0, extent - 1), d.one_of((1, 1, 2, -1))
        numbers = ([start], [min(start + d.number(1, 3), extent) if step > 0 else -extent - 1],
                   [axis], [step])  # fmt: skip
        d.node("Slice", [y, *(d.given(np.array(n, np.int64), True) for n in numbers)])
    if d.chance(0.3):  # others read all
        d.node("Neg", [d.one_of(made)])


def layer(d: Draft, x: Var, made: list[Var]) -> Var:
    """Return what a layer of one operator or a few makes of x[B, T, C]."""
    batch, tokens, channels = x.shape
    kind = d.one_of(("product", "product", "residual", "relu", "softmax", "attention", "scale"))
    if kind == "product":
        return d.node("MatMul", [x, d.fresh("float", (channels, channels), True)])[0]
    if kind == "residual":
        return added(d, x, d.one_of([v for v in made if v.shape == x.shape]))
    if kind == "relu":
        return d.node(d.one_of(("Relu", "Tanh", "Neg")), [x])[0]
    if kind == "softmax":
        return softmax(d, x)
    if kind == "scale":
        shape = d.one_of(((channels,), (tokens, 1), (tokens, channels), (batch, 1, 1)))
        return d.node("Mul", [x, d.fresh("float", shape)])[0]
    heads = d.one_of([n for n in (1, 2, 3) if channels % n == 0])
    apart = (batch, tokens, heads, channels // heads)
    parts = []
    for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        w = d.fresh("float", (channels, channels), True)
        y = d.node("MatMul", [x, w])[0] if d.chance(0.5) else x
        y = d.node("Reshape", [y, d.ints(apart)], types=[("float", apart)])[0]
        parts.append(d.node("Transpose", [y], perm=perm)[0])
    q, k, v = parts
    y = d.node("MatMul", [softmax(d, d.node("MatMul", [q, k])[0]), v])[0]
    y = d.node("Transpose", [y], perm=[0, 2, 1, 3])[0]
    return d.node("Reshape", [y, d.ints(x.shape)], types=[("float", x.shape)])[0]


@recipe("halves turned", table=PATTERNS)
def halves(d: Draft, op: str) -> None:
    x = d.pick(["float", "float", "float16", "double"], 2, 4, empty=False,
               where=lambda v: v.shape[-1] % 2 == 0 and prod(v.shape) < 4000)  # fmt: skip
    rotated(d, x)


def rotated(d: Draft, x: Var) -> Var:
    """Return x with rotary positions: x cos + (-second half, first half) sin."""
    if d.opset < 13:
        raise Declined
    half = x.shape[-1] // 2
    shape = tuple(1 if d.chance(0.4) else e for e in x.shape[:-1])[d.number(0, x.rank - 1) :]
    whole = (*shape, x.shape[-1])
    if d.chance(0.5):
        angles = d.fresh(x.dtype, (*shape, half))
        both = d.node("Concat", [angles, angles], axis=-1, types=[(x.dtype, whole)])[0]
        cos, sin = (d.node(name, [both])[0] for name in ("Cos", "Sin"))
    else:
        cos, sin = d.fresh(x.dtype, whole), d.fresh(x.dtype, whole)

    def part(start: int, end: int) -> Var:
        ends = [d.ints([e]) for e in (start, end, d.one_of((-1, x.rank - 1)))]
        shape = (*x.shape[:-1], end - start)
        return d.node("Slice", [x, *ends], types=[(x.dtype, shape)])[0]

    second = d.node("Neg", [part(half, 2 * half)])[0]
    swapped = d.node("Concat", [second, part(0, half)], axis=-1, types=[(x.dtype, x.shape)])[0]
    pairs = ([x, cos], [swapped, sin])
    turned = [d.node("Mul", p if d.chance(0.5) else p[::-1])[0] for p in pairs]
    return added(d, *(turned if d.chance(0.5) else turned[::-1]))
