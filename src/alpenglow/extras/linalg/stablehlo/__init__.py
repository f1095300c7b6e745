"""Linear algebra of StableHLO."""
