"""Converters for normalisations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ops.normalize import BatchNorm, GroupNorm, LayerNorm, RMSNorm


def filled(s: Site, value: Value | None, number: float, extent: Dim, dtype: str) -> Value:
    """Return a parameter by channel, or a constant where it is absent."""
    if value is not None:
        return value
    return s.spread(s.constant(number, dtype), (extent,))


@on("aten._native_batch_norm_legit_no_training.default")
def batch_norm_core(
    s: Site, input: Value, weight: Value | None, bias: Value | None, running_mean: Value,
    running_var: Value, momentum: float, eps: float,
) -> Made:  # fmt: skip
    y = normalized(s, input, weight, bias, running_mean, running_var, eps)
    empty = s.g.constant(np.zeros(0, np.float32))
    return [y, empty, empty]


@on("aten.batch_norm.default")
def batch_norm(
    s: Site, input: Value, weight: Value | None, bias: Value | None, running_mean: Value | None,
    running_var: Value | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Made:  # fmt: skip
    if training or running_mean is None or running_var is None:
        raise UnsupportedError("batch norm in training")
    return normalized(s, input, weight, bias, running_mean, running_var, eps)


def normalized(
    s: Site, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value,
    eps: float,
) -> Value:  # fmt: skip
    """Return x normalised by statistics that are given."""
    channels = x.type.shape[1]
    scale = filled(s, weight, 1.0, channels, mean.type.dtype)
    shift = filled(s, bias, 0.0, channels, mean.type.dtype)
    return s.g(BatchNorm(float(eps)), x, scale, shift, mean, variance)


@on("aten.layer_norm.default")
def layer_norm(
    s: Site, input: Value, normalized_shape: Sequence[Dim], weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enable: bool = True,
) -> Made:  # fmt: skip
    axis = input.type.rank - len(normalized_shape)
    scale = weight
    if bias is not None and weight is None:
        scale = s.spread(s.constant(1.0, bias.type.dtype), bias.type.shape)
    return s.g(LayerNorm(axis, float(eps)), input, scale, bias)


@on("aten.group_norm.default")
def group_norm(
    s: Site, input: Value, num_groups: int, weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Made:  # fmt: skip
    channels, dtype = input.type.shape[1], input.type.dtype
    scale = filled(s, weight, 1.0, channels, dtype)
    shift = filled(s, bias, 0.0, channels, dtype)
    return s.g(GroupNorm(num_groups, float(eps)), input, scale, shift)


@on("aten.rms_norm.default")
def rms_norm(
    s: Site, input: Value, normalized_shape: Sequence[Dim], weight: Value | None = None,
    eps: float | None = None,
) -> Made:  # fmt: skip
    axis = input.type.rank - len(normalized_shape)
    epsilon = float(np.finfo(input.type.numpy).eps) if eps is None else float(eps)
    dtype = input.type.dtype
    scale = weight or s.spread(s.constant(1.0, dtype), input.type.shape[axis:])
    return s.g(RMSNorm(axis, epsilon), input, scale)
