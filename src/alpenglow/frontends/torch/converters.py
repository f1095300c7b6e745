"""All converters: importing this module fills the table."""

from __future__ import annotations

from alpenglow.frontends.torch import (
    convert_arithmetic,
    convert_arrange,
    convert_complex,
    convert_contraction,
    convert_convolution,
    convert_counted,
    convert_elementwise,
    convert_factorization,
    convert_fourier,
    convert_generate,
    convert_index,
    convert_logic,
    convert_movement,
    convert_normalize,
    convert_order,
    convert_quantized,
    convert_random,
    convert_recurrent,
    convert_reduction,
    convert_resize,
    convert_running,
    convert_scatter,
    convert_solving,
    convert_special,
    convert_statistics,
    convert_symbols,
    convert_torchao,
    convert_window,
)
from alpenglow.frontends.torch.table import find, supported

FAMILIES = (
    convert_arithmetic,
    convert_arrange,
    convert_complex,
    convert_contraction,
    convert_convolution,
    convert_counted,
    convert_elementwise,
    convert_factorization,
    convert_fourier,
    convert_generate,
    convert_index,
    convert_logic,
    convert_movement,
    convert_normalize,
    convert_order,
    convert_quantized,
    convert_random,
    convert_recurrent,
    convert_reduction,
    convert_resize,
    convert_running,
    convert_scatter,
    convert_solving,
    convert_special,
    convert_statistics,
    convert_symbols,
    convert_torchao,
    convert_window,
)
"""The modules whose import is what fills the table."""

__all__ = ["FAMILIES", "find", "supported"]
