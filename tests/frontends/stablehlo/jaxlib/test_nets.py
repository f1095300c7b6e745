"""Networks of Flax and Equinox, their gradients, and a step of training, beside jaxlib."""

from __future__ import annotations

from typing import Any

import equinox
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from tests.frontends.stablehlo.jaxlib.exported import agree

KEY = jax.random.key(0)
IMAGE = jax.random.normal(KEY, (2, 16, 16, 3))
SEQUENCE = jax.random.normal(KEY, (2, 7, 32))
CLOSE = 1e-4


class Convolutions(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.avg_pool(nn.relu(nn.Conv(8, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.BatchNorm(use_running_average=True)(nn.Conv(16, (3, 3), strides=2)(x))
        x = nn.LayerNorm()(nn.Dense(32)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(nn.gelu(x))


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=4, use_bias=False)(y, y)
        return x + nn.Dense(32)(nn.gelu(nn.Dense(64)(nn.LayerNorm()(x))))


class Enlarged(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.ConvTranspose(4, (3, 3), strides=(2, 2))(nn.max_pool(x, (2, 2), (2, 2)))


class Words(nn.Module):
    @nn.compact
    def __call__(self, i: Any) -> Any:
        return nn.Dense(50)(nn.GroupNorm(4)(nn.Embed(50, 16)(i)))


FLAX = {
    "convolutions": (Convolutions(), IMAGE),
    "attention": (Attention(), SEQUENCE),
    "enlarged": (Enlarged(), IMAGE),
    "words": (Words(), jnp.arange(12).reshape(3, 4)),
    "lstm": (nn.RNN(nn.LSTMCell(16)), SEQUENCE),
    "gru": (nn.RNN(nn.GRUCell(16)), SEQUENCE),
}
EQUINOX = {
    "mlp": (equinox.nn.MLP(32, 10, 64, 2, key=KEY), [SEQUENCE[0]]),
    "layer_norm": (equinox.nn.LayerNorm(32), [SEQUENCE[0]]),
    "attention": (equinox.nn.MultiheadAttention(4, 32, key=KEY), [SEQUENCE] * 3),
    "convolutions": (
        equinox.nn.Sequential(
            [equinox.nn.Conv2d(3, 8, 3, key=KEY), equinox.nn.Lambda(jax.nn.relu),
             equinox.nn.MaxPool2d(2, 2), equinox.nn.AdaptiveAvgPool2d(3)]
        ),
        [jnp.transpose(IMAGE, (0, 3, 1, 2))],
    ),
}  # fmt: skip


@pytest.mark.sampled(0, "attention", "gru")
@pytest.mark.parametrize("name", sorted(FLAX))
def test_a_net_of_flax_makes_what_jaxlib_makes(name: str) -> None:
    net, x = FLAX[name]
    variables = net.init(KEY, x)

    agree(lambda v, x: net.apply(v, x), (variables, x), CLOSE)


@pytest.mark.sampled(0, "attention")
@pytest.mark.parametrize("name", ["convolutions", "attention", "lstm"])
def test_gradients_are_those_of_jaxlib(name: str) -> None:
    net, x = FLAX[name]
    variables = net.init(KEY, x)

    def loss(parameters: Any, x: Any) -> Any:
        return (net.apply({**variables, "params": parameters}, x) ** 2).mean()

    agree(jax.value_and_grad(loss), (variables["params"], x), CLOSE)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", sorted(EQUINOX))
def test_a_net_of_equinox_makes_what_jaxlib_makes(name: str) -> None:
    net, xs = EQUINOX[name]
    arrays, rest = equinox.partition(net, equinox.is_array)

    def apply(arrays: Any, *xs: Any) -> Any:
        return jax.vmap(equinox.combine(arrays, rest))(*xs)

    agree(apply, (arrays, *xs), CLOSE)


def test_a_step_of_training_is_that_of_jaxlib() -> None:
    shapes = {"w": (8, 16), "b": (16,), "q": (16, 16), "v": (16, 5)}
    parameters = {
        name: jax.random.normal(jax.random.fold_in(KEY, i), shape) * 0.2
        for i, (name, shape) in enumerate(shapes.items())
    }

    def loss(p: Any, x: Any, y: Any) -> Any:
        h = jnp.tanh(x @ p["w"] + p["b"])
        q = h @ p["q"]
        z = (jax.nn.softmax(q @ q.swapaxes(-1, -2) / 4.0) @ h) @ p["v"]
        return -jnp.take_along_axis(jax.nn.log_softmax(z), y[..., None], -1).mean()

    def adamw(p: Any, m: Any, v: Any, t: Any, x: Any, y: Any) -> Any:
        value, g = jax.value_and_grad(loss)(p, x, y)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        t = t + 1

        def moved(p: Any, m: Any, v: Any) -> Any:
            step = (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
            return p - 1e-2 * (step + 0.01 * p)

        return jax.tree.map(moved, p, m, v), m, v, t, value

    nothing = jax.tree.map(jnp.zeros_like, parameters)
    x = jax.random.normal(KEY, (4, 6, 8))
    y = jax.random.randint(KEY, (4, 6), 0, 5)

    agree(adamw, (parameters, nothing, nothing, jnp.float32(0), x, y), CLOSE)
