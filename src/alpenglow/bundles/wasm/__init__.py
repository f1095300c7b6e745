"""Bundles as WebAssembly."""
