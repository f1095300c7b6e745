"""Converters of ONNX operators, a file a family; importing one registers them."""
