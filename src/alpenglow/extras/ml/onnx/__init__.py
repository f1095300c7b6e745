"""The operators of ai.onnx.ml, and n-grams of ONNX."""
