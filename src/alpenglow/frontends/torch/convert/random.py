"""Converters for random numbers: those that PyTorch draws on a CPU from the same state.

The state of the generator is a variable of the graph, and each call goes on from where the one
before it has come to.  What PyTorch leaves to Intel's MKL, on Intel's processors alone (`bernoulli`
by one share, `dropout` with it, and `exponential`), are the numbers that it draws on others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from alpenglow.autodiff import stop_gradient
from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch.table import Converter, Made, Site, axis_of, dynamic, on
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES, FLOATS, HALVES
from alpenglow.ops.elementwise.activation import LeakyRelu
from alpenglow.ops.elementwise.arithmetic import Add, Ceil, Div, Mul, Sub
from alpenglow.ops.elementwise.comparison import Less, LessOrEqual
from alpenglow.ops.elementwise.logarithm import Log1p
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Exp, Log, Tan
from alpenglow.ops.random.mersenne import (
    BLOCK,
    MersenneInteger,
    MersenneNormal,
    MersennePermutation,
    MersenneUniform,
    MersenneUniformWhere,
)
from alpenglow.ops.reduction.reduction import ArgMax, ReduceSum
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.tensor.movement import stretch
from alpenglow.ops.tensor.order import TopK

DRAWS: set[str] = set()
"""The operators that draw random numbers."""


def draws(*targets: str) -> Callable[[Converter], Converter]:
    """Register the decorated converter for operators that draw random numbers."""
    DRAWS.update(targets)
    return on(*targets)


# ── uniform and normal ──


@draws("aten.rand.default", "aten.rand_like.default", "aten.uniform.default")
def uniform(
    s: Site, x: Value | None = None, size: Sequence[Dim] = (), from_: float = 0.0,
    to: float = 1.0, dtype: str | None = None,
) -> Made:  # fmt: skip
    """Uniform numbers of the result's type; what rounding makes the end is the beginning."""
    y = s.draw(MersenneUniform(s.result.shape, in_floats(s)))
    kind: Any = DTYPES[s.result.dtype].type
    bounds = [float(kind(b)) for b in (from_, to)]
    y = s.cast(moved(s, y, bounds[0], bounds[1] - bounds[0]), s.result.dtype)
    first, end = (s.filled(b, y.type) for b in bounds)
    return s.g(Where(), s.g(Less(), y, end), y, first)


def in_floats(s: Site) -> str:
    """Return the element type that the result is drawn in."""
    if s.result.dtype not in FLOATS:
        raise UnsupportedError(f"dtype is {s.result.dtype}, expected a float dtype")
    return "f64" if s.result.dtype == "f64" else "f32"


def moved(s: Site, x: Value, offset: float, factor: float) -> Value:
    """Return factor x + offset."""
    y = x if factor == 1 else s.g(Mul(), x, s.filled(factor, x.type))
    return y if offset == 0 else s.g(Add(), y, s.filled(offset, y.type))


@draws("aten.randn.default", "aten.randn_like.default", "aten.normal_functional.default",
       "aten.normal.float_float")  # fmt: skip
def normal(
    s: Site, x: Value | None = None, mean: float = 0.0, std: float = 1.0,
    size: Sequence[Dim] = (), dtype: str | None = None,
) -> Made:  # fmt: skip
    return normal_of(s, mean, std)


@draws("aten.normal.Tensor_float")
def normal_about(s: Site, mean: Value, std: float = 1.0) -> Made:
    fixed = stop_gradient(s.g, mean)  # PyTorch says that a drawn number has no gradient
    return s.apply(Add(), normal_of(s, 0.0, std), fixed, dtype=s.result.dtype)


@draws("aten.normal.float_Tensor", "aten.normal.Tensor_Tensor")
def normal_by(s: Site, mean: Value | float, std: Value) -> Made:
    y = s.apply(Mul(), normal_of(s, 0.0, 1.0), stop_gradient(s.g, std), dtype=s.result.dtype)
    fixed = stop_gradient(s.g, mean) if isinstance(mean, Value) else mean
    return s.apply(Add(), y, fixed, dtype=s.result.dtype)


def normal_of(s: Site, mean: float, std: float) -> Value:
    """Return normal numbers of the result's type: fewer than a block are made in pairs, as f64."""
    dtype, count = in_floats(s), product(s.result.shape)
    if not known(count):
        raise dynamic("a normal distribution")
    pairs = count < BLOCK
    redrawn = s.result.dtype not in HALVES
    op = MersenneNormal(s.result.shape, "f64" if pairs else dtype, pairs, redrawn)
    return s.cast(moved(s, s.draw(op), mean, std), s.result.dtype)


# ── integers ──


@draws("aten.randint.default", "aten.randint.low")
def randint(
    s: Site, high: Dim, size: Sequence[Dim], low: Dim = 0, dtype: str | None = "i64"
) -> Made:
    return randint_like(s, None, high, low)


@draws("aten.randint_like.default", "aten.randint_like.low_dtype")
def randint_like(
    s: Site, x: Value | None, high: Dim, low: Dim = 0, dtype: str | None = None
) -> Made:
    """Integers in a range as the result's element type."""
    if not known(low) or not known(high):
        raise dynamic("low or high")
    return s.cast(s.draw(MersenneInteger(s.result.shape, low, high)), s.result.dtype)


@draws("aten.randperm.default")
def randperm(s: Site, n: Dim, dtype: str | None = "i64") -> Made:
    return s.cast(s.draw(MersennePermutation(s.result.shape[0])), s.result.dtype)


# ── truths ──


@draws("aten.bernoulli.default", "aten.bernoulli.Tensor")
def bernoulli(s: Site, x: Value, p: Value | None = None) -> Made:
    """1 as often as each of the shares says, otherwise 0."""
    shares = x if p is None else p
    dtype = "f64" if shares.type.dtype == "f64" else "f32"
    numbers = s.draw(MersenneUniform(s.result.shape, dtype))
    (limits,) = s.broadcast(s.cast(shares, dtype))
    return s.cast(s.g(Less(), numbers, limits), s.result.dtype)


@draws("aten.bernoulli.p")
def bernoulli_share(s: Site, x: Value, p: float) -> Made:
    return s.cast(truths(s, p), s.result.dtype)


def truths(s: Site, share: float) -> Value:
    """Return truths in the shape of the result, so many of which hold."""
    numbers = s.draw(MersenneUniform(s.result.shape, "f64"))
    return s.g(Less(), numbers, s.filled(float(share), numbers.type))


@draws("aten.native_dropout.default")
def dropout(s: Site, input: Value, p: float, train: bool | None) -> Made:
    if train is False:
        return [input, s.filled(1, input.type.with_dtype("bool"))]
    kept = truths(s, 1.0 - p)
    scale = s.filled(0.0 if p == 1 else 1.0 / (1.0 - p), input.type)
    y = s.g(Mul(), input, s.cast(kept, input.type.dtype))
    return [s.g(Mul(), y, scale), kept]


@draws("aten.rrelu_with_noise_functional.default")
def rrelu(
    s: Site, x: Value, noise: Value, lower: float = 0.125, upper: float = 0.3333333333333333,
    training: bool = False,
) -> Made:  # fmt: skip
    """Elements that are not above 0 are multiplied by random slopes, or by the mean of all.

    A number is drawn for each of these alone, and kept as noise, which is 1 for the others.
    """
    if not training:
        return [s.g(LeakyRelu((float(lower) + float(upper)) / 2), x), noise]
    is_changed = s.g(LessOrEqual(), x, s.filled(0, x.type))
    numbers = s.draw(MersenneUniformWhere(), is_changed)
    slopes = s.cast(moved(s, numbers, lower, float(upper) - float(lower)), x.type.dtype)
    slopes = s.g(Where(), is_changed, slopes, s.filled(1, slopes.type))
    return [s.g(Mul(), x, slopes), s.cast(slopes, noise.type.dtype)]


# ── other distributions ──


def numbers_of(s: Site) -> Value:
    """Return uniform numbers in the shape of the result, f64."""
    return s.draw(MersenneUniform(s.result.shape, "f64"))


@draws("aten.exponential.default")
def exponential(s: Site, x: Value, lambd: float = 1.0) -> Made:
    return exponentials(s, s.result.shape, s.result.dtype, lambd)


def exponentials(s: Site, shape: tuple[Dim, ...], dtype: str, rate: float) -> Value:
    """Return exponentially distributed numbers."""
    u = s.draw(MersenneUniform(shape, "f64"))
    logs = s.g(Log1p(), s.g(Sub(), s.filled(0.0, u.type), u))
    return s.cast(s.g(Mul(), logs, s.filled(-1.0 / rate, u.type)), dtype)


@draws("aten.geometric.default")
def geometric(s: Site, x: Value, p: float) -> Made:
    logs = s.g(Log(), numbers_of(s))
    failing = s.g(Log1p(), s.filled(-p, logs.type))
    return s.cast(s.g(Ceil(), s.g(Div(), logs, failing)), s.result.dtype)


@draws("aten.cauchy.default")
def cauchy(s: Site, x: Value, median: float = 0.0, sigma: float = 1.0) -> Made:
    u = moved(s, numbers_of(s), -0.5, 1.0)
    tangents = s.g(Tan(), s.g(Mul(), u, s.filled(math.pi, u.type)))
    return s.cast(moved(s, tangents, median, sigma), s.result.dtype)


@draws("aten.log_normal.default")
def log_normal(s: Site, x: Value, mean: float = 1.0, std: float = 2.0) -> Made:
    y = s.draw(MersenneNormal(s.result.shape, "f64", True))
    return s.cast(s.g(Exp(), moved(s, y, mean, std)), s.result.dtype)


@draws("aten.multinomial.default")
def multinomial(s: Site, x: Value, num_samples: Dim, replacement: bool = False) -> Made:
    axis = axis_of(-1, x.type.rank)
    if replacement and num_samples != 1:
        return with_replacement(s, x, axis)
    shares = s.g(Div(), x, exponentials(s, x.type.shape, x.type.dtype, 1.0))
    if num_samples == 1:
        return s.g(ArgMax(axis, True), shares)
    return s.g.add(TopK(axis, num_samples), [shares]).results[1]


def with_replacement(s: Site, x: Value, axis: int) -> Value:
    """Return where random numbers fall among the running totals of shares."""
    u, extent = numbers_of(s), x.type.shape[-1]
    totals = s.g(CumSum(axis), x)
    whole = s.g(ReduceSum((axis,)), x)
    limits = s.cast(s.g(Div(), totals, stretch(s.g, whole, x.type.shape)), "f64")
    *outer, count = s.result.shape
    shape = (*outer, count, extent)
    a = stretch(s.g, s.reshaped(limits, (*outer, 1, extent)), shape)
    b = stretch(s.g, s.reshaped(u, (*outer, count, 1)), shape)
    before = s.cast(s.g(Less(), a, b), "i64")
    return s.g(ReduceSum((len(shape) - 1,), False), before)
