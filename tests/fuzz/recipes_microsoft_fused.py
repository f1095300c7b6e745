"""Recipes for what ONNX Runtime fuses biases, sums and activations with, and for normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from .draft import Draft, Var
from .elements import Shape
from .inference import Declined
from .recipe import recipe
from .recipes_gather import where_from
from .recipes_microsoft import add, options, real
from .recipes_normalize import EPSILONS
from .windows import divisor

# ── biases and activations ──


@recipe("com.microsoft:Gelu", "com.microsoft:QuickGelu", "com.microsoft:ScaledSiLU")
def unary(d: Draft, op: str) -> None:
    x = d.pick([real(d)], 1)
    more = {} if op.endswith(":Gelu") else options(d, alpha=(1.702, 1.0, 0.5, -1.0))
    given: list[Var | None] = [x]
    if op.endswith("SiLU") and d.chance(0.4):
        given.append(d.fresh(x.dtype, (1,)))
    add(d, op, given, (x.dtype, x.shape), **more)


@recipe("com.microsoft:BiasGelu", "com.microsoft:FastGelu")
def bias_gelu(d: Draft, op: str) -> None:
    x = d.pick([real(d)], 1, empty=False)
    bias = None if op.endswith("FastGelu") and d.chance(0.3) else d.fresh(x.dtype, x.shape[-1:])
    add(d, op, [x, bias], (x.dtype, x.shape))


@recipe("com.microsoft:BiasAdd", "com.microsoft:BiasSplitGelu")
def bias_add(d: Draft, op: str) -> None:
    x = d.pick([real(d)], 3, 3, empty=False)
    if op.endswith("BiasAdd"):
        add(d, op, [x, d.fresh(x.dtype, x.shape[-1:]), d.fresh(x.dtype, x.shape)],
            (x.dtype, x.shape))  # fmt: skip
        return
    if x.shape[2] % 2:
        raise Declined
    add(d, op, [x, d.fresh(x.dtype, x.shape[-1:])], (x.dtype, (*x.shape[:2], x.shape[2] // 2)))


@recipe("com.microsoft:BiasDropout")
def bias_dropout(d: Draft, op: str) -> None:
    x = d.pick([real(d, True)], 1, empty=False)
    bias = d.fresh(x.dtype, x.shape[-1:] if d.chance(0.7) else x.shape)
    residual = d.fresh(x.dtype, x.shape) if d.chance(0.5) else None
    types = [(x.dtype, x.shape), ("bool", x.shape)][: d.number(1, 2)]
    add(d, op, [x, bias, residual], *types)


@recipe("com.microsoft:BiasSoftmax")
def bias_softmax(d: Draft, op: str) -> None:
    x = d.pick([real(d, True)], 2, 4, empty=False)
    axis = d.number(1, x.rank - 1)
    inner = d.chance(0.5)
    split = d.number(0, axis)
    lead = x.shape[:axis]
    shape = (*((1,) * split), *lead[split:]) if inner else (*lead[:split], *((1,) * (axis - split)))
    bias = d.fresh(x.dtype, (*shape, *x.shape[axis:]))
    add(d, op, [x, bias], (x.dtype, x.shape), axis=axis, is_inner_broadcast=int(not inner))


@recipe("com.microsoft:GatedAdd")
def gated(d: Draft, op: str) -> None:
    x = d.pick([real(d)], 1, 3, empty=False)
    gate = d.fresh(x.dtype, d.one_of((x.shape, x.shape[-1:], (1,))))
    add(d, op, [x, d.fresh(x.dtype, x.shape), gate], (x.dtype, x.shape))


# ── normalisation ──


@recipe("com.microsoft:SkipLayerNormalization", "com.microsoft:SkipSimplifiedLayerNormalization",
        "com.microsoft:SimplifiedLayerNormalization")  # fmt: skip
def skip(d: Draft, op: str) -> None:
    x = d.pick([real(d)], 2, 3, empty=False, shape=lambda: d.shape(3, 3, empty=False))
    size = x.shape[-1:]
    scale = d.fresh(x.dtype, size)
    more = options(d, epsilon=EPSILONS)
    if op.endswith(":SimplifiedLayerNormalization"):
        add(d, op, [x, scale], (x.dtype, x.shape), axis=-1, **more)
        return
    simple = "Simplified" in op
    shape = x.shape if x.rank == 2 or d.chance(0.7) else (
        x.shape[1:] if d.chance(0.5) else (1, *x.shape[1:]))  # fmt: skip
    given = [x, d.fresh(x.dtype, shape), scale]
    if not simple:
        given.append(d.fresh(x.dtype, size) if d.chance(0.7) else None)
    given.append(d.fresh(x.dtype, size) if d.chance(0.4) else None)
    moments = ("float", (*x.shape[:-1], 1))
    types: list[tuple[str, Shape]] = [(x.dtype, x.shape)]
    if d.chance(0.3):
        types += [moments, moments, (x.dtype, x.shape)]
        # The moments are made for training only, and not everybody makes them.
        unread(d, op, given, types, more)
        return
    add(d, op, given, *types, **more)


def unread(d: Draft, op: str, given: list[Var | None], types: list[tuple[str, Shape]],
                  more: dict[str, Any]) -> None:  # fmt: skip
    """Add a node whose second and third results have no name."""
    y = add(d, op, given, *types, **more)
    node = d.nodes[-1]
    for v in y[1:3]:
        d.vars.remove(v)
        d.made.discard(v.name)
    node.output[1] = node.output[2] = ""


@recipe("com.microsoft:GroupNorm", "com.microsoft:SkipGroupNorm")
def group_norm(d: Draft, op: str) -> None:
    x = d.pick(["float", "float", "float16"], 4, 4, empty=False)
    last = d.one_of((0, 1, 1))
    channels = x.shape[3] if last else x.shape[1]
    each = [d.fresh("float", (channels,), True) for _ in range(2)]
    given: list[Var | None] = [x, *each]
    types = [(x.dtype, x.shape)]
    if "Skip" in op:
        spread = (x.shape[0], 1, 1, channels) if last else (x.shape[0], channels, 1, 1)
        given.append(d.fresh(x.dtype, d.one_of((x.shape, (x.shape[0], channels), spread))))
        given.append(d.fresh(x.dtype, (channels,)) if d.chance(0.5) else None)
        types += [(x.dtype, x.shape)] * d.number(0, 1)
    more = options(d, epsilon=EPSILONS)
    if not last or d.chance(0.5):
        more["channels_last"] = last
    add(d, op, given, *types, groups=divisor(d, channels), activation=d.number(0, 1), **more)


@recipe("com.microsoft:EmbedLayerNormalization")
def embed(d: Draft, op: str) -> None:
    kind = d.one_of(("float", "float", "float16"))
    batch, steps, size = d.number(1, 3), d.number(1, 9), d.extent(33)
    words, spots, kinds = d.number(2, 9), steps + d.number(0, 3), d.number(1, 3)
    ids = where_from(d, d.rng.integers(0, words, (batch, steps)).astype(np.int32))
    segments = None
    if d.chance(0.6):
        segments = where_from(d, d.rng.integers(0, kinds, (batch, steps)).astype(np.int32))
    tables = [d.fresh(kind, (words, size), True), d.fresh(kind, (spots, size), True)]
    third = d.fresh(kind, (kinds, size), True) if segments is not None else None
    each = [d.fresh(kind, (size,), True) for _ in range(2)]
    there = None
    if d.chance(0.4):
        there = where_from(d, d.rng.integers(0, 2, (batch, steps)).astype(np.int32))
    at = None
    if d.chance(0.3):
        at = where_from(d, d.rng.integers(0, spots, (batch, steps)).astype(np.int32))
    types: list[tuple[str, Shape]] = [(kind, (batch, steps, size)), ("int32", (batch,))]
    if d.chance(0.3):
        types.append((kind, (batch, steps, size)))
    add(d, op, [ids, segments, *tables, third, *each, there, at], *types,
        **options(d, epsilon=EPSILONS))  # fmt: skip
