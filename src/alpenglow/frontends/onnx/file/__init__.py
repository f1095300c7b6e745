"""Readers of ONNX files: attributes, extents, types and description."""
