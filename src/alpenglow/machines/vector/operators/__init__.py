"""Operators of this machine, which its passes make of those of models."""

from alpenglow.machines.vector.operators import (
    blocked,
    few_bits,
    filters,
    layout,
    phases,
    quantized,
    winograd,
    winograd_back,
)

__all__ = ["blocked", "few_bits", "filters", "layout", "phases", "quantized", "winograd",
           "winograd_back"]  # fmt: skip
