"""Functions of JAX, exported, compiled by us, and run beside jaxlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

import alpenglow as ag
from alpenglow.frontends.stablehlo.loading import load

CLOSE = 2e-5
"""By how much of one, or of itself, an element may differ."""


def both(
    function: Callable[..., Any], args: Sequence[Any], target: str = "cpu"
) -> tuple[list[Any], list[Any]]:
    """Return what we make of arguments, and what jaxlib does."""
    jitted = jax.jit(function)
    graph = load(export.export(jitted)(*args))
    leaves = map(np.asarray, jax.tree.leaves(args))
    made = ag.compile(graph, target=target).run(dict(zip(graph.inputs, leaves, strict=True)))
    return list(made.values()), [np.asarray(y) for y in jax.tree.leaves(jitted(*args))]


def agree(
    function: Callable[..., Any], args: Sequence[Any], close: float = CLOSE, target: str = "cpu"
) -> None:
    """Fail unless both make the same."""
    ours, theirs = both(function, args, target)

    assert [(y.dtype, y.shape) for y in ours] == [(y.dtype, y.shape) for y in theirs]
    for y, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(y, wanted, rtol=close, atol=close)
