"""Recurrent layers in NumPy, written from their formulas and not from their lowering."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from alpenglow.ir.types import Array
from alpenglow.ir.vocabulary import NUMPY
from alpenglow.ops.sequence.recurrent import Activation, Gru, Lstm, Rnn, activate


def results(op: Lstm | Gru | Rnn, *operands: Array | None) -> tuple[Array, ...]:
    """Return y and the final states."""
    match op:
        case Lstm():
            found = _lstm(op, *operands)
        case Gru():
            found = _gru(op, *operands)
        case Rnn():
            found = _rnn(op, *operands)
    first = operands[0]
    assert first is not None, "xw is there"
    return tuple(v.astype(first.dtype) for v in found)


def _lstm(
    op: Lstm, xw: Array, r: Array, h0: Array, c0: Array,
    peepholes: Array | None = None, lengths: Array | None = None,
) -> tuple[Array, ...]:  # fmt: skip
    f, g = (_act(a, op.clip) for a in op.activations[:2])
    last = _act(op.activations[2], 0.0)
    x, r, h, c = (_wide(a) for a in (xw, r, h0, c0))
    p = np.zeros((3, h.shape[1]), h.dtype) if peepholes is None else _wide(peepholes)
    y = np.zeros((*x.shape[:2], h.shape[1]), h.dtype)
    for t, alive in _steps(x, lengths, op.reverse):
        i, o, forget, cell = np.split(x[t] + h @ r, 4, axis=1)
        i = f(i + p[0] * c)
        forget = 1 - i if op.couple else f(forget + p[2] * c)
        after = forget * c + i * g(cell)
        new = f(o + p[1] * after) * last(after)
        y[t] = np.where(alive, new, 0)
        h, c = np.where(alive, new, h), np.where(alive, after, c)
    return y, h, c


def _gru(
    op: Gru, xw: Array, r: Array, h0: Array,
    bias: Array | None = None, lengths: Array | None = None,
) -> tuple[Array, ...]:  # fmt: skip
    f, g = (_act(a, op.clip) for a in op.activations)
    x, r, h = _wide(xw), _wide(r), _wide(h0)
    units = h.shape[1]
    gates, hidden = r[:, : 2 * units], r[:, 2 * units :]
    y = np.zeros((*x.shape[:2], units), h.dtype)
    for t, alive in _steps(x, lengths, op.reverse):
        z, s = np.split(f(x[t, :, : 2 * units] + h @ gates), 2, axis=1)
        inner = (s * h) @ hidden if bias is None else s * (h @ hidden + _wide(bias))
        new = (1 - z) * g(x[t, :, 2 * units :] + inner) + z * h
        y[t] = np.where(alive, new, 0)
        h = np.where(alive, new, h)
    return y, h


def _rnn(
    op: Rnn, xw: Array, r: Array, h0: Array, lengths: Array | None = None
) -> tuple[Array, ...]:
    f = _act(op.activations[0], op.clip)
    x, r, h = _wide(xw), _wide(r), _wide(h0)
    y = np.zeros(x.shape, h.dtype)
    for t, alive in _steps(x, lengths, op.reverse):
        new = f(x[t] + h @ r)
        y[t] = np.where(alive, new, 0)
        h = np.where(alive, new, h)
    return y, h


def _act(which: Activation, clip: float) -> Callable[[Array], Array]:
    def apply(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(activate(NUMPY, which, clip, x))

    return apply


def _wide(a: Array) -> Array:
    """Return half precision as f32, the rest as it is."""
    return a.astype(np.result_type(a.dtype, np.float32))


def _steps(x: Array, lengths: Array | None, reverse: bool) -> Iterator[tuple[int, Array]]:
    """Yield the steps in their order, each with the sequences that have it."""
    count, batch = x.shape[:2]
    n = np.full(batch, count) if lengths is None else lengths
    for t in reversed(range(count)) if reverse else range(count):
        yield t, (n > t)[:, None]
