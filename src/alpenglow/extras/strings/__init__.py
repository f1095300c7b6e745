"""Tensors of strings, which the runtime works on between graphs."""

from alpenglow.extras.strings import strings

__all__ = ["strings"]
