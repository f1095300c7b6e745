"""Scales and zero points, for what quantizes and what computes with small integers."""

from __future__ import annotations

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES, Array, Shape, limits
from .inference import Declined

BYTES = ("uint8", "int8")
MICROSOFT = "com.microsoft"


def steps(d: Draft, count: int) -> list[Var]:
    """Return scales, most of them powers of two, so that ties are frequent and exact."""
    return [scale(d, ()) for _ in range(count)]


def scale(d: Draft, shape: Shape, low: int = -5, high: int = 0) -> Var:
    numbers = 2.0 ** d.rng.integers(low, high + 1, shape)
    return d.given(np.asarray(numbers, np.float32), True)


def zeros(d: Draft, dtype: str, count: int) -> list[Var]:
    return [d.given(extreme(d, dtype, ()), True) for _ in range(count)]


def extreme(d: Draft, dtype: str, shape: Shape) -> Array:
    """Return elements from the whole range of a type, or moderate ones."""
    if d.chance(0.4):
        return d.contents(dtype, shape)
    ends = limits(DTYPES[dtype])
    if d.chance(0.15):  # all of them at one end: sums are as large as they get
        return np.full(shape, d.one_of((int(ends.min), int(ends.max)))).astype(DTYPES[dtype])
    return np.asarray(d.rng.integers(int(ends.min), int(ends.max) + 1, shape)).astype(DTYPES[dtype])


def bytes_of(d: Draft, least: int, most: int) -> Var:
    """Return a value of bytes: one that was made before, or one that uses their whole range."""
    x = d.pick(BYTES, least, most, empty=False)
    if x.name in d.made or d.chance(0.3):
        return x
    return d.given(extreme(d, x.dtype, x.shape), False)


def through(d: Draft, x: Var, kind: str = "", step: Var | None = None) -> Var:
    """Return x quantized, in this step or in any, and dequantized, as exporters write it."""
    if d.opset < 13:
        raise Declined
    kind = kind or d.one_of(BYTES)
    step, zero = step or steps(d, 1)[0], zeros(d, kind, 1)[0]
    if x.name in d.inputs and d.chance(0.4):
        # Half of what is fed lies in the middle between two integers.
        half = d.weights[step.name] / 2
        d.inputs[x.name] = np.round(d.inputs[x.name] / half) * half
    q = d.node("QuantizeLinear", [x, step, zero])[0]
    return d.node("DequantizeLinear", [q, step, zero])[0]


def stored(d: Draft, shape: Shape, axis: int) -> Var:
    """Return weights that are stored as i8 and dequantized, by channel or as a whole."""
    if d.opset < 13:
        raise Declined
    each = d.chance(0.6)
    step = scale(d, shape[axis : axis + 1] if each else (), -6, -3)
    given = [d.given(extreme(d, "int8", shape), True), step]
    if d.chance(0.6):
        given.append(d.given(np.zeros(step.shape, np.int8), True))
    return d.node("DequantizeLinear", given, **({"axis": axis} if each else {}))[0]
