"""Converters of ATen operators, a file a family; importing one registers them."""
