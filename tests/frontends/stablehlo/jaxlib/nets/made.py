"""How a net becomes a program with arguments: what it has learnt is one of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox
import flax.linen as nn
import jax
import jax.numpy as jnp

Function = Callable[..., Any]
Case = tuple[Function, tuple[Any, ...]] | tuple[Function, tuple[Any, ...], float]
"""A function, its arguments, and by how much results may differ if not by what others may."""

KEY = jax.random.key(0)

HALVES = 3e-2
"""By how much what is computed in halves may differ: a sum of a dozen is rounded elsewhere."""


def normal(*shape: int, seed: int = 0) -> jax.Array:
    """Return numbers that are the same in each run."""
    return jax.random.normal(jax.random.fold_in(KEY, seed), shape)


def stirred(variables: Any) -> Any:
    """Return variables of which none is only zeros or ones, so that leaving one out is seen."""
    leaves, tree = jax.tree.flatten(variables)
    for i, v in enumerate(leaves):
        if jnp.issubdtype(v.dtype, jnp.floating):
            noise = 0.1 * jnp.abs(jax.random.normal(jax.random.fold_in(KEY, i), v.shape))
            leaves[i] = v + noise.astype(v.dtype) * (0.2 if v.ndim > 1 else 1)
    return jax.tree.unflatten(tree, leaves)


def flax(net: nn.Module, *args: Any) -> Case:
    """Return a net of Flax as a function of its variables and what it is applied to."""
    variables = stirred(jax.jit(net.init)(KEY, *args))
    return lambda v, *xs: net.apply(v, *xs), (variables, *args)


def eqx(net: Any, *args: Any) -> Case:
    """Return a net of Equinox as a function of its arrays and of batches."""
    arrays, rest = equinox.partition(net, equinox.is_inexact_array)

    def apply(arrays: Any, *xs: Any) -> Any:
        return jax.vmap(equinox.combine(arrays, rest))(*xs)

    return apply, (arrays, *args)
