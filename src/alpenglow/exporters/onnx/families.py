"""The writers, a module a family.  Importing this module fills the table."""

from alpenglow.exporters.onnx import (
    write_contraction,
    write_elementwise,
    write_gather,
    write_generate,
    write_movement,
    write_normalize,
    write_reduction,
    write_window,
)

__all__ = [
    "write_contraction",
    "write_elementwise",
    "write_gather",
    "write_generate",
    "write_movement",
    "write_normalize",
    "write_reduction",
    "write_window",
]
