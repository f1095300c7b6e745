"""Pooling, and convolutions that are transposed, deformed or differentiated."""
