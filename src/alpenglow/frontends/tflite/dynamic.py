"""Dynamic quantization: float operands that LiteRT quantizes at run time for quantized weights.

Each row or image has a grid of its own, which follows from its least and its greatest element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpenglow.frontends.tflite.quantised import whole
from alpenglow.frontends.tflite.table import Site
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import (
    Abs,
    Add,
    Clip,
    Div,
    Maximum,
    Minimum,
    Mul,
    Round,
    Sub,
)
from alpenglow.ops.elementwise.comparison import Equal, Greater, Less
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.quantized.quantize import Requantize, bounds
from alpenglow.ops.reduction.reduction import ReduceMax, ReduceMin
from alpenglow.ops.tensor.movement import stretch

LOW, HIGH = map(int, bounds("i8"))


@dataclass(frozen=True, slots=True)
class Measured:
    """i8 steps of the reals (steps - zero) * scale; scale and zero have extent 1 on the axes."""

    steps: Value
    scale: Value
    zero: Value


def measured(s: Site, x: Value, axes: Sequence[int], way: str) -> Measured:
    """Return floats quantized by their range along axes.

    The `way` is xnnpack's, or one of LiteRT's own kernels, symmetric or asymmetric.
    """
    return {"xnnpack": _even, "symmetric": _symmetric, "asymmetric": _asymmetric}[way](s, x, axes)


def own(asymmetric: bool) -> str:
    """Return the way of LiteRT's own kernels."""
    return "asymmetric" if asymmetric else "symmetric"


def stood_for(s: Site, m: Measured) -> Value:
    """Return the dequantized floats."""
    steps = s.cast(m.steps, "f32")
    if m.zero.array is None:
        steps = s.g(Sub(), steps, stretch(s.g, s.cast(m.zero, "f32"), steps.type.shape))
    return s.g(Mul(), steps, stretch(s.g, m.scale, steps.type.shape))


def _symmetric(s: Site, x: Value, axes: Sequence[int]) -> Measured:
    """The largest element becomes 127, or -127; halves go away from zero."""
    reach = s.g(ReduceMax(tuple(axes), True), s.g(Abs(), x))
    none = s.g(Equal(), reach, s.filled(0, reach))
    most = s.filled(HIGH, reach)
    scale = s.g(Where(), none, s.filled(1, reach), s.g(Div(), reach, most))
    factor = s.g(Where(), none, s.filled(0, reach), s.g(Div(), most, reach))
    near = whole(s, s.g(Mul(), x, stretch(s.g, factor, x.type.shape)))
    steps = s.g(Maximum(), s.g(Minimum(), near, s.filled(HIGH, near)), s.filled(-HIGH, near))
    return Measured(s.cast(steps, "i8"), scale, s.g.constant(np.int8(0)))


def _asymmetric(s: Site, x: Value, axes: Sequence[int]) -> Measured:
    """The range of x and 0 is from -128 to 127; halves go away from zero.

    The zero point follows from the range in f64, the scale in f32.
    """
    least, most = _range(s, x, axes)
    low, high = s.cast(least, "f64"), s.cast(most, "f64")
    none = s.g(Equal(), low, high)
    width = s.g(Div(), s.g(Sub(), high, low), s.filled(HIGH - LOW, low))
    width = s.g(Where(), none, s.filled(1, width), width)
    below, above = (s.g(Div(), v, width) for v in (low, high))
    from_low = s.g(Sub(), s.filled(LOW, below), below)
    from_high = s.g(Sub(), s.filled(HIGH, above), above)
    errors = (s.g(Add(), s.filled(abs(n), v), s.g(Abs(), v))
              for n, v in ((LOW, below), (HIGH, above)))  # fmt: skip
    exact = s.g(Where(), s.g(Less(), *errors), from_low, from_high)
    zero = whole(s, s.g(Clip(float(LOW), float(HIGH)), exact))
    zero = s.g(Where(), none, s.filled(0, zero), zero)
    scale = s.g(Div(), s.g(Sub(), most, least), s.filled(HIGH - LOW, most))
    scale = s.g(Where(), none, s.filled(1, scale), scale)
    factor = s.g(Div(), s.filled(1, scale), scale)
    near = whole(s, s.g(Mul(), x, stretch(s.g, factor, x.type.shape)))
    near = s.g(Add(), near, stretch(s.g, zero, x.type.shape))
    steps = s.g(Maximum(), s.g(Minimum(), near, s.filled(HIGH, near)), s.filled(LOW, near))
    return Measured(s.cast(steps, "i8"), scale, s.cast(zero, "i8"))


def _even(s: Site, x: Value, axes: Sequence[int]) -> Measured:
    """The range of x and 0 is from -128 to 127, in f32; halves go to even."""
    low, high = _range(s, x, axes)
    width = s.g(Sub(), high, low)
    none = s.g(Equal(), width, s.filled(0, width))
    one = s.filled(1, width)
    factor = s.g(Where(), none, one, s.g(Div(), s.filled(HIGH - LOW, width), width))
    below, above = (s.g(Mul(), v, factor) for v in (low, high))
    least, most = s.filled(LOW, below), s.filled(HIGH, above)
    error = s.g(Add(), s.g(Add(), least, below), s.g(Add(), most, above))
    exact = s.g(Where(), s.g(Greater(), error, s.filled(0, error)),
                s.g(Sub(), least, below), s.g(Sub(), most, above))  # fmt: skip
    zero = s.cast(s.g(Round(), s.g(Clip(float(LOW), float(HIGH)), exact)), "i8")
    wide = (stretch(s.g, v, x.type.shape) for v in (factor, zero))
    return Measured(s.g(Requantize("i8", LOW, HIGH), x, *wide), s.g(Div(), one, factor), zero)


def _range(s: Site, x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """Return the least and the greatest of x and 0."""
    low, high = s.g(ReduceMin(tuple(axes), True), x), s.g(ReduceMax(tuple(axes), True), x)
    return s.g(Minimum(), low, s.filled(0, low)), s.g(Maximum(), high, s.filled(0, high))
