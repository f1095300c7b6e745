"""Operators of ONNX Runtime's own domain, com.microsoft, made of operators of the core."""
