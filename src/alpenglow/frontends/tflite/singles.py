"""Functions of f32 as TFLite's kernels compute them: rounded from f64, alike on all platforms.

Libraries of C come to the same but where a result lies between two f32 to within a hundredth.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from alpenglow.ir.types import Array

Function = Callable[[Array], Array]
"""A function of reals."""


def single(function: Function) -> Function:
    """Return a function of f32 whose results are rounded from f64."""

    return lambda x: np.asarray(function(x.astype(np.float64)), np.float32)


exp, log, tanh, expm1 = map(single, (np.exp, np.log, np.tanh, np.expm1))
erfc = single(np.vectorize(math.erfc, [np.float64]))


def logistic(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), each step in f32."""
    return np.float32(1) / (np.float32(1) + exp(-x))


def elu(x: Array) -> Array:
    """Return x, or exp(x) - 1 where that is negative."""
    return np.where(x < 0, expm1(x), x)


def gelu(x: Array) -> Array:
    """Return x / 2 * erfc(-x / sqrt(2))."""
    return np.float32(0.5) * x * erfc(x * np.float32(-math.sqrt(0.5)))


def gelu_by_tanh(x: Array) -> Array:
    """Return about the same, by tanh of a polynomial."""
    cubic = x + np.float32(0.044715) * x * x * x
    inner = np.float32(math.sqrt(2 / math.pi)) * cubic
    return np.float32(0.5) * x * (np.float32(1) + tanh(inner))
