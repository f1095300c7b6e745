"""Nets in other numbers and with other norms, in ensembles, and with numbers that are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox
import flax.linen as nn
import jax
import jax.numpy as jnp
from tests.frontends.stablehlo.jaxlib.nets.made import (
    HALVES,
    KEY,
    Case,
    eqx,
    flax,
    normal,
    stirred,
)

IMAGE = normal(2, 16, 16, 3)
SEQUENCE = normal(2, 7, 32)
SEED = jnp.array([3, 5], jnp.uint32)


class Layer(nn.Module):
    dtype: Any

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.LayerNorm(dtype=self.dtype)(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=4, dtype=self.dtype)(y, y)
        y = nn.gelu(nn.Dense(64, dtype=self.dtype)(nn.LayerNorm(dtype=self.dtype)(x)))
        return x + nn.Dense(32, dtype=self.dtype)(y)


class Convolutions(nn.Module):
    dtype: Any
    norm: Any = nn.BatchNorm

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(8, (3, 3), dtype=self.dtype)(x)
        kept = {"use_running_average": True} if self.norm is nn.BatchNorm else {}
        x = nn.relu(self.norm(dtype=self.dtype, **kept)(x))
        return nn.Dense(10, dtype=self.dtype)(nn.max_pool(x, (2, 2), (2, 2)).mean((1, 2)))


class Dropped(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dropout(0.5, deterministic=False)(nn.relu(nn.Dense(64)(x)))
        return nn.Dropout(0.2, broadcast_dims=(1,), deterministic=False)(nn.Dense(16)(x))


class Spectral(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.SpectralNorm(nn.Conv(8, (3, 3), 2))(x, update_stats=False))
        return nn.SpectralNorm(nn.Dense(4))(x.mean((1, 2)), update_stats=False)


def halves(net: nn.Module, x: Any, dtype: Any) -> Case:
    """Return a net whose variables and inputs are halves."""
    variables = stirred(net.init(KEY, x))
    narrow = jax.tree.map(lambda v: v.astype(dtype), variables)
    return lambda v, x: net.apply(v, x), (narrow, x.astype(dtype)), HALVES


def mixed(net: nn.Module, x: Any) -> Case:
    """Return a net that computes in halves with variables that are none."""
    function, args = flax(net, x)[:2]
    return function, args, HALVES


def dropped() -> Case:
    net = Dropped()
    variables = net.init({"params": KEY, "dropout": KEY}, SEQUENCE)
    return (
        lambda v, x, s: net.apply(v, x, rngs={"dropout": jax.random.wrap_key_data(s)}),
        (variables, SEQUENCE, SEED),
    )


def counted(net: nn.Module) -> Case:
    """Return a net that also says how the mean and variance of what it has seen have moved."""
    x = IMAGE
    variables = stirred(net.init(KEY, x))
    return lambda v, x: net.apply(v, x, mutable=["batch_stats"]), (variables, x)


class Training(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.BatchNorm(use_running_average=False)(nn.Conv(8, (3, 3))(x))
        return nn.relu(nn.BatchNorm(use_running_average=False, momentum=0.9)(x))


def ensemble() -> Case:
    net = Layer(jnp.float32)
    keys = jax.random.split(KEY, 4)
    variables = jax.vmap(lambda k: net.init(k, SEQUENCE))(keys)

    def run(v: Any, x: Any) -> Any:
        each = jax.vmap(net.apply, (0, None))(v, x)
        return each.mean(0), each.var(0)

    return run, (variables, SEQUENCE)


def ensemble_of_equinox() -> Case:
    keys = jax.random.split(KEY, 3)
    nets = equinox.filter_vmap(lambda k: equinox.nn.MLP(8, 4, 16, 2, key=k))(keys)
    arrays, rest = equinox.partition(nets, equinox.is_inexact_array)

    def run(arrays: Any, x: Any) -> Any:
        nets = equinox.combine(arrays, rest)
        axes = equinox.if_array(0), None
        return equinox.filter_vmap(lambda net, x: jax.vmap(net)(x), in_axes=axes)(nets, x)

    return run, (arrays, normal(5, 8))


def images() -> Case:
    a, b, c = jax.random.split(KEY, 3)
    net = equinox.nn.Sequential(
        [equinox.nn.Conv2d(3, 8, 3, 2, 1, key=a), equinox.nn.GroupNorm(2, 8),
         equinox.nn.Lambda(equinox.nn.PReLU()), equinox.nn.ConvTranspose2d(8, 4, 4, 2, 1, key=b),
         equinox.nn.Lambda(jax.nn.mish), equinox.nn.AvgPool2d(2, 2),
         equinox.nn.Lambda(jnp.ravel), equinox.nn.Linear(324, 5, key=c)]
    )  # fmt: skip
    return eqx(net, IMAGE.transpose(0, 3, 1, 2))


def weight_norm() -> Case:
    net = equinox.nn.Sequential(
        [equinox.nn.WeightNorm(equinox.nn.Linear(32, 16, key=KEY)),
         equinox.nn.Lambda(jax.nn.celu), equinox.nn.RMSNorm(16)]
    )  # fmt: skip
    return eqx(net, SEQUENCE[0])


NETS: dict[str, Callable[[], Case]] = {
    "attention_bf16": lambda: halves(Layer(jnp.bfloat16), SEQUENCE, jnp.bfloat16),
    "attention_f16": lambda: halves(Layer(jnp.float16), SEQUENCE, jnp.float16),
    "convolutions_bf16": lambda: halves(Convolutions(jnp.bfloat16), IMAGE, jnp.bfloat16),
    "convolutions_f16": lambda: halves(Convolutions(jnp.float16), IMAGE, jnp.float16),
    "mixed_bf16": lambda: mixed(Layer(jnp.bfloat16), SEQUENCE),
    "instance_norm": lambda: flax(Convolutions(jnp.float32, nn.InstanceNorm), IMAGE),
    "dropout": dropped,
    "spectral_norm": lambda: flax(Spectral(), IMAGE),
    "batch_norm_trained": lambda: counted(Training()),
    "ensemble": ensemble,
    "ensemble_of_equinox": ensemble_of_equinox,
    "images_of_equinox": images,
    "weight_norm": weight_norm,
}
