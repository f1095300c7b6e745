"""Operators of ONNX on strings."""
