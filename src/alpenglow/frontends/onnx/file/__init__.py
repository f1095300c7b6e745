"""What an ONNX file holds: its attributes, its extents, its types and its description."""
