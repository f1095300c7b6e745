"""Rewriting ONNX graphs before they are imported."""
