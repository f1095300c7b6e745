"""Operators of training only: batch statistics, dropout, and the steps of optimizers.

An optimizer here takes the learning rate and the number of the step, both scalars, and of one
tensor its value, its gradient and what it remembers, and returns the new value and memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, Op, check_dtype
from alpenglow.ir.types import FLOATS, INTS, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul, Neg, Pow, Sub
from alpenglow.ops.elementwise.comparison import Greater, GreaterOrEqual
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Sqrt
from alpenglow.ops.random.random import KEY, RandomUniform
from alpenglow.ops.reduction.layer_norm import inverse_root
from alpenglow.ops.reduction.normalize import across, by_channel, channels, check_batch_norm, scaled
from alpenglow.ops.reduction.reduction import ReduceMean, ReduceSum, as_type, filled, in_floats
from alpenglow.ops.tensor.movement import Broadcast

WIDE = frozenset({"f32", "f64"})


class BatchNormTraining(Composite):
    """x normalised by the mean and variance of each channel (axis 1), times scale, plus bias.

    The further results are the running mean and variance, `momentum` times what they were plus
    the rest times those of x, and the mean and variance of x.  The variance is that of the whole
    population.  ONNX BatchNormalization in training.
    """

    epsilon: float = 1e-5
    momentum: float = 0.9

    def infer(
        self, x: TensorType, scale: TensorType, bias: TensorType, mean: TensorType,
        variance: TensorType,
    ) -> tuple[TensorType, ...]:  # fmt: skip
        check_batch_norm(self, x, scale=scale, bias=bias, mean=mean, variance=variance)
        return x, mean, variance, mean, variance

    def lower(self, b: Graph, *operands: Value) -> tuple[Value, ...]:
        x, *params = operands
        wide = in_floats(b, x)
        scale, bias, mean, variance = (as_type(b, v, wide.type.dtype) for v in params)
        centre, _, spread = _statistics(b, wide)
        factor = b(Mul(), scale, inverse_root(b, spread, self.epsilon))
        shift = b(Sub(), bias, b(Mul(), centre, factor))
        y = as_type(b, scaled(b, wide, factor, shift), x.type.dtype)
        running = [weighted(b, self.momentum, old, new)
                   for old, new in ((mean, centre), (variance, spread))]  # fmt: skip
        kinds = [v.type.dtype for v in params[2:]] * 2
        pairs = zip([*running, centre, spread], kinds, strict=True)
        return y, *(as_type(b, v, dtype) for v, dtype in pairs)

    def gradient(
        self, b: Graph, dys: Sequence[Value | None], *operands: Value
    ) -> tuple[Value | None, ...]:
        """Say what the formula comes to: each channel of dx is a line in dy and in x.

        How far elements are from their mean adds up to 0, so no sum of that is taken.
        """
        x, *params = operands
        wide = in_floats(b, x)
        dy, *rest = (None if v is None else as_type(b, v, wide.type.dtype) for v in dys)
        moving, statistics = rest[:2], rest[2:]
        _, apart, spread = _statistics(b, wide)
        one = b(Div(), filled(b, 1, spread), _count(b, wide))
        olds = [None if d is None else times(b, self.momentum, d) for d in moving]
        dcentre, dspread = (
            _both(b, d, None if r is None else times(b, 1 - self.momentum, r))
            for d, r in zip(statistics, moving, strict=True)
        )
        level = None if dcentre is None else b(Mul(), dcentre, one)
        slope = None if dspread is None else times(b, 2, b(Mul(), dspread, one))
        dx = dscale = dbias = None
        if dy is not None:
            root = inverse_root(b, spread, self.epsilon)
            factor = b(Mul(), as_type(b, params[0], wide.type.dtype), root)
            dbias = by_channel(b, ReduceSum, dy)
            dscale = b(Mul(), by_channel(b, ReduceSum, b(Mul(), dy, apart)), root)
            share = b(Neg(), b(Mul(), factor, one))
            level = _both(b, level, b(Mul(), share, dbias))
            slope = _both(b, slope, b(Mul(), b(Mul(), share, root), dscale))
            dx = b(Mul(), dy, across(b, factor, wide))
        if slope is not None:
            dx = _both(b, dx, b(Mul(), apart, across(b, slope, wide)))
        if level is not None:
            dx = _both(b, dx, across(b, level, wide))
        dxs = (dx, dscale, dbias, *olds)
        return tuple(
            None if d is None else as_type(b, d, v.type.dtype)
            for d, v in zip(dxs, operands, strict=True)
        )

    @classmethod
    def examples(cls) -> Examples:
        for shape in ("2,5,3,4", "3,5", "3,5,2"):
            yield cls(), f"f32[{shape}]", *["f32[5]"] * 4
        yield cls(0.1, 0.25), "f32[7]", *["f32[1]"] * 4
        yield cls(), "f16[2,5,3]", "f16[5]", "f16[5]", "f32[5]", "f32[5]"
        yield cls(), "bf16[2,5,3]", *["bf16[5]"] * 4
        yield cls(), "f64[2,5,3]", *["f64[5]"] * 4


def _statistics(b: Graph, x: Value) -> tuple[Value, Value, Value]:
    """Return the mean of each channel, how far x is from that, and the variance of each channel."""
    centre = by_channel(b, ReduceMean, x)
    apart = b(Sub(), x, across(b, centre, x))
    return centre, apart, by_channel(b, ReduceMean, b(Mul(), apart, apart))


def _count(b: Graph, x: Value) -> Value:
    """Return how many elements each channel has, for each."""
    number = product([d for a, d in enumerate(x.type.shape) if a != 1])
    if not known(number):
        return by_channel(b, ReduceSum, filled(b, 1, x))
    kind = x.type.with_shape((channels(x.type),))
    return b(Broadcast(kind.shape), b.constant(np.asarray(number, kind.numpy)))


def _both(b: Graph, x: Value | None, y: Value | None) -> Value | None:
    """Return the sum of what there is."""
    if x is None:
        return y
    return x if y is None else b(Add(), x, y)


class Dropout(Composite):
    """x where a number drawn under a key u32[2] is not below `share`, else 0; over 1 - share.

    The same key drops the same elements, on any machine and at any number of threads.
    """

    share: float

    def infer(self, x: TensorType, key: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        if key != KEY or not 0 <= self.share < 1:
            raise TypeRuleError(
                f"dropout: share is {self.share} and key is {key}, expected 0 to below 1 and {KEY}"
            )
        return x

    def lower(self, b: Graph, x: Value, key: Value) -> Value:
        wide = in_floats(b, x)
        drawn = b(RandomUniform(x.type.shape, dtype="f32"), key)
        kept = b(GreaterOrEqual(), drawn, filled(b, self.share, drawn))
        y = b(Where(), kept, times(b, 1 / (1 - self.share), wide), filled(b, 0, wide))
        return as_type(b, y, x.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(0.5), "f32[3,5]", np.array([1, 2], np.uint32)
        yield cls(0.25), "f32[2,70]", "u32[2]"
        yield cls(0.0), "f32[0,3]", "u32[2]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(0.5), f"{dtype}[2,9]", "u32[2]"


class Momentum(Composite):
    """v' = alpha v + beta g' and x' = x - rate v', where g' = g + decay x.  ONNX Momentum.

    In step 0 beta counts as 1.  With `nesterov`, x' = x - rate (g' + alpha v').  The results are
    x' and v'.
    """

    alpha: float
    beta: float
    decay: float = 0.0
    nesterov: bool = False

    def infer(
        self, rate: TensorType, step: TensorType, x: TensorType, g: TensorType, v: TensorType
    ) -> tuple[TensorType, TensorType]:
        check_update(self, rate, step, x, g, v)
        return x, v

    def lower(self, b: Graph, *operands: Value) -> tuple[Value, Value]:
        rate, step, x, g, v = operands
        g = regular(b, self.decay, x, g)
        later = b(Greater(), step, filled(b, 0, step))
        beta = b(Where(), later, like(b, self.beta, step, x), like(b, 1.0, step, x))
        v = b(Add(), times(b, self.alpha, v), b(Mul(), spread_to(b, beta, g), g))
        way = b(Add(), g, times(b, self.alpha, v)) if self.nesterov else v
        return b(Sub(), x, b(Mul(), spread_to(b, rate, x), way)), v

    @classmethod
    def examples(cls) -> Examples:
        for nesterov in (False, True):
            yield cls(0.9, 0.5, 0.01, nesterov), *updates("f32", 0, 3)
            yield cls(0.9, 0.5, 0.01, nesterov), *updates("f32", 7, 3)
        yield cls(0.75, 0.25), *updates("f64", 7, 3)


class Adagrad(Composite):
    """h' = h + g'² and x' = x - rate / (1 + step · slowing) · g' / (sqrt(h') + epsilon).

    g' = g + decay x.  The results are x' and h'.  ONNX Adagrad.
    """

    epsilon: float = 1e-6
    decay: float = 0.0
    slowing: float = 0.0

    def infer(
        self, rate: TensorType, step: TensorType, x: TensorType, g: TensorType, h: TensorType
    ) -> tuple[TensorType, TensorType]:
        check_update(self, rate, step, x, g, h)
        return x, h

    def lower(self, b: Graph, *operands: Value) -> tuple[Value, Value]:
        rate, step, x, g, h = operands
        g = regular(b, self.decay, x, g)
        slower = times(b, self.slowing, as_type(b, step, x.type.dtype))
        rate = b(Div(), rate, b(Add(), slower, filled(b, 1, slower)))
        h = b(Add(), h, b(Mul(), g, g))
        root = b(Sqrt(), h)
        share = b(Div(), g, b(Add(), root, filled(b, self.epsilon, root)))
        return b(Sub(), x, b(Mul(), spread_to(b, rate, x), share)), h

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), *updates("f32", 0, 3)
        yield cls(1e-3, 0.1, 0.5), *updates("f32", 7, 3)
        yield cls(), *updates("f64", 7, 3)


class Adam(Composite):
    """x' = (1 - decay_after) (x - rate' v' / (sqrt(h') + epsilon)), with running averages v' of the
    gradient, v' = alpha v + (1 - alpha) g', and h' of its square, h' = beta h + (1 - beta) g'².

    g' = g + decay x, and rate' = rate · sqrt(1 - beta^step) / (1 - alpha^step), or the rate itself
    in step 0.  The results are x', v' and h'.  ONNX Adam.
    """

    alpha: float = 0.9
    beta: float = 0.999
    epsilon: float = 1e-6
    decay: float = 0.0
    decay_after: float = 0.0

    def infer(
        self, rate: TensorType, step: TensorType, x: TensorType, g: TensorType, v: TensorType,
        h: TensorType,
    ) -> tuple[TensorType, TensorType, TensorType]:  # fmt: skip
        check_update(self, rate, step, x, g, v, h)
        return x, v, h

    def lower(self, b: Graph, *operands: Value) -> tuple[Value, Value, Value]:
        rate, step, x, g, v, h = operands
        g = regular(b, self.decay, x, g)
        v = weighted(b, self.alpha, v, g)
        h = weighted(b, self.beta, h, b(Mul(), g, g))
        count = as_type(b, step, x.type.dtype)
        one = filled(b, 1, count)
        rest = [b(Sub(), one, b(Pow(), like(b, base, step, x), count))
                for base in (self.alpha, self.beta)]  # fmt: skip
        begun = b(Greater(), step, filled(b, 0, step))
        divisor = b(Where(), begun, rest[0], one)  # not 0, where gradients would be 0 times that
        sooner = b(Div(), b(Mul(), rate, b(Sqrt(), rest[1])), divisor)
        rate = b(Where(), begun, sooner, rate)
        root = b(Sqrt(), h)
        share = b(Div(), v, b(Add(), root, filled(b, self.epsilon, root)))
        y = b(Sub(), x, b(Mul(), spread_to(b, rate, x), share))
        return times(b, 1 - self.decay_after, y) if self.decay_after else y, v, h

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), *updates("f32", 0, 4)
        yield cls(0.95, 0.9, 1e-3, 0.1, 0.01), *updates("f32", 7, 4)
        yield cls(), *updates("f64", 7, 4)


def check_update(op: Op, rate: TensorType, step: TensorType, *xs: TensorType) -> None:
    """Raise TypeRuleError unless rate and step are scalars and the rest are of one type."""
    check_dtype(op, "x", xs[0], WIDE)
    check_dtype(op, "step", step, INTS)
    if rate != xs[0].with_shape(()) or step.shape != ():
        raise TypeRuleError(
            f"{op.name}: rate is {rate} and step is {step}, expected scalars, the rate of "
            f"{xs[0].dtype}"
        )
    if any(x != xs[0] for x in xs):
        raise TypeRuleError(
            f"{op.name}: operands are {', '.join(map(str, xs))}, expected equal types"
        )


def updates(dtype: str, step: int, count: int) -> tuple[Any, ...]:
    """Return operands of an optimizer; the last is a sum of squares, and so not negative."""
    kind = TensorType(dtype, ()).numpy
    squares = np.linspace(0.5, 4, 15).reshape(3, 5).astype(kind)
    rate = np.asarray(0.125, kind)
    return rate, np.asarray(step), *[f"{dtype}[3,5]"] * (count - 1), squares


def regular(b: Graph, decay: float, x: Value, g: Value) -> Value:
    """Return the gradient plus decay · x, the gradient of decay/2 · x²."""
    return b(Add(), g, times(b, decay, x)) if decay else g


def weighted(b: Graph, share: float, old: Value, new: Value) -> Value:
    """Return share · old + (1 - share) · new."""
    return b(Add(), times(b, share, old), times(b, 1 - share, new))


def times(b: Graph, factor: float, x: Value) -> Value:
    return b(Mul(), x, filled(b, factor, x))


def like(b: Graph, value: float, shape: Value, dtype: Value) -> Value:
    """Return a number in the shape of one value and of the element type of another."""
    one = b.constant(np.asarray(value, dtype.type.numpy))
    return b(Broadcast(shape.type.shape), one) if shape.type.rank else one


def spread_to(b: Graph, x: Value, to: Value) -> Value:
    """Return a scalar in the shape of another value."""
    return b(Broadcast(to.type.shape), x)
