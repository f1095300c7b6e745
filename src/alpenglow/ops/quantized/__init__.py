"""Quantization, and products of quantized tensors."""
