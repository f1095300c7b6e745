"""The ways in which integers that stand for reals may be rounded."""

from __future__ import annotations

ROUNDINGS = ("xnnpack", "reference")
"""As XNNPACK rounds, for those who run a model with LiteRT, or as the reference kernels do."""
