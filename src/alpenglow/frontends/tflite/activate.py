"""The activations that are fused with operators."""

from __future__ import annotations

from alpenglow.frontends.tflite.file.schema import Activation
from alpenglow.frontends.tflite.table import Site
from alpenglow.ir.graph import Value
from alpenglow.ir.types import INTS
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.arithmetic import Clip, Maximum, Minimum

BOUNDS = {Activation.RELU: (0, None), Activation.RELU_N1_TO_1: (-1, 1), Activation.RELU6: (0, 6)}
"""Lower and upper bounds of activations; None for unbounded."""


def activated(s: Site, y: Value) -> Value:
    """Return a result as the activation among the options of an operator leaves it."""
    which = s.activation(Activation.NONE, *BOUNDS, Activation.TANH)
    if which == Activation.NONE:
        return y
    if which == Activation.TANH:
        return s.g(Tanh(), y)
    low, high = BOUNDS[which]
    if y.type.dtype not in INTS:
        return s.g(Clip(low=low) if high is None else Clip(low, high), y)
    y = s.g(Maximum(), y, s.filled(low, y))
    return y if high is None else s.g(Minimum(), y, s.filled(high, y))
