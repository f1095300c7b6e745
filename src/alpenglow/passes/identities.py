"""Simplification of arithmetic: neutral operands, inverses, limits, conversions, selections.

NaN and infinities are respected: x * 0 is not 0, and x - x is 0 for integers only.  The sign of a
zero is not promised: x + 0 becomes x.
"""

from __future__ import annotations

import math
from itertools import zip_longest

import numpy as np

from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ir.types import DTYPES, FLOATS, OPAQUE, SIGNED, UNSIGNED
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import (
    Add,
    Clip,
    Div,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Pow,
    Reciprocal,
    Sub,
)
from alpenglow.ops.elementwise.logic import BitAnd, BitNot, BitOr
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.tensor.movement import Broadcast, stretch, unstretched
from alpenglow.passes.constants import is_constant, read_once, uniform, with_constant
from alpenglow.passes.grid import known_array

rules = Rules()

SETTLED = 1 << 14
"""A condition of more elements is not computed to see whether all are the same."""


@rules.on(Add)
def add_zero(g: Graph, node: Node) -> Rewritten:
    """add(x, 0) => x"""
    return _without(node, 0)


@rules.on(Sub)
def sub_zero(g: Graph, node: Node) -> Rewritten:
    """sub(x, 0) => x;  sub(0, x) => neg(x)   for signed integers: of floats 0 - 0 is no -0"""
    match node.inputs:
        case [Value() as x, Value() as zero] if uniform(zero) == 0:
            return x
        case [Value() as zero, Value(type=t) as x] if uniform(zero) == 0 and t.dtype in SIGNED:
            return g(Neg(), x)
    return None


@rules.on(Sub)
def sub_self(g: Graph, node: Node) -> Rewritten:
    """sub(x, x) => 0   for integers"""
    x, y = node.inputs
    t = node.output.type
    if x is not y or t.dtype in FLOATS:
        return None
    return g(Broadcast(t.shape, t.layout), g.constant(np.zeros((), t.numpy)))


@rules.on(Mul)
def mul_one(g: Graph, node: Node) -> Rewritten:
    """mul(x, 1) => x"""
    return _without(node, 1)


@rules.on(Mul)
def mul_minus_one(g: Graph, node: Node) -> Rewritten:
    """mul(x, -1) => neg(x)"""
    x = _without(node, -1)
    return g(Neg(), x) if x is not None and _signed(x) else None


@rules.on(Div)
def div_one(g: Graph, node: Node) -> Rewritten:
    """div(x, 1) => x"""
    match node.inputs:
        case [Value() as x, Value() as one] if uniform(one) == 1:
            return x
    return None


@rules.on(Div)
def div_of_one(g: Graph, node: Node) -> Rewritten:
    """div(1, x) => reciprocal(x)   for floats"""
    match node.inputs:
        case [Value() as one, Value() as x] if uniform(one) == 1 and x.type.dtype in FLOATS:
            return g(Reciprocal(), x)
    return None


@rules.on(Div)
def div_by_power_of_two(g: Graph, node: Node) -> Rewritten:
    """div(x, c) => mul(x, 1 / c)   where c is a power of two, so that 1 / c is exact"""
    match node.inputs:
        case [Value(type=t) as x, Value() as c] if t.dtype in FLOATS:
            divisor = uniform(c)
            if divisor is None or not _power_of_two(divisor):
                return None
            inverse = g.constant(np.asarray(1 / divisor, t.numpy))
            return g(Mul(), x, g(Broadcast(t.shape, t.layout), inverse))
    return None


@rules.on(Pow)
def small_power(g: Graph, node: Node) -> Rewritten:
    """pow(x, 1) => x;  pow(x, 2) => mul(x, x)"""
    match node.inputs:
        case [Value() as x, Value() as y] if uniform(y) == 1:
            return x
        case [Value() as x, Value() as y] if uniform(y) == 2:
            return g(Mul(), x, x)
    return None


@rules.on(Neg)
def neg_neg(g: Graph, node: Node) -> Rewritten:
    """neg(neg(x)) => x"""
    match node:
        case Node(_, [Value(Node(Neg(), [x]))]):
            return x
    return None


@rules.on(Add)
def add_neg(g: Graph, node: Node) -> Rewritten:
    """add(x, neg(y)) => sub(x, y)"""
    match node.inputs:
        case [x, Value(Node(Neg(), [y]))] | [Value(Node(Neg(), [y])), x]:
            return g(Sub(), x, y)
    return None


@rules.on(Add)
def add_constants(g: Graph, node: Node) -> Rewritten:
    """add(add(x, c), d) => add(x, add(c, d))   for integers, with c and d constant"""
    if node.output.type.dtype in FLOATS:
        return None
    for y, d in with_constant(node):
        match y:
            case Value(Node(Add()) as inner) if read_once(g, y):
                for x, c in with_constant(inner):
                    return g(Add(), x, g(Add(), c, d))
    return None


@rules.on(Sub)
def sub_neg(g: Graph, node: Node) -> Rewritten:
    """sub(x, neg(y)) => add(x, y)"""
    match node.inputs:
        case [x, Value(Node(Neg(), [y]))]:
            return g(Add(), x, y)
    return None


@rules.on(BitNot)
def not_not(g: Graph, node: Node) -> Rewritten:
    """bit_not(bit_not(x)) => x"""
    match node:
        case Node(_, [Value(Node(BitNot(), [x]))]):
            return x
    return None


@rules.on(BitAnd)
def and_true(g: Graph, node: Node) -> Rewritten:
    """bit_and(x, all bits set) => x;  bit_and(x, x) => x"""
    dtype = node.output.type.dtype
    every = 1 if dtype == "bool" else int(np.iinfo(DTYPES[dtype]).max) if dtype in UNSIGNED else -1
    return node.inputs[0] if node.inputs[0] is node.inputs[1] else _without(node, every)


@rules.on(BitOr)
def or_false(g: Graph, node: Node) -> Rewritten:
    """bit_or(x, 0) => x;  bit_or(x, x) => x"""
    return node.inputs[0] if node.inputs[0] is node.inputs[1] else _without(node, 0)


@rules.on(Where)
def where_known(g: Graph, node: Node) -> Rewritten:
    """where(true, x, y) => x;  where(false, x, y) => y;  where(c, x, x) => x

    A condition may be computed from constants, such as whether a query of attention sees a key.
    """
    condition, x, y = node.inputs
    if x is y:
        return x
    assert condition is not None
    known = uniform(condition)
    if known is None and unstretched(condition).type.static:
        known = _settled(condition)
    return None if known is None else x if known else y


@rules.on(Where)
def where_differentiated(g: Graph, node: Node) -> Rewritten:
    """where(c, x, y, lazy) => where(c, x, y)   since gradients are written out by now"""
    op = node.op
    return g(Where(), *node.inputs) if isinstance(op, Where) and op.lazy else None


def _settled(condition: Value) -> bool | None:
    """Return the value of a condition that is computed from constants; None if it varies."""
    if unstretched(condition).type.size > SETTLED or not is_constant(condition):
        return None
    truths = known_array(condition)
    if truths is None or not truths.size or bool(truths.all()) != bool(truths.any()):
        return None
    return bool(truths.all())


@rules.on(Maximum, Minimum)
def limit_by_number(g: Graph, node: Node) -> Rewritten:
    """maximum(x, c) => clip(x, low=c);  minimum(x, c) => clip(x, high=c)"""
    a, b = node.inputs
    assert a is not None and b is not None
    for x, c in ((a, b), (b, a)):
        limit = uniform(c)
        if limit is not None and math.isfinite(limit):
            op = Clip(low=limit) if isinstance(node.op, Maximum) else Clip(high=limit)
            return g(op, x)
    return None


@rules.on(Maximum, Minimum)
def limit_by_nothing(g: Graph, node: Node) -> Rewritten:
    """maximum(x, -inf) => x;  minimum(x, inf) => x   as JAX begins a softmax"""
    neutral = -math.inf if isinstance(node.op, Maximum) else math.inf
    a, b = node.inputs
    assert a is not None and b is not None
    return next((x for x, c in ((a, b), (b, a)) if uniform(c) == neutral), None)


@rules.on(Clip)
def clip_nothing(g: Graph, node: Node) -> Rewritten:
    """clip(x, -inf, inf) => x"""
    return node.inputs[0] if node.op in (Clip(), Clip(closed=True)) else None


@rules.on(Clip)
def clip_clip(g: Graph, node: Node) -> Rewritten:
    """clip(clip(x, l, h), m, i) => clip(x, max(l, m), min(max(h, m), i))"""
    match node:
        case Node(Clip() as outer, [Value(Node(Clip() as inner, [Value() as x]))]):
            return g(_both(inner, outer), x)
    return None


@rules.on(Relu)
def relu_relu(g: Graph, node: Node) -> Rewritten:
    """relu(relu(x)) => relu(x)"""
    match node:
        case Node(_, [Value(Node(Relu())) as y]):
            return y
    return None


@rules.on(Relu)
def relu_clip(g: Graph, node: Node) -> Rewritten:
    """relu(clip(x, l, h)) => clip(x, max(l, 0), max(h, 0))"""
    match node:
        case Node(_, [Value(Node(Clip() as inner, [Value() as x]))]):
            return g(_both(inner, _relu_as_clip(x)), x)
    return None


@rules.on(Clip)
def clip_relu(g: Graph, node: Node) -> Rewritten:
    """clip(relu(x), l, h) => clip(x, max(l, 0), h)"""
    match node:
        case Node(Clip() as outer, [Value(Node(Relu(), [Value() as x]))]):
            return g(_both(_relu_as_clip(x), outer), x)
    return None


@rules.on(Cast)
def cast_to_same(g: Graph, node: Node) -> Rewritten:
    """cast(x, its own type) => x"""
    match node:
        case Node(Cast(dtype=dtype), [Value() as x]) if x.type.dtype == dtype:
            return x
    return None


@rules.on(Cast)
def cast_cast(g: Graph, node: Node) -> Rewritten:
    """cast(cast(x, t), u) => cast(x, u)   where t holds every value of x"""
    match node:
        case Node(op, [Value(Node(Cast(dtype=between), [Value() as x]))]):
            return g(op, x) if _holds(between, x.type.dtype) else None
    return None


@rules.on(Elementwise)
def compute_before_broadcast(g: Graph, node: Node) -> Rewritten:
    """f(broadcast(a), broadcast(b)) => broadcast(f(a, b))   where that is fewer elements"""
    sources = [_stretched_from(v) for v in node.inputs]
    out = node.output.type
    bases = [s for s in sources if s is not None]
    if not bases or len(bases) < len(sources) or not out.is_plain:
        return None
    common = _common_shape([s.type.shape for s in bases])
    if common is None or _padded(common, out.rank) == out.shape:
        return None
    small = [stretch(g, s, common) for s in bases]
    return g(Broadcast(out.shape), g(node.op, *small))


def _without(node: Node, neutral: int) -> Value | None:
    """Return the other operand of a commutative node one of whose operands is all `neutral`."""
    a, b = node.inputs
    assert a is not None and b is not None
    return a if uniform(b) == neutral else b if uniform(a) == neutral else None


def _signed(x: Value) -> bool:
    return x.type.dtype in FLOATS | SIGNED


def _power_of_two(c: float) -> bool:
    """Whether c is a power of two whose reciprocal is a normal number even in half precision."""
    return abs(math.frexp(c)[0]) == 0.5 and 2.0**-14 <= abs(c) <= 2.0**14


def _relu_as_clip(x: Value) -> Clip:
    return Clip(low=0.0 if x.type.dtype in FLOATS else 0)


def _both(first: Clip, then: Clip) -> Clip:
    """Return the one clip that does as much as two."""
    return Clip(max(first.low, then.low), min(max(first.high, then.low), then.high))


def _holds(wide: str, narrow: str) -> bool:
    """Whether type `wide` holds every value of type `narrow`."""
    if wide == narrow:
        return True
    if {wide, narrow} & OPAQUE:
        return False
    if narrow == "bool":
        return True
    if wide == "bool" or narrow in FLOATS:
        return (narrow, wide) in {(h, w) for h in ("f16", "bf16") for w in ("f32", "f64")} | {
            ("f32", "f64")
        }
    limits = np.iinfo(DTYPES[narrow])
    if wide in FLOATS:
        digits = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}[wide]
        return bool(limits.max < 1 << digits)
    room = np.iinfo(DTYPES[wide])
    return int(room.min) <= int(limits.min) and int(limits.max) <= int(room.max)


def _stretched_from(v: Value | None) -> Value | None:
    match v:
        case Value(Node(Broadcast(), [source])):
            return source
    return None


def _common_shape(shapes: list[tuple[Dim, ...]]) -> tuple[Dim, ...] | None:
    """Return the shape that all stretch to; None if some do not fit together."""
    out: list[Dim] = []
    for extents in zip_longest(*[reversed(s) for s in shapes], fillvalue=1):
        wide = {d for d in extents if d != 1}
        if len(wide) > 1:
            return None
        out.append(wide.pop() if wide else 1)
    return tuple(reversed(out))


def _padded(shape: tuple[Dim, ...], rank: int) -> tuple[Dim, ...]:
    return (1,) * (rank - len(shape)) + shape
