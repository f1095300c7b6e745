"""Linear algebra of PyTorch."""
