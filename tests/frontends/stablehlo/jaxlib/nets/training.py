"""Steps of training: gradients of nets, and what optimizers make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax
from tests.frontends.stablehlo.jaxlib.nets import attention, generative, sequences, vision
from tests.frontends.stablehlo.jaxlib.nets.made import KEY, Case, normal, stirred


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(5)(nn.tanh(nn.Dense(32)(x)))


X = normal(6, 8)
LABELS = jax.random.randint(KEY, (6,), 0, 5)


def entropy(p: Any, x: Any, y: Any) -> Any:
    z = Mlp().apply(p, x)
    return optax.softmax_cross_entropy_with_integer_labels(z, y).mean()


def parameters() -> Any:
    return stirred(Mlp().init(KEY, X))


def step(optimizer: optax.GradientTransformation) -> Case:
    """Return a step of training from the middle of it."""
    p = parameters()
    _, state = optimizer.update(jax.grad(entropy)(p, X + 1, LABELS), optimizer.init(p), p)

    def run(p: Any, state: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(entropy)(p, x, y)
        changes, state = optimizer.update(g, state, p)
        return optax.apply_updates(p, changes), state, loss

    return run, (p, state, X, LABELS)


def gradient(net: nn.Module, *args: Any) -> Case:
    """Return gradients of all that a net has learnt, for a loss of what it makes."""
    variables = stirred(jax.jit(net.init)(KEY, *args))
    learnt = variables["params"]

    def loss(p: Any, *xs: Any) -> Any:
        made = jax.tree.leaves(net.apply({**variables, "params": p}, *xs))
        return sum((jnp.sin(y) ** 2).mean() for y in made if jnp.issubdtype(y.dtype, jnp.floating))

    return jax.value_and_grad(loss), (learnt, *args)


def penalised(p: Any, x: Any, y: Any) -> Any:
    """Return gradients of a loss that has a gradient in it."""

    def loss(p: Any) -> Any:
        g = jax.grad(lambda x: entropy(p, x, y))(x)
        return entropy(p, x, y) + ((jnp.sqrt((g**2).sum(-1) + 1e-6) - 1) ** 2).mean()

    return jax.grad(loss)(p)


def learnt_to_learn(p: Any, x: Any, y: Any) -> Any:
    """Return gradients through a step of gradients."""

    def loss(p: Any) -> Any:
        g = jax.grad(entropy)(p, x[:3], y[:3])
        return entropy(jax.tree.map(lambda p, g: p - 0.1 * g, p, g), x[3:], y[3:])

    return jax.value_and_grad(loss)(p)


def gathered(p: Any, x: Any, y: Any) -> Any:
    """Return gradients that are summed over parts of a batch."""

    def turn(total: Any, part: Any) -> Any:
        return jax.tree.map(jnp.add, total, jax.grad(entropy)(p, *part)), None

    parts = x.reshape(3, 2, 8), y.reshape(3, 2)
    return lax.scan(turn, jax.tree.map(jnp.zeros_like, p), parts)[0]


def contrasted(p: Any, x: Any) -> Any:
    """Return gradients of a loss that tells pairs from others."""

    def loss(p: Any) -> Any:
        a, b = (nn.standardize(Mlp().apply(p, v)) for v in (x, x * 1.1))
        s = a @ b.T / 0.5
        return optax.softmax_cross_entropy_with_integer_labels(s, jnp.arange(6)).mean()

    return jax.value_and_grad(loss)(p)


NETS: dict[str, Callable[[], Case]] = {
    "adam": lambda: step(optax.adam(1e-3)),
    "momentum": lambda: step(optax.sgd(1e-2, 0.9, nesterov=True)),
    "lion": lambda: step(optax.lion(1e-3)),
    "rmsprop_clipped": lambda: step(
        optax.chain(optax.clip_by_global_norm(0.1), optax.rmsprop(1e-3))
    ),
    "scheduled": lambda: step(optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 2, 9))),
    "lamb": lambda: step(optax.lamb(1e-3)),
    "gradient_of_unet": lambda: gradient(vision.UNet(), vision.IMAGE),
    "gradient_of_gpt": lambda: gradient(attention.Gpt(), attention.WORDS),
    "gradient_of_experts": lambda: gradient(attention.Experts(), attention.SEQUENCE),
    "gradient_of_mamba": lambda: gradient(sequences.Mamba("turns"), sequences.SEQUENCE),
    "gradient_of_graph": lambda: gradient(generative.GraphAttention(), *generative.GRAPH),
    "penalised": lambda: (penalised, (parameters(), X, LABELS)),
    "learnt_to_learn": lambda: (learnt_to_learn, (parameters(), X, LABELS)),
    "gathered": lambda: (gathered, (parameters(), X, LABELS)),
    "contrasted": lambda: (contrasted, (parameters(), X)),
}
