"""Gradients through branches of JAX are those that JAX computes: of the branch that is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax import export, lax
from jax import numpy as jnp

import alpenglow as ag
from alpenglow.frontends.stablehlo.loading import load

X = np.float32([0, -1, 2, 0.25])

BRANCHES: tuple[Callable[[Any], Any], ...] = (
    jnp.sqrt, jnp.log, lambda x: 1 / x, lambda x: x**0.5, lambda x: x * x,
)  # fmt: skip

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cond": lambda i, x: lax.cond(i > 2, jnp.log, lambda x: x * 3, x),
    "switch": lambda i, x: lax.switch(i, BRANCHES, x),
    "nested": lambda i, x: lax.cond(
        i > 1, lambda x: lax.cond(i > 3, jnp.sin, jnp.sqrt, x) * 2, lambda x: x * x, x
    ),
    "several": lambda i, x: sum(
        lax.cond(i > 2, lambda x: (jnp.sqrt(x), jnp.sqrt(x) * 2), lambda x: (x, x * x), x)
    ),
    "captured": lambda i, x: lax.cond(i > 2, lambda y: y / x, lambda y: y * x, jnp.cos(x)),
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_jax(name: str, order: int) -> None:
    function = FUNCTIONS[name]
    graph = load(export.export(jax.jit(function))(jnp.int32(0), X))
    assert isinstance(graph, ag.Graph)
    (y,), (_, x) = graph.outputs.values(), graph.inputs.values()

    def total(i: Any, x: Any) -> Any:
        return function(i, x).sum()

    for _ in range(order):
        (y,) = ag.gradients(graph, y, [x])
    graph.output("slope", y)
    theirs = jax.grad(total, 1)
    if order == 2:
        theirs = jax.grad(lambda i, x: jax.grad(total, 1)(i, x).sum(), 1)
    exe, jitted = ag.compile(graph, "cpu" if order == 1 else "interpreter"), jax.jit(theirs)

    for i in range(-1, 6):
        feeds = dict(zip(graph.inputs, (np.int32(i), X), strict=True))
        want = np.asarray(jitted(jnp.int32(i), X))
        defined = ~np.isnan(want)

        np.testing.assert_allclose(exe.run(feeds)["slope"][defined], want[defined], 1e-5)
