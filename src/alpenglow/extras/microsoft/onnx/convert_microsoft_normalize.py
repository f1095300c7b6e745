"""Converters for ONNX Runtime's normalisations, and for what it fuses biases with.

SimplifiedLayerNormalization stands in ai.onnx in the models that ONNX Runtime writes, though ONNX
does not define it.
"""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.movement import pieces
from alpenglow.frontends.nhwc import channels_first, channels_last
from alpenglow.frontends.onnx.convert.elementwise import MICROSOFT
from alpenglow.frontends.onnx.table import Made, Site, on, scalar
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.activation import Gelu, Swish
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.transcendental import Sqrt
from alpenglow.ops.reduction.layer_norm import LayerMoments, LayerNorm, RMSNorm
from alpenglow.ops.reduction.normalize import GroupNorm
from alpenglow.ops.reduction.reduction import ReduceMean, ReduceSum
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Reshape, stretch

EPSILON = 1e-12
"""The default that is added to variances."""


@on("SimplifiedLayerNormalization")
@on("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(s: Site) -> Made:
    x, scale = s.input(0), s.input(1)
    axis, epsilon = s.named_axis(-1), s.attribute("epsilon", 1e-5)
    inner = x.type.shape[axis:]
    if s.optional(2) is not None:
        raise s.refuse("a bias is not supported")
    wide = s.cast(scale, x.type.dtype)
    y = s.g(RMSNorm(axis, epsilon), x, stretch(s.g, wide, inner))
    y = s.cast(y, scale.type.dtype)
    return [y, deviation(s, x, axis, epsilon)] if any(s.outputs[1:]) else y


def deviation(s: Site, x: Value, axis: int, epsilon: float) -> Value:
    """Return 1 over the root of the mean square along `axis` and all after it, in f32."""
    wide = s.cast(x, "f32")
    mean = s.g(ReduceMean(tuple(range(axis, x.type.rank))), s.g(Mul(), wide, wide))
    root = s.g(Sqrt(), s.g(Add(), mean, scalar(s.g, epsilon, mean)))
    return s.g(Div(), scalar(s.g, 1, root), root)


@on("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(s: Site) -> Made:
    total, epsilon = skipped(s, 4), s.attribute("epsilon", EPSILON)
    y = s.g(LayerNorm(total.type.rank - 1, epsilon), total, s.input(2), s.optional(3))
    moments: tuple[Value, ...] = ()
    if any(s.outputs[1:3]):
        moments = s.g.add(LayerMoments(total.type.rank - 1, epsilon), [total]).results
    return [y, *(moments or (total, total)), total]


@on("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(s: Site) -> Made:
    total, epsilon = skipped(s, 3), s.attribute("epsilon", EPSILON)
    axis = total.type.rank - 1
    y = s.g(RMSNorm(axis, epsilon), total, s.input(2))
    root = deviation(s, total, axis, epsilon) if any(s.outputs[1:3]) else total
    return [y, root, root, total]


def skipped(s: Site, bias: int) -> Value:
    """Return the input plus what skips a layer, plus operand `bias` if that is given."""
    x, skip, more = s.input(0), s.input(1), s.optional(bias)
    total = s.g(Add(), x, stretch(s.g, skip, x.type.shape))
    return total if more is None else s.g(Add(), total, stretch(s.g, more, x.type.shape))


@on("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(s: Site) -> Made:
    return embedded(s)


def embedded(s: Site) -> list[Value]:
    """Return normalised embeddings, the lengths that the mask tells, and the embeddings."""
    ids, segments, mask = s.input(0), s.optional(1), s.optional(7)
    if ids.type.rank != 2:
        raise s.wrong(f"input_ids are {ids.type}, expected [B, S]")
    batch, steps = ids.type.shape
    places = s.optional(8)
    places = s.g(Range(steps)) if places is None else places
    total = row(s, 2, ids, "a token")
    where = row(s, 3, places, "a position")
    total = s.g(Add(), total, stretch(s.g, where, total.type.shape))
    if segments is not None:
        total = s.g(Add(), total, row(s, 4, segments, "a segment"))
    op = LayerNorm(2, s.attribute("epsilon", EPSILON))
    y = s.g(op, total, s.input(5), s.input(6))
    if mask is None:
        lengths = stretch(s.g, s.g.constant(np.int32(0)), (batch,))
    else:
        there = s.g(Equal(), mask, scalar(s.g, 1, mask))
        lengths = s.g(ReduceSum((1,), False), s.cast(there, "i32"))
    return [y, lengths, total]


def row(s: Site, i: int, at: Value, what: str) -> Value:
    """Return the rows of operand i with these numbers."""
    rows = s.input(i)
    return s.g(Gather(0), rows, s.within(at, 0, rows.type.shape[0] - 1, what))


# ── groups of channels ──


@on("GroupNorm", domain=MICROSOFT)
def group_norm(s: Site) -> Made:
    return grouped(s, s.input(0))


@on("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(s: Site) -> Made:
    x, skip, bias = s.input(0), s.input(3), s.optional(4)
    if skip.type.rank == 2 and x.type.rank == 4:
        batch, channels = skip.type.shape
        spread = (batch, 1, 1, channels) if last(s) else (batch, channels, 1, 1)
        skip = s.g(Reshape(spread), skip)
    x = s.g(Add(), x, stretch(s.g, skip, x.type.shape))
    if bias is not None:
        if not last(s):
            bias = s.g(Reshape((*bias.type.shape, 1, 1)), bias)
        x = s.g(Add(), x, stretch(s.g, bias, x.type.shape))
    return [grouped(s, x), x]


def last(s: Site) -> bool:
    return bool(s.attribute("channels_last", 1))


def grouped(s: Site, x: Value) -> Value:
    """Return x normalised by groups of channels, and after a swish if the model asks for it."""
    front = channels_first(s.g, x) if last(s) else x
    op = GroupNorm(s.needed("groups"), s.attribute("epsilon", 1e-5))
    scale, bias = (s.cast(s.input(i), x.type.dtype) for i in (1, 2))
    y = s.g(op, front, scale, bias)
    y = s.g(Swish(1.0), y) if s.attribute("activation", 0) else y
    return channels_last(s.g, y) if last(s) else y


# ── biases ──


@on("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(s: Site) -> Made:
    x, bias = s.input(0), s.input(1)
    axis = s.named_axis(1)
    total = s.g(Add(), x, stretch(s.g, bias, x.type.shape))
    if axis == x.type.rank - 1:
        return s.g(Softmax(axis), total)
    rows = (product(x.type.shape[:axis]), product(x.type.shape[axis:]))
    return s.g(Reshape(x.type.shape), s.g(Softmax(1), s.g(Reshape(rows), total)))


@on("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(s: Site) -> Made:
    x = s.input(0)
    total = s.g(Add(), x, stretch(s.g, s.input(1), x.type.shape))
    half = x.type.shape[-1] // 2
    left, right = pieces(s.g, total, x.type.rank - 1, (half, half))
    return s.g(Mul(), left, s.g(Gelu(), right))


@on("BiasAdd", domain=MICROSOFT)
def bias_add(s: Site) -> Made:
    x = s.input(0)
    total = s.g(Add(), x, stretch(s.g, s.input(1), x.type.shape))
    return s.g(Add(), total, s.input(2))


@on("BiasDropout", domain=MICROSOFT)
def bias_dropout(s: Site) -> Made:
    x, residual = s.input(0), s.optional(2)
    if s.optional(4) is not None and s.constant(4).any():
        raise s.refuse("training_mode is true; only inference is supported")
    total = s.g(Add(), x, stretch(s.g, s.input(1), x.type.shape))
    total = total if residual is None else s.g(Add(), total, residual)
    return [total, stretch(s.g, s.g.constant(np.ones((), np.bool_)), x.type.shape)]
