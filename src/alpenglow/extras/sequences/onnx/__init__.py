"""Sequences and optionals as ONNX has them."""
