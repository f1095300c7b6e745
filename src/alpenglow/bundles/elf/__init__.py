"""Bundles as object files and shared libraries."""
