"""Graphs as models of ONNX: `export_onnx`."""

from alpenglow.exporters.onnx.model import export_onnx

__all__ = ["export_onnx"]
