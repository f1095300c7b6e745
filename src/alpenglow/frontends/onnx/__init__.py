"""The ONNX front end: `load` turns a model into a Graph."""

from alpenglow.frontends.onnx import (
    convert_contraction,
    convert_elementwise,
    convert_gather,
    convert_generate,
    convert_movement,
    convert_normalize,
    convert_quantize,
    convert_recurrent,
    convert_reduction,
    convert_resize,
    convert_slice,
    convert_window,
)
from alpenglow.frontends.onnx.importer import load
from alpenglow.frontends.onnx.table import supported

__all__ = [
    "convert_contraction",
    "convert_elementwise",
    "convert_gather",
    "convert_generate",
    "convert_movement",
    "convert_normalize",
    "convert_quantize",
    "convert_recurrent",
    "convert_reduction",
    "convert_resize",
    "convert_slice",
    "convert_window",
    "load",
    "supported",
]
