"""Bundles as Python packages."""
