"""Nets of graphs and points, and those that make what was not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jax.ops import segment_max, segment_sum
from tests.frontends.stablehlo.jaxlib.nets.made import KEY, Case, flax, normal, stirred

NODES = normal(7, 16)
FROM = jnp.array([0, 1, 2, 3, 4, 5, 6, 0, 2, 5])
TO = jnp.array([1, 2, 3, 4, 5, 6, 0, 3, 5, 1])
SEED = jnp.array([3, 5], jnp.uint32)


class GraphConvolution(nn.Module):
    @nn.compact
    def __call__(self, x: Any, a: Any, b: Any) -> Any:
        degree = segment_sum(jnp.ones_like(a, x.dtype), b, 7) + 1
        for features in (16, 4):
            h = nn.Dense(features)(x)
            scale = lax.rsqrt(degree[a] * degree[b])[:, None]
            x = nn.relu(segment_sum(h[a] * scale, b, 7) + h / degree[:, None])
        return nn.log_softmax(x)


class GraphAttention(nn.Module):
    @nn.compact
    def __call__(self, x: Any, a: Any, b: Any) -> Any:
        h = nn.DenseGeneral((2, 8))(x)
        s = nn.leaky_relu((nn.Dense(1)(h)[a] + nn.Dense(1)(h)[b])[..., 0], 0.2)
        e = jnp.exp(s - segment_max(s, b, 7)[b])
        p = e / segment_sum(e, b, 7)[b]
        return nn.elu(segment_sum(h[a] * p[..., None], b, 7).reshape(7, -1))


class Messages(nn.Module):
    @nn.compact
    def __call__(self, x: Any, a: Any, b: Any) -> Any:
        for _ in range(2):
            m = nn.Dense(16)(nn.relu(nn.Dense(16)(jnp.concatenate([x[a], x[b]], -1))))
            together = jnp.zeros_like(x).at[b].add(m)
            x = nn.LayerNorm()(x + nn.Dense(16)(jnp.concatenate([x, together], -1)))
        return nn.Dense(1)(x.sum(0))


class Points(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        square = ((x[:, :, None] - x[:, None]) ** 2).sum(-1)
        _, near = lax.top_k(-square, 3)
        around = jax.vmap(lambda x, i: x[i])(x, near) - x[:, :, None]
        y = nn.relu(nn.Dense(16)(around)).max(2)
        return nn.Dense(4)(nn.Dense(16)(y).max(1))


class Vae(nn.Module):
    @nn.compact
    def __call__(self, x: Any, seed: Any) -> Any:
        h = nn.relu(nn.Dense(32)(x))
        mean, log = nn.Dense(4)(h), nn.Dense(4)(h)
        key = jax.random.wrap_key_data(seed)
        z = mean + jnp.exp(0.5 * log) * jax.random.normal(key, mean.shape)
        made = nn.sigmoid(nn.Dense(16)(nn.relu(nn.Dense(32)(z))))
        return made, -0.5 * (1 + log - mean**2 - jnp.exp(log)).sum(-1)


class Denoiser(nn.Module):
    @nn.compact
    def __call__(self, x: Any, t: Any) -> Any:
        angle = t[:, None] * jnp.exp(-jnp.arange(8) / 2.0)
        e = nn.Dense(16)(nn.silu(jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)))
        h = nn.Conv(16, (3, 3))(x)
        y = nn.silu(nn.GroupNorm(4)(h)) + e[:, None, None]
        h = h + nn.Conv(16, (3, 3))(nn.silu(nn.GroupNorm(4)(y)))
        flat = h.reshape(h.shape[0], -1, 16)
        h = h + nn.SelfAttention(num_heads=2)(flat).reshape(h.shape)
        return nn.Conv(x.shape[-1], (3, 3))(h)


def diffusing() -> Case:
    """Return all steps from noise to an image."""
    net = Denoiser()
    x = normal(1, 8, 8, 3)
    variables = stirred(net.init(KEY, x, jnp.zeros(1)))
    kept = jnp.cumprod(1 - jnp.linspace(1e-2, 0.2, 6))

    def run(v: Any, x: Any, seed: Any) -> Any:
        def turn(t: Any, x: Any) -> Any:
            i = 5 - t
            now, then = kept[i], jnp.where(i > 0, kept[i - 1], 1.0)
            noise = jnp.tanh(net.apply(v, x, jnp.full(1, i, x.dtype)))
            clean = jnp.clip((x - jnp.sqrt(1 - now) * noise) / jnp.sqrt(now), -1, 1)
            key = jax.random.fold_in(jax.random.wrap_key_data(seed), i)
            more = jnp.sqrt(1 - then) * (noise + 0.1 * jax.random.normal(key, x.shape))
            return jnp.sqrt(then) * clean + more

        return lax.fori_loop(0, 6, turn, x)

    return run, (variables, x, SEED)


class Flow(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        total = jnp.zeros(x.shape[:-1])
        for _ in range(3):
            a, b = jnp.split(x, 2, -1)
            scale, shift = jnp.split(nn.Dense(16)(nn.tanh(nn.Dense(16)(a))), 2, -1)
            scale = jnp.tanh(scale)
            total = total + scale.sum(-1)
            x = jnp.concatenate([b * jnp.exp(scale) + shift, a], -1)
        return x, total


class Generator(nn.Module):
    @nn.compact
    def __call__(self, z: Any) -> Any:
        x = nn.Dense(4 * 4 * 16)(z).reshape(-1, 4, 4, 16)
        for features in (8, 4):
            x = nn.ConvTranspose(features, (4, 4), (2, 2), use_bias=False)(x)
            x = nn.leaky_relu(nn.BatchNorm(use_running_average=True)(x), 0.2)
        return jnp.tanh(nn.ConvTranspose(3, (3, 3), (2, 2), padding="VALID")(x))


class Radiance(nn.Module):
    """Colours along a ray, which hide those behind them."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        waves = (x[..., None] * 2.0 ** jnp.arange(4)).reshape(*x.shape[:-1], -1)
        h = jnp.concatenate([jnp.sin(waves), jnp.cos(waves)], -1)
        h = nn.Dense(4)(nn.relu(nn.Dense(32)(h)))
        hidden = 1 - jnp.exp(-nn.softplus(h[..., 0]) * 0.2)
        left = jnp.cumprod(jnp.concatenate([jnp.ones((5, 1)), 1 - hidden[:, :-1]], 1), 1)
        return ((hidden * left)[..., None] * nn.sigmoid(h[..., 1:])).sum(1)


class Codes(nn.Module):
    """The nearest of a book of codes, through which gradients pass."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        z = nn.Dense(4)(x)
        book = self.param("book", nn.initializers.normal(1.0), (12, 4))
        square = (z**2).sum(-1, keepdims=True) - 2 * z @ book.T + (book**2).sum(-1)
        at = square.argmin(-1)
        q = z + lax.stop_gradient(book[at] - z)
        return nn.Dense(16)(q), at, ((lax.stop_gradient(z) - book[at]) ** 2).mean()


class Masked(nn.Module):
    """A pixel knows only those before it."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        mask = jnp.ones((5, 5, 1, 1)).at[2, 2:].set(0).at[3:].set(0)
        masks = jnp.broadcast_to(mask, (5, 5, 3, 16))
        return nn.Dense(4)(nn.relu(nn.Conv(16, (5, 5), mask=masks)(x)))


def moved(w: Any, x: Any) -> Any:
    """Return where a field that a net says takes points, in steps of Runge and Kutta."""

    def field(x: Any) -> Any:
        return jnp.tanh(x @ w["a"]) @ w["b"]

    def turn(x: Any, _: Any) -> Any:
        a = field(x)
        b = field(x + 0.05 * a)
        c = field(x + 0.05 * b)
        d = field(x + 0.1 * c)
        x = x + 0.1 / 6 * (a + 2 * b + 2 * c + d)
        return x, x.sum()

    return lax.scan(turn, x, length=8)


GRAPH = NODES, FROM, TO

NETS: dict[str, Callable[[], Case]] = {
    "graph_convolution": lambda: flax(GraphConvolution(), *GRAPH),
    "graph_attention": lambda: flax(GraphAttention(), *GRAPH),
    "messages": lambda: flax(Messages(), *GRAPH),
    "points": lambda: flax(Points(), normal(2, 10, 3)),
    "vae": lambda: flax(Vae(), normal(3, 16), SEED),
    "denoiser": lambda: flax(Denoiser(), normal(2, 8, 8, 3), jnp.array([3.0, 7.0])),
    "diffusing": diffusing,
    "flow": lambda: flax(Flow(), normal(3, 16)),
    "generator": lambda: flax(Generator(), normal(2, 8)),
    "radiance": lambda: flax(Radiance(), normal(5, 6, 3)),
    "codes": lambda: flax(Codes(), normal(3, 16)),
    "masked_convolution": lambda: flax(Masked(), normal(2, 8, 8, 3)),
    "field": lambda: (moved, ({"a": normal(4, 16), "b": normal(16, 4)}, normal(3, 4))),
}
