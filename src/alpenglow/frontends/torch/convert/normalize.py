"""Converters for normalisations, with the statistics that training keeps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.numbers import wide
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul, Reciprocal, Sub
from alpenglow.ops.elementwise.transcendental import Sqrt
from alpenglow.ops.reduction.layer_norm import LayerNorm, RMSNorm
from alpenglow.ops.reduction.normalize import BatchNorm, GroupNorm, InstanceNorm
from alpenglow.ops.reduction.reduction import ReduceMean
from alpenglow.ops.tensor.movement import Broadcast


def filled(s: Site, value: Value | None, number: float, extent: Dim, dtype: str) -> Value:
    """Return a parameter by channel in an element type, or a constant where it is absent."""
    if value is not None:
        return s.cast(value, dtype)
    return s.spread(s.constant(number, dtype), (extent,))


def moments(s: Site, x: Value, axes: tuple[int, ...]) -> tuple[Value, Value]:
    """Return the mean and the variance of the population along axes, which stay."""
    y = s.cast(x, wide(x.type.dtype))
    mean = s.g(ReduceMean(axes), y)
    centred = s.g(Sub(), y, s.g(Broadcast(y.type.shape), mean))
    return mean, s.g(ReduceMean(axes), s.g(Mul(), centred, centred))


def inverse_root(s: Site, variance: Value, eps: float) -> Value:
    """Return one over the deviation."""
    shifted = s.g(Add(), variance, s.filled(float(eps), variance.type))
    return s.g(Reciprocal(), s.g(Sqrt(), shifted))


def saved(s: Site, first: int, *values: Value) -> list[Value | None]:
    """Return statistics as PyTorch states results from `first` on, None for unread ones."""
    return [s.reshaped(s.cast(v, s.stated(i).dtype), s.stated(i).shape) if s.is_read(i) else None
            for i, v in enumerate(values, first)]  # fmt: skip


# ── by channel ──


@on("aten._native_batch_norm_legit_no_training.default")
def batch_norm_core(
    s: Site, input: Value, weight: Value | None, bias: Value | None, running_mean: Value,
    running_var: Value, momentum: float, eps: float,
) -> Made:  # fmt: skip
    y = normalized(s, input, weight, bias, running_mean, running_var, eps)
    return [y, *(s.filled(0, s.stated(i)) if s.is_read(i) else None for i in (1, 2))]


@on("aten.batch_norm.default")
def batch_norm(
    s: Site, input: Value, weight: Value | None, bias: Value | None, running_mean: Value | None,
    running_var: Value | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Made:  # fmt: skip
    if not training and running_mean is not None and running_var is not None:
        return normalized(s, input, weight, bias, running_mean, running_var, eps)
    if running_mean is not None or running_var is not None:
        raise UnsupportedError("training with running statistics is not supported; "
                               "try: exported_program.run_decompositions()")  # fmt: skip
    return trained(s, input, weight, bias, eps)[0]


@on("aten._native_batch_norm_legit.no_stats")
def batch_norm_without(
    s: Site, input: Value, weight: Value | None, bias: Value | None, training: bool,
    momentum: float, eps: float,
) -> Made:  # fmt: skip
    single = input.type.shape[0] == 1 and input.type.rank > 2
    if single and not s.is_read(1) and not s.is_read(2):
        channels, dtype = input.type.shape[1], input.type.dtype
        scale = filled(s, weight, 1.0, channels, dtype)
        shift = filled(s, bias, 0.0, channels, dtype)
        return [s.g(InstanceNorm(float(eps)), input, scale, shift), None, None]
    y, mean, variance = trained(s, input, weight, bias, eps)
    return [y, *saved(s, 1, mean, inverse_root(s, variance, eps))]


@on("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    s: Site, input: Value, weight: Value | None, bias: Value | None, running_mean: Value,
    running_var: Value, training: bool, momentum: float, eps: float,
) -> Made:  # fmt: skip
    if not training:
        y = normalized(s, input, weight, bias, running_mean, running_var, eps)
        empty = (s.filled(0, s.stated(i)) if s.is_read(i) else None for i in (1, 2))
        return [y, *empty, *saved(s, 3, running_mean, running_var)]
    y, mean, variance = trained(s, input, weight, bias, eps)
    over = saved(s, 2, inverse_root(s, variance, eps)) if s.is_read(2) else [None]
    moved = moved_towards(s, running_mean, mean, momentum)
    unbiased = s.g(Mul(), variance, bias_of(s, input, variance))
    spread = moved_towards(s, running_var, unbiased, momentum)
    return [y, *saved(s, 1, mean), *over, *saved(s, 3, moved, spread)]


def normalized(
    s: Site, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value,
    eps: float,
) -> Value:  # fmt: skip
    """Return x normalised by statistics that are given."""
    channels = x.type.shape[1]
    scale = filled(s, weight, 1.0, channels, mean.type.dtype)
    shift = filled(s, bias, 0.0, channels, mean.type.dtype)
    return s.g(BatchNorm(float(eps)), x, scale, shift, mean, variance)


def trained(
    s: Site, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """Return x normalised by its own statistics, and these: mean and variance by channel."""
    channels = (x.type.shape[1],)
    axes = (0, *range(2, x.type.rank))
    mean, variance = (s.reshaped(v, channels) for v in moments(s, x, axes))
    return normalized(s, x, weight, bias, mean, variance, eps), mean, variance


def bias_of(s: Site, x: Value, like: Value) -> Value:
    """Return n / (n - 1) for the n elements that a channel of x has."""
    count = s.extent(product((x.type.shape[0], *x.type.shape[2:])), like.type.dtype)
    one = s.constant(1.0, like.type.dtype)
    ratio = s.g(Div(), count, s.g(Sub(), count, one))
    return s.broadcast(ratio, shape=like.type.shape)[0]


def moved_towards(s: Site, old: Value, new: Value, momentum: float) -> Value:
    """Return statistics that have moved a share of the way to new ones."""
    wide_old = s.cast(old, new.type.dtype)
    kept = s.g(Mul(), wide_old, s.filled(1 - momentum, new.type))
    return s.cast(s.g(Add(), kept, s.g(Mul(), new, s.filled(momentum, new.type))), old.type.dtype)


# ── by sample ──


@on("aten.layer_norm.default")
def layer_norm(
    s: Site, input: Value, normalized_shape: Sequence[Dim], weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enable: bool = True,
) -> Made:  # fmt: skip
    axis = input.type.rank - len(normalized_shape)
    dtype = computed_in(input, weight, bias)
    scale = None if weight is None else s.cast(weight, dtype)
    shift = None if bias is None else s.cast(bias, dtype)
    if shift is not None and scale is None:
        scale = s.spread(s.constant(1.0, dtype), shift.type.shape)
    y = s.g(LayerNorm(axis, float(eps)), s.cast(input, dtype), scale, shift)
    return s.cast(y, input.type.dtype)


def computed_in(x: Value, *parameters: Value | None) -> str:
    """Return the element type of x and its parameters, a wider one if theirs are others."""
    dtype = x.type.dtype
    mixed = any(v is not None and v.type.dtype != dtype for v in parameters)
    return wide(dtype) if mixed else dtype


@on("aten.native_layer_norm.default")
def native_layer_norm(
    s: Site, input: Value, normalized_shape: Sequence[Dim], weight: Value | None,
    bias: Value | None, eps: float,
) -> Made:  # fmt: skip
    y = layer_norm(s, input, normalized_shape, weight, bias, eps)
    assert isinstance(y, Value), "a layer norm has one result"
    axes = tuple(range(input.type.rank - len(normalized_shape), input.type.rank))
    return [y, *statistics(s, input, axes, eps)]


def statistics(s: Site, x: Value, axes: tuple[int, ...], eps: float) -> list[Value | None]:
    """Return the second and third result: the mean, and one over the deviation, where read."""
    if not s.is_read(1) and not s.is_read(2):
        return [None, None]
    mean, variance = moments(s, x, axes)
    return saved(s, 1, mean, inverse_root(s, variance, eps))


@on("aten.group_norm.default")
def group_norm(
    s: Site, input: Value, num_groups: int, weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Made:  # fmt: skip
    dtype = computed_in(input, weight, bias)
    channels = input.type.shape[1]
    scale = filled(s, weight, 1.0, channels, dtype)
    shift = filled(s, bias, 0.0, channels, dtype)
    y = s.g(GroupNorm(num_groups, float(eps)), s.cast(input, dtype), scale, shift)
    return s.cast(y, input.type.dtype)


@on("aten.native_group_norm.default")
def native_group_norm(
    s: Site, input: Value, weight: Value | None, bias: Value | None, N: Dim, C: Dim, HxW: Dim,
    group: int, eps: float,
) -> Made:  # fmt: skip
    y = group_norm(s, input, group, weight, bias, eps)
    assert isinstance(y, Value), "a group norm has one result"
    channels = input.type.shape[1]
    rows = s.reshaped(input, (N, group, channels // group * product(input.type.shape[2:])))
    return [y, *statistics(s, rows, (2,), eps)]


# ── by the mean square ──


def epsilon_of(x: Value, eps: float | None) -> float:
    """Return the epsilon of a mean square: by default the distance from 1 to the next number."""
    if eps is not None:
        return float(eps)
    dtype = DTYPES[x.type.dtype]
    return float(np.nextafter(dtype.type(1), dtype.type(2)) - dtype.type(1))


@on("aten.rms_norm.default")
def rms_norm(
    s: Site, input: Value, normalized_shape: Sequence[Dim], weight: Value | None = None,
    eps: float | None = None,
) -> Made:  # fmt: skip
    axis = input.type.rank - len(normalized_shape)
    epsilon = epsilon_of(input, eps)
    dtype = computed_in(input, weight)
    shape = input.type.shape[axis:]
    scale = s.spread(s.constant(1.0, dtype), shape) if weight is None else s.cast(weight, dtype)
    return s.cast(s.g(RMSNorm(axis, epsilon), s.cast(input, dtype), scale), s.result.dtype)


@on("aten._fused_rms_norm.default")
def fused_rms_norm(
    s: Site, input: Value, normalized_shape: Sequence[int], weight: Value | None,
    eps: float | None,
) -> Made:  # fmt: skip
    y = rms_norm(s, input, normalized_shape, weight, eps)
    assert isinstance(y, Value), "a norm has one result"
    if not s.is_read(1):
        return [y, None]
    axes = tuple(range(input.type.rank - len(normalized_shape), input.type.rank))
    x = s.cast(input, wide(input.type.dtype))
    epsilon = epsilon_of(input, eps)
    square = s.g(ReduceMean(axes), s.g(Mul(), x, x))
    return [y, *saved(s, 1, inverse_root(s, square, epsilon))]
