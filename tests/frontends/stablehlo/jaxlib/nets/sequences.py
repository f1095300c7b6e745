"""Nets that go through sequences: recurrent, convolving, of states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox
import flax.linen as nn
import jax.numpy as jnp
import optax
from jax import lax
from tests.frontends.stablehlo.jaxlib.nets.made import KEY, Case, eqx, flax, normal

SEQUENCE = normal(2, 9, 16)


class Stacked(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(2):
            x = nn.RNN(nn.OptimizedLSTMCell(16))(x)
        return nn.Dense(4)(x[:, -1])


class BothWays(nn.Module):
    @nn.compact
    def __call__(self, x: Any, lengths: Any) -> Any:
        there, back = nn.RNN(nn.GRUCell(8)), nn.RNN(nn.GRUCell(8))
        return nn.Bidirectional(there, back)(x, seq_lengths=lengths)


class WaveNet(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        total = 0.0
        for i in range(4):
            y = nn.Conv(32, (2,), kernel_dilation=2**i, padding="CAUSAL")(x)
            a, b = jnp.split(y, 2, -1)
            y = jnp.tanh(a) * nn.sigmoid(b)
            total = total + nn.Dense(8)(y)
            x = x + nn.Dense(16)(y)
        return nn.Dense(10)(nn.relu(total))


class Causal(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        for i in range(3):
            y = nn.WeightNorm(nn.Conv(16, (3,), kernel_dilation=2**i, padding="CAUSAL"))(x)
            x = nn.relu(x + nn.relu(y))
        return x


class Mamba(nn.Module):
    """A layer of selective states."""

    scan: str

    @nn.compact
    def __call__(self, x: Any) -> Any:
        z, gate = jnp.split(nn.Dense(32)(x), 2, -1)
        z = nn.silu(nn.Conv(16, (4,), feature_group_count=16, padding="CAUSAL")(z))
        step = nn.softplus(nn.Dense(16)(z))
        b, c = nn.Dense(4)(z), nn.Dense(4)(z)
        decay = -jnp.exp(self.param("decay", nn.initializers.normal(), (16, 4)))
        kept = jnp.exp(step[..., None] * decay)
        added = (step * z)[..., None] * b[..., None, :]
        if self.scan == "associative":
            _, states = lax.associative_scan(
                lambda u, v: (u[0] * v[0], v[0] * u[1] + v[1]), (kept, added), axis=1
            )
        else:

            def turn(h: Any, u: Any) -> Any:
                h = u[0] * h + u[1]
                return h, h

            turns = kept.swapaxes(0, 1), added.swapaxes(0, 1)
            states = lax.scan(turn, jnp.zeros_like(kept[:, 0]), turns)[1].swapaxes(0, 1)
        y = jnp.einsum("btds,bts->btd", states, c)
        return nn.Dense(16)(y * nn.silu(gate))


class Fourier(nn.Module):
    """A convolution as long as the sequence, by Fourier transforms."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        n = x.shape[1]
        kernel = self.param("kernel", nn.initializers.normal(0.3), (n, 16))
        spectrum = jnp.fft.rfft(x, 2 * n, 1) * jnp.fft.rfft(kernel, 2 * n, 0)
        return nn.gelu(jnp.fft.irfft(spectrum, 2 * n, 1)[:, :n]) + x


class TimeMix(nn.Module):
    """A mix over time whose sums are kept from overflow, as RWKV has it."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        k, v, r = (nn.Dense(16)(x * 0.7 + before * 0.3) for _ in range(3))
        decay = -jnp.exp(self.param("decay", nn.initializers.normal(), (16,)))

        def turn(state: Any, u: Any) -> Any:
            (a, b, most), (k, v) = state, u
            top = jnp.maximum(most + decay, k)
            old, new = jnp.exp(most + decay - top), jnp.exp(k - top)
            a, b = old * a + new * v, old * b + new
            return (a, b, top), a / b

        nothing = jnp.zeros((2, 16))
        turns = k.swapaxes(0, 1), v.swapaxes(0, 1)
        _, y = lax.scan(turn, (nothing, nothing, nothing - 1e9), turns)
        return nn.Dense(16)(nn.sigmoid(r) * y.swapaxes(0, 1))


class Cells(equinox.Module):
    """A cell of Equinox through time, and back from the end."""

    cell: Any

    def __call__(self, x: Any) -> Any:
        pair = isinstance(self.cell, equinox.nn.LSTMCell)
        start = (jnp.zeros(8), jnp.zeros(8)) if pair else jnp.zeros(8)

        def turn(h: Any, u: Any) -> Any:
            h = self.cell(u, h)
            return h, h[0] if pair else h

        return [lax.scan(turn, start, x, reverse=r)[1] for r in (False, True)]


def recognised(x: Any, w: Any, words: Any) -> Any:
    """Return the loss of sequences that are not aligned."""
    silent = jnp.zeros(x.shape[:2])
    return optax.ctc_loss(x @ w, silent, words, jnp.zeros(words.shape))


NETS: dict[str, Callable[[], Case]] = {
    "lstms": lambda: flax(Stacked(), SEQUENCE),
    "both_ways": lambda: flax(BothWays(), SEQUENCE, jnp.array([4, 9])),
    "reversed_lstm": lambda: flax(nn.RNN(nn.LSTMCell(8), reverse=True, keep_order=True), SEQUENCE),
    "conv_lstm": lambda: flax(nn.RNN(nn.ConvLSTMCell(4, (3, 3))), normal(2, 3, 8, 8, 3)),
    "wavenet": lambda: flax(WaveNet(), SEQUENCE),
    "weight_norm_causal": lambda: flax(Causal(), SEQUENCE),
    "mamba": lambda: flax(Mamba("turns"), SEQUENCE),
    "mamba_associative": lambda: flax(Mamba("associative"), SEQUENCE),
    "fourier_convolution": lambda: flax(Fourier(), SEQUENCE),
    "time_mix": lambda: flax(TimeMix(), SEQUENCE),
    "equinox_lstm": lambda: eqx(Cells(equinox.nn.LSTMCell(16, 8, key=KEY)), SEQUENCE),
    "equinox_gru": lambda: eqx(Cells(equinox.nn.GRUCell(16, 8, key=KEY)), SEQUENCE),
    "ctc": lambda: (recognised, (SEQUENCE, normal(16, 6), jnp.array([[1, 2, 2], [5, 1, 3]]))),
}
