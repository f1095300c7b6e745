"""Linear algebra of ONNX."""
