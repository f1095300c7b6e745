"""Kernels as C that people can read: `render` makes it, for bundles in source form."""
