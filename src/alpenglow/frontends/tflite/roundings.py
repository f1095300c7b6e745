"""The ways in which quantized values may be rounded."""

from __future__ import annotations

ROUNDINGS = ("xnnpack", "reference")
"""As XNNPACK rounds, for those who run a model with LiteRT, or as the reference kernels do."""
