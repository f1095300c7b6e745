"""Nets of attention: encoders, decoders, with caches, biases and experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox
import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from tests.frontends.stablehlo.jaxlib.nets.made import KEY, Case, eqx, flax, normal

WORDS = jax.random.randint(KEY, (2, 8), 0, 50)
SEQUENCE = normal(2, 8, 32)


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x: Any, mask: Any = None) -> Any:
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(y, y, mask=mask)
        return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(64)(nn.LayerNorm()(x))))


class Bert(nn.Module):
    @nn.compact
    def __call__(self, i: Any, kinds: Any, there: Any) -> Any:
        x = nn.Embed(50, 32)(i) + nn.Embed(2, 32)(kinds) + nn.Embed(16, 32)(jnp.arange(8))
        x = nn.LayerNorm()(x)
        for _ in range(2):
            y = nn.SelfAttention(num_heads=4)(x, nn.make_attention_mask(there, there))
            x = nn.LayerNorm()(x + y)
            x = nn.LayerNorm()(x + nn.Dense(32)(nn.gelu(nn.Dense(64)(x), approximate=False)))
        return nn.Dense(50)(x), nn.Dense(2)(jnp.tanh(nn.Dense(32)(x[:, 0])))


class Gpt(nn.Module):
    @nn.compact
    def __call__(self, i: Any) -> Any:
        table = nn.Embed(50, 32)
        x = table(i) + nn.Embed(16, 32)(jnp.arange(i.shape[1]))
        for _ in range(2):
            x = Layer()(x, nn.make_causal_mask(i))
        return table.attend(nn.LayerNorm()(x))


class Scanned(nn.Module):
    """Layers whose parameters are stacked, computed again for gradients."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        class Turn(nn.Module):
            @nn.compact
            def __call__(self, x: Any, _: Any) -> Any:
                return Layer()(x), x.mean()

        turns = nn.scan(
            nn.remat(Turn), variable_axes={"params": 0}, split_rngs={"params": True}, length=3
        )
        return turns()(x, None)


class Experts(nn.Module):
    """Each word goes to the two of four experts that suit it."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        weights, chosen = lax.top_k(nn.softmax(nn.Dense(4)(x)), 2)
        gate = (jax.nn.one_hot(chosen, 4) * weights[..., None]).sum(-2)
        up = self.param("up", nn.initializers.lecun_normal(), (4, 32, 64))
        down = self.param("down", nn.initializers.lecun_normal(), (4, 64, 32))
        y = jnp.einsum("bteh,ehd->bted", nn.silu(jnp.einsum("btd,edh->bteh", x, up)), down)
        return jnp.einsum("bted,bte->btd", y, gate), gate.mean((0, 1))


class RelativeBias(nn.Module):
    """Attention with a bias for each bucket of distances, as T5 has it."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        n = x.shape[1]
        distance = jnp.arange(n)[None] - jnp.arange(n)[:, None]
        far = 2 + (jnp.log(jnp.maximum(jnp.abs(distance), 1) / 2) / jnp.log(8) * 2).astype(int)
        bucket = jnp.where(jnp.abs(distance) < 2, jnp.abs(distance), jnp.minimum(far, 3))
        bias = nn.Embed(8, 4)(bucket + 4 * (distance > 0)).transpose(2, 0, 1)
        y = nn.RMSNorm()(x)
        q, k, v = (nn.DenseGeneral((4, 8), use_bias=False)(y) for _ in range(3))
        p = nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) + bias)
        return x + nn.DenseGeneral(32, (-2, -1))(jnp.einsum("bhqk,bkhd->bqhd", p, v))


class Across(nn.Module):
    @nn.compact
    def __call__(self, x: Any, y: Any) -> Any:
        y = Layer()(y)
        x = Layer()(x, nn.make_causal_mask(x[..., 0]))
        return x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x), y)


class Latents(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        z = self.param("latents", nn.initializers.normal(), (3, 32))
        z = jnp.broadcast_to(z, (x.shape[0], 3, 32))
        z = z + nn.MultiHeadDotProductAttention(num_heads=2)(z, x)
        return Layer()(z)


def rotated(x: Any, places: Any) -> Any:
    angle = places[:, None] / 100 ** (jnp.arange(0, x.shape[-1], 2) / x.shape[-1])
    c, s = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * c - b * s, a * s + b * c], -1)


class Llama(nn.Module):
    """Heads of queries that share keys and values, turned by their places."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        n = x.shape[1]
        y = nn.RMSNorm()(x)
        q = rotated(nn.DenseGeneral((8, 4), use_bias=False)(y), jnp.arange(n))
        k = rotated(nn.DenseGeneral((2, 4), use_bias=False)(y), jnp.arange(n))
        v = nn.DenseGeneral((2, 4), use_bias=False)(y)
        q = q.reshape(*q.shape[:2], 2, 4, 4)
        s = jnp.einsum("bqgrd,bkgd->bgrqk", q, k) / 2
        p = nn.softmax(jnp.where(jnp.tril(jnp.ones((n, n), bool)), s, -1e9))
        y = jnp.einsum("bgrqk,bkgd->bqgrd", p, v).reshape(*x.shape)
        x = x + nn.Dense(32, use_bias=False)(y)
        y = nn.RMSNorm()(x)
        return x + nn.Dense(32)(nn.silu(nn.Dense(48)(y)) * nn.Dense(48)(y))


def cached(w: Any, x: Any, keys: Any, values: Any, at: Any) -> Any:
    """Attend from one word to those that a cache has, after it is written there."""
    q, k, v = jnp.split(x @ w, 3, -1)
    keys = lax.dynamic_update_slice(keys, k[:, None], (0, at, 0))
    values = lax.dynamic_update_slice(values, v[:, None], (0, at, 0))
    s = jnp.einsum("bd,bkd->bk", q, keys) / 4
    p = jax.nn.softmax(jnp.where(jnp.arange(keys.shape[1]) <= at, s, -jnp.inf))
    return jnp.einsum("bk,bkd->bd", p, values), keys, values


def decoding() -> Case:
    """Return a step of Flax's own cache."""
    net = nn.MultiHeadDotProductAttention(num_heads=4, decode=True)
    variables = net.init(KEY, SEQUENCE)
    one = SEQUENCE[:, :1]
    return lambda v, x: net.apply(v, x, mutable=["cache"]), (variables, one)


def generating() -> Case:
    """Return words that follow, each the best, until one ends the sentence or 12 are there."""
    net = Gpt()
    variables = net.init(KEY, WORDS)

    def run(v: Any, i: Any) -> Any:
        def turn(state: Any) -> Any:
            i, n, _ = state
            best = net.apply(v, i)[0, n - 1].argmax().astype(i.dtype)
            return i.at[0, n].set(best), n + 1, best

        return lax.while_loop(lambda s: (s[1] < 12) & (s[2] != 49), turn, (i, 3, jnp.int32(0)))

    return run, (variables, jnp.zeros((1, 13), jnp.int32).at[0, :3].set(jnp.array([4, 8, 15])))


def slopes(x: Any, w: Any) -> Any:
    """Attend with a bias that falls with distance, within a window."""
    q, k, v = (y.reshape(2, 8, 4, 8) for y in jnp.split(x @ w, 3, -1))
    distance = jnp.arange(8)[:, None] - jnp.arange(8)
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 3 - distance * 2.0 ** -jnp.arange(1, 5)[:, None, None]
    s = jnp.where((distance >= 0) & (distance < 4), s, jnp.finfo(s.dtype).min)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), v).reshape(x.shape)


def linear(x: Any, w: Any) -> Any:
    """Attend in linear time, by sums of what comes before."""
    q, k, v = jnp.split(x @ w, 3, -1)
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    sums = jnp.cumsum(k[..., None] * v[..., None, :], 1)
    total = jnp.einsum("btd,btd->bt", q, jnp.cumsum(k, 1))
    return jnp.einsum("btd,btde->bte", q, sums) / total[..., None]


class Rotary(equinox.Module):
    """Equinox's attention on what its rotary embedding turns."""

    attention: equinox.nn.MultiheadAttention
    rotary: equinox.nn.RotaryPositionalEmbedding

    def __call__(self, x: Any) -> Any:
        def turned(q: Any, k: Any, v: Any) -> Any:
            turn = jax.vmap(self.rotary, 1, 1)
            return turn(q), turn(k), v

        mask = jnp.tril(jnp.ones((8, 8), bool))
        return self.attention(x, x, x, mask, process_heads=turned)


def rotary() -> Case:
    attention = equinox.nn.MultiheadAttention(4, 32, key=KEY)
    return eqx(Rotary(attention, equinox.nn.RotaryPositionalEmbedding(8)), SEQUENCE)


CACHE = normal(2, 16, 16, seed=1)
LEARNT = normal(32, 96, seed=2) / 6
THERE = jnp.arange(8)[None] < jnp.array([[5], [8]])

NETS: dict[str, Callable[[], Case]] = {
    "bert": lambda: flax(Bert(), WORDS, WORDS % 2, THERE),
    "gpt": lambda: flax(Gpt(), WORDS),
    "scanned_layers": lambda: flax(Scanned(), SEQUENCE),
    "experts": lambda: flax(Experts(), SEQUENCE),
    "relative_bias": lambda: flax(RelativeBias(), SEQUENCE),
    "encoder_decoder": lambda: flax(Across(), SEQUENCE, normal(2, 5, 32)),
    "latents": lambda: flax(Latents(), SEQUENCE),
    "llama": lambda: flax(Llama(), SEQUENCE),
    "cached": lambda: (
        cached, (normal(16, 48) / 4, normal(2, 16), CACHE, CACHE + 1, jnp.int32(5))
    ),
    "decoding": decoding,
    "generating": generating,
    "slopes": lambda: (slopes, (SEQUENCE, LEARNT)),
    "linear_attention": lambda: (linear, (SEQUENCE, LEARNT)),
    "rotary": rotary,
    "dot_product_attention": lambda: (
        lambda q, k: jax.nn.dot_product_attention(q, k, k, is_causal=True),
        (normal(2, 8, 4, 8), normal(2, 8, 2, 8)),
    ),
}  # fmt: skip
