"""Sequences and optionals of ONNX, which the runtime works on between graphs."""

from alpenglow.extras.sequences import sequences

__all__ = ["sequences"]
