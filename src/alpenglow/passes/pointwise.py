"""Quantized models, element by element: from one scale to another, sums, products, functions.

Operators between a dequantize and a quantize become arithmetic in i32 and one multiplication.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.activation import LeakyRelu, Relu
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Div, Mul, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.product.contraction import BYTES
from alpenglow.ops.quantized.integer import ConvInteger
from alpenglow.ops.quantized.quantize import STEPS, Quantize, Requantize
from alpenglow.ops.reduction.reduction import ReduceMean, SumBytes
from alpenglow.ops.tensor.movement import Broadcast, stretch
from alpenglow.ops.window.pooling import AveragePool
from alpenglow.passes.constants import is_constant
from alpenglow.passes.grid import LEAST, MOST, Grid, grid_of, known_array, quantized, spread

rules = Rules()

ROOM = 2.0**31
"""Sums in i32 stay below this."""

DIGITS = 12
"""Sums of dequantized tensors are made in i32 where at least so many bits are below a step."""


@dataclass(frozen=True)
class Wanted:
    """The result of a quantize: integers of a uniform grid, within an activation's bounds."""

    grid: Grid
    low: int
    high: int

    def made(self, g: Graph, sums: Value, multiplier: Value, fits: bool = False) -> Value:
        """Return sums times a multiplier, rounded to the grid."""
        zero = spread(g, self.grid.zeros, self.grid.dtype, None, sums.type)
        op = Requantize(self.grid.dtype, self.low, self.high, fits)
        return g(op, sums, multiplier, zero)


def wanted(node: Node) -> tuple[Value, Wanted] | None:
    """Return the value that a quantize limits, and its result; None if its grid is not uniform."""
    grid, v = grid_of(node), node.inputs[0]
    if grid is None or not grid.uniform or grid.dtype not in STEPS or v is None:
        return None
    low, high = grid.limits
    match v:
        case Value(Node(Relu(), [Value() as x])):
            return x, Wanted(grid, max(low, grid.nearest(0.0)), high)
        case Value(Node(Clip() as op, [Value() as x])) if op.low <= op.high:
            return x, Wanted(grid, grid.nearest(op.low), grid.nearest(op.high))
    return v, Wanted(grid, low, high)


# ── from one scale to another ──


@rules.on(Quantize)
def rescale(g: Graph, node: Node) -> Rewritten:
    """quantize(dequantize(x, s, a), t, b) => requantize(x - a, s / t, b);
    through relu and clip, which become bounds"""
    goal = wanted(node)
    if goal is None:
        return None
    v, to = goal
    source = quantized(v)
    if source is None:
        return None
    q, grid = source
    sums = _steps(g, q, grid)
    factors = tuple(s / to.grid.scale for s in grid.scales)
    if sums is None or not all(LEAST < f < MOST for f in factors):
        return None
    return to.made(g, sums, spread(g, factors, "f32", grid.axis, q.type))


@rules.on(Quantize)
def rescale_leaky(g: Graph, node: Node) -> Rewritten:
    """quantize(leaky_relu(dequantize(x, s, a)), t, b)
    => requantize(x - a, where(x < a, alpha s / t, s / t), b)"""
    goal = wanted(node)
    if goal is None:
        return None
    v, to = goal
    match v:
        case Value(Node(LeakyRelu(alpha=alpha), [x])):
            source = quantized(x)
        case _:
            return None
    if source is None or not source[1].uniform:
        return None
    q, grid = source
    sums, factor = _steps(g, q, grid), grid.scale / to.grid.scale
    if sums is None or not LEAST < factor < MOST or not abs(alpha) < MOST:
        return None
    below = g(Less(), sums, spread(g, (0,), "i32", None, sums.type))
    slopes = [spread(g, (f,), "f32", None, sums.type) for f in (alpha * factor, factor)]
    return to.made(g, sums, g(Where(), below, *slopes))


# ── sums and products ──


@rules.on(Quantize)
def sum_of_integers(g: Graph, node: Node) -> Rewritten:
    """quantize(add(dequantize(x, s, a), dequantize(y, t, b)), u, c)
    => requantize(x m + y n + k, 2^-e, c)   where m and n are s / u and t / u times 2^e, rounded;
    likewise sub, relu and clip, and constants in the place of one"""
    goal = wanted(node)
    match goal:
        case (Value(Node(Add() | Sub() as op, [Value() as x, Value() as y])), to):
            pass
        case _:
            return None
    terms = [_term(v, to.grid.scale, sign) for v, sign in ((x, 1), (y, -1 if op == Sub() else 1))]
    if None in terms or all(t is not None and t.q is None for t in terms):
        return None
    reach = sum(t.reach for t in terms if t is not None)
    if not 0 < reach < ROOM:
        return None
    bits = math.floor(math.log2(ROOM / (reach + 1))) - 1
    if bits < DIGITS:
        return None
    total: Value | None = None
    offset = 0
    for t in terms:
        assert t is not None
        part, more = t.scaled(g, 2.0 ** min(bits, 30), x.type.shape)
        offset += more
        if part is not None:
            total = part if total is None else g(Add(), total, part)
    assert total is not None
    if offset:
        total = g(Add(), total, spread(g, (offset,), "i32", None, total.type))
    return to.made(g, total, spread(g, (2.0 ** -min(bits, 30),), "f32", None, total.type))


@dataclass(frozen=True)
class Term:
    """One operand of a sum in steps of the result: factor * (q - zero), or constants."""

    factor: float
    q: Value | None
    grid: Grid | None
    constants: Array

    @property
    def reach(self) -> float:
        """The largest that the term can be."""
        if self.grid is not None:
            return abs(self.factor) * self.grid.steps
        return float(np.abs(self.constants).max(initial=0))

    def scaled(self, g: Graph, unit: float, shape: tuple[Dim, ...]) -> tuple[Value | None, int]:
        """Return the term times `unit` in i32: a tensor, or None, and a number to add to it."""
        if self.q is None or self.grid is None:
            steps = np.rint(self.constants * unit).astype(np.int32)
            if steps.size == 1:
                return None, int(steps.reshape(()))
            return g(Broadcast(shape), g.constant(steps)), 0
        factor = round(self.factor * unit)
        wide = g(Cast("i32"), self.q)
        scaled = g(Mul(), wide, spread(g, (factor,), "i32", None, wide.type))
        return scaled, -factor * self.grid.zero


def _term(v: Value, step: float, sign: int) -> Term | None:
    """Return an operand of a sum as a term; None if it is neither dequantized nor constant."""
    none = np.zeros(())
    if is_constant(v):
        array = known_array(v)
        assert array is not None, f"{v} is constant"
        reals = array.astype(np.float64)
        return Term(0.0, None, None, sign * reals / step) if np.isfinite(reals).all() else None
    source = quantized(v)
    if source is None or not source[1].uniform or source[1].dtype not in BYTES:
        return None
    return Term(sign * source[1].scale / step, source[0], source[1], none)


@rules.on(Quantize)
def product_of_integers(g: Graph, node: Node) -> Rewritten:
    """quantize(mul(dequantize(x, s, a), dequantize(y, t, b)), u, c)
    => requantize((x - a) (y - b), s t / u, c)"""
    goal = wanted(node)
    match goal:
        case (Value(Node(Mul(), [Value() as x, Value() as y])), to):
            pass
        case _:
            return None
    sources = [quantized(v) for v in (x, y)]
    if is_constant(x) or is_constant(y):
        return None
    factor, parts = 1 / to.grid.scale, []
    for one in sources:
        if one is None or not one[1].uniform or one[1].dtype not in BYTES:
            return None
        factor *= one[1].scale
        steps = _steps(g, *one)
        assert steps is not None, "bytes less their zero point"
        parts.append(steps)
    if not LEAST < factor < MOST:
        return None
    return to.made(g, g(Mul(), *parts), spread(g, (factor,), "f32", None, x.type))


@rules.on(Quantize)
def scale_of_integers(g: Graph, node: Node) -> Rewritten:
    """quantize(mul(dequantize(x, s, a), k), t, b) => requantize(x - a, s k / t, b)   where k is
    constant; likewise div"""
    goal = wanted(node)
    match goal:
        case (Value(Node(Mul() | Div() as op, [Value() as x, Value() as y])), to):
            pass
        case _:
            return None
    pairs = [(x, y)] if isinstance(op, Div) else [(x, y), (y, x)]
    for v, other in pairs:
        source = quantized(v)
        if source is None or is_constant(v) or not is_constant(other) or not source[1].uniform:
            continue
        array = known_array(other)
        assert array is not None, f"{other} is constant"
        with np.errstate(all="ignore"):
            wide = array.astype(np.float64)
            reals = 1 / wide if isinstance(op, Div) else wide
            factors = (reals * source[1].scale / to.grid.scale).astype(np.float32)
        sums = _steps(g, *source)
        if sums is None or not (np.abs(factors) < MOST).all():
            continue
        return to.made(g, sums, stretch(g, g.constant(factors), v.type.shape))
    return None


@rules.on(Quantize)
def mean_of_integers(g: Graph, node: Node) -> Rewritten:
    """quantize(mean(dequantize(x, s, a)), t, b) => requantize(sum(x - a), s / (n t), b)   for
    reduce_mean, and average_pool as a convolution by ones"""
    goal = wanted(node)
    match goal:
        case (Value(Node(ReduceMean() | AveragePool() as op, [Value() as x])), to):
            source = quantized(x)
        case _:
            return None
    if source is None or not source[1].uniform or source[1].dtype not in BYTES:
        return None
    q, grid = source
    if isinstance(op, ReduceMean):
        extents = [q.type.shape[a] for a in op.axes]
        if not all(isinstance(d, int) for d in extents):
            return None
        count = math.prod(int(d) for d in extents)
        if not 0 < count <= 1 << 22:
            return None
        sums = g(SumBytes(op.axes, op.keepdims), q)
        if grid.zero:
            sums = g(Add(), sums, spread(g, (-grid.zero * count,), "i32", None, sums.type))
    else:
        channels = q.type.shape[1]
        if op.ceil or (any(op.pads) and not op.count_pads) or not isinstance(channels, int):
            return None
        count = math.prod(op.kernel)
        w = g.constant(np.ones((channels, 1, *op.kernel), np.int8))
        zeros = [spread(g, (grid.zero,), grid.dtype, None, q.type),
                 spread(g, (0,), "i8", None, w.type)]  # fmt: skip
        conv = ConvInteger(op.strides, op.pads, op.dilations, channels)
        sums = g(conv, q, w, *zeros)
    factor = grid.scale / to.grid.scale / count
    if not LEAST < factor < MOST:
        return None
    return to.made(g, sums, spread(g, (factor,), "f32", None, sums.type))


def _steps(g: Graph, q: Value, grid: Grid) -> Value | None:
    """Return q less its zero point in i32; None if that is not exact."""
    if grid.dtype == "i32":
        return q if not any(grid.zeros) else None
    wide = g(Cast("i32"), q)
    if not any(grid.zeros):
        return wide
    return g(Sub(), wide, spread(g, grid.zeros, "i32", grid.axis, q.type))
