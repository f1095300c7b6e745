"""Bundles as C, and the C files beside bundles of other formats."""
