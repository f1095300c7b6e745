"""Bundles for OpenCL."""
