"""Converters of StableHLO operations, a file a family; importing one registers them."""
