"""Reading `.pt2` files without PyTorch."""
