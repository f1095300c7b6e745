"""Runs a graph in NumPy: for constant folding, for validating passes, and as the reference."""

from alpenglow.evaluate.run import Enter, apply, evaluate

__all__ = ["Enter", "apply", "evaluate"]
