"""Absorption: scales, shifts and padding around a convolution or matrix product go into it.

What is constant by output channel becomes part of the weights and the bias, so that at run time
nothing is left of a batch normalisation or of the scaling of attention.  New weights are written
as operators on constants, which folding evaluates.  Rounding may differ from the model's, but
no constant comes to over- or underflow (`scalable`), and those that are added for the rounding
stay apart (`_rounds`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from alpenglow.ir.dims import Dim, estimate, product
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Op
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Div, Mul, Neg, Sub
from alpenglow.ops.product.attention import Attention
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.reduction.normalize import BatchNorm
from alpenglow.ops.tensor.movement import Pad, Reshape, Transpose, stretch, unstretched
from alpenglow.ops.window.conv_transpose import ConvTranspose
from alpenglow.ops.window.pooling import AveragePool, MaxPool, pad_that_holds_a_window
from alpenglow.passes.constants import Along, along, is_constant, read_once, uniform, with_constant
from alpenglow.passes.grid import known_array

rules = Rules()

EXTREME = 2.0**60
"""No scale that is meant to be one is as large, or its reciprocal."""

COARSE = {"f16": 0.25, "bf16": 0.25}
"""What is added to floats that makes them as coarse as this, others as 2^-12, rounds them."""


def absorb(g: Graph) -> Graph:
    """Work constants around convolutions, products and pools into them."""
    return rules.exhaust(g)


@dataclass(frozen=True)
class Scale:
    """Multiplication (or division, by `op`) by a constant along an axis, or by one number."""

    op: Op
    value: Value
    axis: int | None

    def at(self, axis: int) -> Scale:
        """Return this scale for a tensor that has the same extent at another axis."""
        return self if self.axis is None else replace(self, axis=axis)


@rules.on(BatchNorm)
def batch_norm(g: Graph, node: Node) -> Rewritten:
    """batch_norm(x, scale, bias, mean, variance) => add(mul(x, f), t)   with f and t constant"""
    x, *params = node.inputs
    if not isinstance(node.op, BatchNorm) or not all(v and is_constant(v) for v in params):
        return None
    return node.op.lower(g, *[v for v in (x, *params) if v is not None])


@rules.on(Mul, Div)
def scale_of_result(g: Graph, node: Node) -> Rewritten:
    """mul(conv(x, w, b), s) => conv(x, mul(w, s), mul(b, s))   with s constant by output channel;
    likewise for mat_mul, and through adding constants, transpose and (one number) reshape"""
    for x, scale in _scales(node):
        y = scaled(g, x, scale)
        if y is not None:
            return y
    return None


@rules.on(Attention)
def scale_of_attention(g: Graph, node: Node) -> Rewritten:
    """attention(q, k, v, scale=s) => attention(mul(q, s), k, v, scale=1)   where what q is computed
    from takes the scale in"""
    match node:
        case Node(Attention(scale=scale) as op, [Value() as q, *others]) if scale != 1:
            if q.type.dtype not in ("f32", "f64"):
                return None  # halves are scaled after they are widened
            number = g.constant(np.asarray(scale, q.type.numpy))
            y = scaled(g, q, Scale(Mul(), number, None))
            return y and g.add(replace(op, scale=1.0), [y, *others]).results
    return None


@rules.on(Neg)
def neg_of_result(g: Graph, node: Node) -> Rewritten:
    """neg(conv(x, w, b)) => conv(x, mul(w, -1), mul(b, -1))   and the like, as with other scales"""
    t = node.output.type
    minus = g.constant(np.asarray(-1, t.numpy)) if t.dtype in FLOATS else None
    return minus and scaled(g, _operand(node, 0), Scale(Mul(), minus, None))


@rules.on(Add)
def shift_of_shift(g: Graph, node: Node) -> Rewritten:
    """add(add(x, s), t) => add(x, add(s, t))   with s and t constant, along one axis"""
    if node.output.type.dtype not in FLOATS:
        return None
    for y, t in with_constant(node):
        match y.producer:
            case Node(Add()) as inner if read_once(g, y):
                for x, s in with_constant(inner):
                    if _rounds(s) or _rounds(t):
                        return None
                    total = _combined(g, s, Add(), along(t))
                    return total and g(Add(), x, total)
    return None


@rules.on(Conv)
def scale_of_conv_operand(g: Graph, node: Node) -> Rewritten:
    """conv(mul(x, s), w, b) => conv(x, mul(w, s), b)   with s constant by input channel"""
    match node:
        case Node(Conv(group=group) as op, [Value(Node(Mul() | Div())) as y, Value() as w, *bias]):
            if not is_constant(w) or not read_once(g, y):
                return None
            for x, scale in _scales(_producer(y)):
                if scale.axis in (None, 1) and scalable(w, replace(scale, axis=None)):
                    return g(op, x, _times_inputs(g, w, scale, group), *bias)
    return None


@rules.on(MatMul)
def scale_of_matmul_operand(g: Graph, node: Node) -> Rewritten:
    """mat_mul(mul(x, s), w) => mat_mul(x, mul(w, s))   with s constant by column of x"""
    match node:
        case Node(op, [Value(Node(Mul() | Div())) as y, Value() as w]):
            if not is_constant(w) or not read_once(g, y):
                return None
            for x, scale in _scales(_producer(y)):
                by_row = scale.at(x.type.rank - 2)
                if scale.axis in (None, x.type.rank - 1) and scalable(w, by_row):
                    return g(op, x, _times(g, w, by_row))
    return None


@rules.on(MatMul)
def number_of_computed_operand(g: Graph, node: Node) -> Rewritten:
    """mat_mul(x, mul(y, s)) => mat_mul(mul(x, s), y)   with s one number and x smaller than y,
    through transpose and reshape; y as keys that were computed before, of many more rows than x"""
    match node.inputs:
        case (Value() as x, Value() as y) if not (is_constant(x) or is_constant(y)):
            pass
        case _:
            return None
    path: list[Op] = []
    v = y
    while read_once(g, v) and v.producer is not None and v.type.dtype in ("f32", "f64"):
        match v.producer:
            case Node(Transpose() | Reshape() as op, [Value() as inner]):
                path.append(op)
                v = inner
            case Node(Mul(), [Value() as a, Value() as b]):
                for inner, factor in ((a, b), (b, a)):
                    number = uniform(factor)
                    if number is None or uniform(inner) is not None:
                        continue
                    if not 1 / EXTREME < abs(number) < EXTREME or not _smaller(x, y):
                        return None
                    for move in reversed(path):
                        inner = g(move, inner)
                    scale = g.constant(np.asarray(number, x.type.numpy))
                    scaled_x = g(Mul(), x, stretch(g, scale, x.type.shape))
                    return g(node.op, scaled_x, inner)
                return None
            case _:
                return None
    return None


def _smaller(x: Value, y: Value) -> bool:
    """Whether x has fewer elements than y, by what is known of their extents."""
    return estimate(product(x.type.shape)) < estimate(product(y.type.shape))


@rules.on(Add, Sub)
def shift_of_conv(g: Graph, node: Node) -> Rewritten:
    """add(conv(x, w, b), t) => conv(x, w, add(b, t))   with t constant by output channel"""
    for y, t in with_constant(node):
        shift = along(t)
        match y:
            case Value(Node(Conv() | ConvTranspose() as op, [x, w, *bias])):
                old = bias[0] if bias else None
                fits = shift is not None and shift.axis in (None, 1) and read_once(g, y)
                if not fits or shift is None or not (old is None or is_constant(old)):
                    continue
                if old is not None and (_rounds(old) or _rounds(t)):
                    continue
                if isinstance(node.op, Sub) and y is not node.inputs[0]:
                    continue
                by_channel = _vector(g, shift.value, y.type.shape[1])
                new = g(Neg(), by_channel) if isinstance(node.op, Sub) else by_channel
                return g(op, x, w, new if old is None else g(Add(), old, new))
    return None


@rules.on(Conv)
def pad_of_conv(g: Graph, node: Node) -> Rewritten:
    """conv(pad(x, 0), w, b) => conv(x, w, b)   with more padding of its own"""
    match node:
        case Node(Conv() as op, [Value(Node(Pad(value=0) as pad, [Value() as x])), *rest]):
            more = _spatial_pads(pad, op.pads or (0,) * (2 * (x.type.rank - 2)))
            return g(replace(op, pads=more), x, *rest) if more is not None else None
    return None


@rules.on(AveragePool)
def pad_of_average(g: Graph, node: Node) -> Rewritten:
    """average_pool(pad(x, 0)) => average_pool(x, count_pads=True)   with more padding of its own"""
    match node:
        case Node(AveragePool() as op, [Value(Node(Pad(value=0) as pad, [x]))]):
            more = _pool_pads(pad, op)
            if more is None or not (op.count_pads or not any(op.pads)):
                return None
            whole = AveragePool(op.kernel, op.strides, more, op.dilations, count_pads=True)
            return g(whole, x)
    return None


@rules.on(MaxPool)
def pad_of_max(g: Graph, node: Node) -> Rewritten:
    """max_pool(pad(x, v)) => max_pool(x)   with v = -inf, or 0 that never beats an x >= 0"""
    match node:
        case Node(MaxPool() as op, [Value(Node(Pad() as pad, [Value() as x]))]):
            more = _pool_pads(pad, op)
            if more is None:
                return None
            lowest = pad.value == float("-inf") and x.type.dtype in FLOATS
            never = lowest or (pad.value == 0 and _beaten(op, x, more))
            return g(MaxPool(op.kernel, op.strides, more, op.dilations), x) if never else None
    return None


SCALED: dict[type[Op], Callable[[Graph, Node, Scale], Value | None]] = {}
"""How a scale is worked into operators that machines bring: the scaled result, or None."""


def scaled(g: Graph, v: Value, scale: Scale) -> Value | None:
    """Return v with `scale` worked into constants it is computed from; None if that cannot be."""
    node = v.producer
    if node is None or not read_once(g, v):
        return None
    match node:
        case Node(Conv() as op, [x, w, *bias]) if scale.axis in (None, 1):
            if all(c is None or scalable(c, scale.at(0)) for c in (w, *bias)):
                return g(op, x, *[c and _times(g, c, scale.at(0)) for c in (w, *bias)])
        case Node(ConvTranspose(group=1) as op, [x, Value() as w, *bias]):
            fits = scale.axis in (None, 1) and scalable(w, scale.at(1))
            if fits and all(c is None or scalable(c, scale.at(0)) for c in bias):
                return g(op, x, _times(g, w, scale.at(1)),
                         *[c and _times(g, c, scale.at(0)) for c in bias])  # fmt: skip
        case Node(MatMul()):
            return _scaled_product(g, node, scale)
        case Node(op) if type(op) in SCALED:
            return SCALED[type(op)](g, node, scale)
        case Node(Add() | Sub() as op, [Value() as a, Value() as b]):
            if scalable(b, scale) and not _rounds(b) and (x := scaled(g, a, scale)):
                return g(op, x, _times(g, b, scale))
            if scalable(a, scale) and not _rounds(a) and (x := scaled(g, b, scale)):
                return g(op, _times(g, a, scale), x)
        case Node(Mul()):
            for x, c in with_constant(node):
                if not scalable(c, scale):
                    return None
                product = _combined(g, c, scale.op, Along(scale.value, scale.axis))
                return product and g(Mul(), x, product)
        case Node(Transpose(perm=perm) as op, [Value() as x]):
            inner = scaled(g, x, scale if scale.axis is None else scale.at(perm[scale.axis]))
            return inner and g(op, inner)
        case Node(Reshape() as op, [Value() as x]) if scale.axis is None:
            inner = scaled(g, x, scale)
            return inner and g(op, inner)
    return None


def _scaled_product(g: Graph, node: Node, scale: Scale) -> Value | None:
    """Scale a matrix product by its constant operand, or by one that can be scaled itself."""
    x, y = node.inputs
    assert x is not None and y is not None
    rows, columns = x.type.rank - 2, x.type.rank - 1
    if scale.axis in (None, columns):
        right = _times(g, y, scale) if scalable(y, scale) else scaled(g, y, scale)
        if right is not None:
            return g(node.op, x, right)
    if scale.axis in (None, rows):
        left = _times(g, x, scale) if scalable(x, scale) else scaled(g, x, scale)
        return left and g(node.op, left, y)
    return None


def _combined(g: Graph, v: Value, op: Op, other: Along | None) -> Value | None:
    """Return op(v, other), both constants, if together they vary along one axis at most."""
    own = along(v)
    if own is None or other is None or len({own.axis, other.axis} - {None}) > 1:
        return None
    return _times(g, v, Scale(op, other.value, other.axis))


def scalable(v: Value, scale: Scale) -> bool:
    """Whether v is a constant, and what the scale makes of the largest element of each channel is a
    normal number."""
    if not is_constant(v):
        return False
    array, factors = known_array(v), known_array(scale.value)
    assert array is not None and factors is not None, "they are constant"
    info = _finfo(v.type.numpy)
    axis = None if scale.axis is None else scale.axis - (v.type.rank - array.ndim)
    others = tuple(i for i in range(array.ndim) if i != axis)
    ends = array.max(axis=others, initial=0), array.min(axis=others, initial=0)
    largest = np.maximum(*(np.abs(e.astype(np.float64)) for e in ends)).reshape(-1)
    sizes = np.abs(factors.astype(np.float64)).reshape(-1)
    with np.errstate(all="ignore"):
        products = largest / sizes if isinstance(scale.op, Div) else largest * sizes
    normal = (float(info.tiny) <= products) & (products <= float(info.max))
    usual = (sizes > 1 / EXTREME) & (sizes < EXTREME)
    nothing = (sizes == 0) & (not isinstance(scale.op, Div))
    return bool(np.all(nothing | usual & (normal | (products == 0))))


def _finfo(dtype: np.dtype[Any]) -> Any:
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def _rounds(v: Value) -> bool:
    """Whether a constant is so large that to add it is to round."""
    array = known_array(v)
    assert array is not None, f"{v} is constant"
    coarse = COARSE.get(v.type.dtype, 2.0**-12) / float(_finfo(v.type.numpy).eps)
    return float(np.abs(array).max(initial=0)) > coarse


def _scales(node: Node) -> list[tuple[Value, Scale]]:
    """Return (x, scale) for each way to see a product or quotient of floats so."""
    if node.output.type.dtype not in FLOATS:
        return []
    pairs = with_constant(node)
    if isinstance(node.op, Div):
        pairs = [(x, c) for x, c in pairs if x is node.inputs[0]]
    ways = [(x, along(c)) for x, c in pairs]
    return [(x, Scale(node.op, c.value, c.axis)) for x, c in ways if c is not None]


def _times(g: Graph, v: Value, scale: Scale) -> Value:
    """Return the constant v scaled, and stretched only after that."""
    source = unstretched(v)
    shape: tuple[Dim, ...] = source.type.shape
    more = v.type.rank - len(shape)
    if scale.axis is not None and (
        scale.axis < more or shape[scale.axis - more] != v.type.shape[scale.axis]
    ):  # fmt: skip
        shape = tuple(v.type.shape[i] if i == scale.axis else d
                      for i, d in enumerate((1,) * more + shape))  # fmt: skip
        more = 0
    wide = stretch(g, source, shape)
    axis = None if scale.axis is None else scale.axis - more
    factor = tuple(d for i, d in enumerate(shape) if i == axis)
    factor = (*factor, *[1] * (len(shape) - 1 - axis)) if axis is not None else ()
    product = g(scale.op, wide, stretch(g, _as_shape(g, scale.value, factor), shape))
    return stretch(g, product, v.type.shape)


def _times_inputs(g: Graph, w: Value, scale: Scale, group: int) -> Value:
    """Return the weights of a convolution scaled by input channel."""
    if scale.axis is None:
        return _times(g, w, scale)
    outputs, inputs, *taps = w.type.extents
    parts = _as_shape(g, scale.value, (group, 1, inputs))
    each = stretch(g, parts, (group, outputs // group, inputs))
    factor = g(Reshape((outputs, inputs, *[1] * len(taps))), each)
    return g(scale.op, w, stretch(g, factor, w.type.shape))


def _vector(g: Graph, v: Value, count: Dim) -> Value:
    """Return a constant of one element, or one a channel, as one a channel."""
    if all(d == 1 for d in v.type.shape):
        return stretch(g, _as_shape(g, v, ()), (count,))
    return _as_shape(g, v, (count,))


def _as_shape(g: Graph, v: Value, shape: tuple[Dim, ...]) -> Value:
    return v if v.type.shape == shape else g(Reshape(shape), v)


def _spatial_pads(pad: Pad, pads: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return `pads` plus the amounts of `pad`; None unless it only pads the spatial axes."""
    outer = (*pad.before[:2], *pad.after[:2])
    more = (*pad.before[2:], *pad.after[2:])
    if pad.mode != "constant" or any(outer) or min(more) < 0 or len(more) != len(pads):
        return None
    return tuple(a + b for a, b in zip(more, pads, strict=True))


def _pool_pads(pad: Pad, op: MaxPool | AveragePool) -> tuple[int, ...] | None:
    """Return the pads of a pooling plus the amounts of `pad`; None if it cannot have them."""
    more = _spatial_pads(pad, op.pads)
    if more is None or op.ceil:
        return None
    return more if pad_that_holds_a_window(op.kernel, more, op.dilations) is None else None


def _beaten(op: MaxPool, x: Value, pads: tuple[int, ...]) -> bool:
    """Whether every window holds an element of x, and none of them is below 0."""
    inside = all(p < k for p, k in zip(pads, (*op.kernel, *op.kernel), strict=True))
    match x:
        case Value(Node(Relu())):
            return inside and set(op.dilations) <= {1}
        case Value(Node(Clip(low=low, high=high))):
            return inside and set(op.dilations) <= {1} and min(low, high) >= 0
    return False


def _operand(node: Node, i: int) -> Value:
    v = node.inputs[i]
    assert v is not None
    return v


def _producer(v: Value) -> Node:
    assert v.producer is not None
    return v.producer
