"""Special functions of PyTorch."""
