"""Functions and subgraphs of ONNX: their bodies, and what they read from outside."""
