"""The ONNX front end: `load` turns a model into a Graph."""

from alpenglow.frontends.onnx import (
    convert_elementwise,
    convert_movement,
    convert_window,
)
from alpenglow.frontends.onnx.importer import load
from alpenglow.frontends.onnx.table import supported

__all__ = ["convert_elementwise", "convert_movement", "convert_window", "load", "supported"]
